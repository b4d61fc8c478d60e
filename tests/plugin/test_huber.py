"""The example of MXNet's interface in training. (`test_digits.py` trains that of OneFlow's.)"""

import numpy as np
import pytest
from places import ROOT
from plugins import compiled

import rsnet as mx
from rsnet import autograd, nd, optimizer

pytestmark = pytest.mark.process  # the compiler is one


def trained(weight, loss, steps, **options):
    """The weight after so many steps of gradient descent on `loss(weight)`."""
    weight.attach_grad()
    update = optimizer.get_updater(optimizer.SGD(**options))
    for _ in range(steps):
        with autograd.record():
            value = loss(weight)
        value.backward()
        update(0, weight.grad, weight)
    return weight.asnumpy().ravel()


def test_huber_fits_a_line_in_spite_of_outliers():
    mx.load_library(compiled(ROOT / "examples" / "plugin" / "huber.cc"))
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 2)).astype("float32")
    y = x @ np.array([[2.0], [-3.0]], "float32")
    y[:20] += 30 * x[:20, :1]
    data, label = nd.array(x), nd.array(y)

    def errors(w):
        return nd.dot(data, w) - label

    options = {"learning_rate": 0.2, "wd": 0.0}
    robust = trained(
        nd.zeros((2, 1)), lambda w: nd.huber(errors(w), delta=0.1).mean(), 600, **options
    )
    squared = trained(nd.zeros((2, 1)), lambda w: (errors(w) ** 2).mean() / 2, 600, **options)
    np.testing.assert_allclose(robust, [2, -3], atol=0.1)
    assert abs(squared[0] - 2) > 1
