"""What losses are made of on a device, against the host."""

import numpy as np
import pytest
from conftest import assert_near

import rsnet as mx
from rsnet import gluon, nd


@pytest.fixture(autouse=True)
def nothing_runs_on_the_host():
    before = mx.cuda.operators_on_host()
    yield
    assert mx.cuda.operators_on_host() == before


def results(call, arrays, ctx):
    """Results of a call, and its gradients for the first array."""
    inputs = [nd.array(a, ctx=ctx, dtype=a.dtype) for a in arrays]
    inputs[0].attach_grad()
    with mx.autograd.record():
        out = call(*inputs)
    out.backward(nd.arange(out.size, ctx=ctx).reshape(out.shape).astype(out.dtype))
    assert inputs[0].grad.context == ctx
    return [out.asnumpy(), inputs[0].grad.asnumpy()]


def compare(gpu, call, *arrays):
    for got, want in zip(results(call, arrays, gpu), results(call, arrays, mx.cpu()), strict=True):
        assert_near(got, want)


def noise(*shape, dtype="float32"):
    return np.random.RandomState(len(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("index", ["float32", "int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_one_element_of_each_line(dtype, index, gpu):
    x = noise(5, 4, 3, dtype=dtype)
    for axis, shape in ((0, (4, 3)), (1, (5, 3)), (-1, (5, 4))):
        at = np.random.RandomState(2).randint(-4, 9, shape).astype(index)
        for mode in ("clip", "wrap"):
            compare(gpu, lambda x, i: nd.pick(x, i, axis=axis, mode=mode), x, at)  # noqa: B023
    compare(gpu, lambda x, i: nd.pick(x, i, axis=None), x, np.array([7], index))
    compare(gpu, nd.batch_take, x[:, :, 0].copy(), np.array([0, 3, 9, 1, 2], index))


@pytest.mark.parametrize("condition", ["float32", "int32", "float64"])
@pytest.mark.parametrize("rows", [False, True])
def test_what_is_chosen(rows, condition, gpu):
    holds = (noise(6) if rows else noise(6, 7)) > 0
    call = lambda x, y, c: nd.where(c, x, y) + 2 * nd.where(c, y, x)  # noqa: E731
    compare(gpu, call, noise(6, 7), noise(7, 6).T.copy(), holds.astype(condition))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_smooth_absolute_values(dtype, gpu):
    x = np.concatenate([noise(40, dtype=dtype), np.array([0, np.inf, -np.inf], dtype)])
    compare(gpu, lambda x: nd.smooth_l1(x, scalar=1.5), x)


OUTPUTS = ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"]


@pytest.mark.parametrize("name", OUTPUTS)
def test_regression(name, gpu):
    x, label = noise(6, 5), noise(5, 6).T.copy()
    label[0, 0] = x[0, 0]
    compare(gpu, lambda x, y: getattr(nd, name)(x, y, grad_scale=0.5), x, label)


@pytest.mark.parametrize("normalization", ["null", "batch"])
def test_a_gradient_that_needs_no_array_is_on_the_device(normalization, gpu):
    compare(gpu, lambda x: nd.make_loss(x * 2), noise(6, 5))
    call = lambda x: nd.MakeLoss(x * 2, grad_scale=3, normalization=normalization)  # noqa: E731
    compare(gpu, call, noise(6, 5))


def test_shapes_of_others(gpu):
    compare(gpu, lambda x, y: nd.reshape_like(x, y) * y, noise(6, 5), noise(3, 10))


LOSSES = [
    (gluon.loss.SoftmaxCrossEntropyLoss(), (6,)),
    (gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False), (6, 5)),
    (gluon.loss.L2Loss(), (6, 5)),
    (gluon.loss.L1Loss(), (6, 5)),
    (gluon.loss.HuberLoss(), (6, 5)),
    (gluon.loss.HingeLoss(), (6, 5)),
    (gluon.loss.SigmoidBinaryCrossEntropyLoss(), (6, 5)),
    (gluon.loss.KLDivLoss(from_logits=False), (6, 5)),
]


@pytest.mark.parametrize(("loss", "shape"), LOSSES, ids=lambda v: type(v).__name__)
def test_losses_of_gluon(loss, shape, gpu):
    label = np.abs(noise(*shape)) if len(shape) > 1 else np.arange(6.0) % 5
    compare(gpu, loss, noise(6, 5), label.astype("float32"))
