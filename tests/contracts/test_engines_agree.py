"""Threads, the naive engine and memory plans must not change a single bit of any result."""

import os
import subprocess
import sys

import numpy as np
import pytest
from places import SUPPORT

import rsnet as mx

pytestmark = pytest.mark.process

SCRIPT = SUPPORT / "run_cases.py"


def run(out, **environment):
    subprocess.run(
        [sys.executable, str(SCRIPT), str(out)], check=True, env=os.environ | environment
    )
    with np.load(out) as file:
        return dict(file)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return run(tmp_path_factory.mktemp("usual") / "results.npz")


SETTINGS = {
    "naive engine": {"MXNET_ENGINE_TYPE": "NaiveEngine"},
    "one thread": {"RUN_CASES_THREADS": "1"},
    "three threads": {"RUN_CASES_THREADS": "3"},
    "no in-place": {"MXNET_EXEC_ENABLE_INPLACE": "0"},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_same_bits(setting, usual, tmp_path):
    other = run(tmp_path / "results.npz", **SETTINGS[setting])
    assert other.keys() == usual.keys() and len(usual) > 100
    different = [k for k in usual if not np.array_equal(usual[k], other[k], equal_nan=True)]
    assert not different, f"{setting}: {different[:10]} and {max(len(different) - 10, 0)} more"


def branches(F, data, w1, b1, gamma, beta, mean, var, w2):
    """A network in terms of `mx.nd` or `mx.sym`, with much memory to share."""
    net = F.Convolution(data, w1, b1, kernel=(3, 3), pad=(1, 1), num_filter=4)
    left = F.relu(F.BatchNorm(net, gamma, beta, mean, var, fix_gamma=False))
    net = F.Pooling(left + F.tanh(net), kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = F.Flatten(net)
    one = F.FullyConnected(net, w2, num_hidden=6, no_bias=True)
    two = F.FullyConnected(net * 0.5, w2, num_hidden=6, no_bias=True)
    return F.log_softmax(one * F.sigmoid(two) + F.exp(one * 0.1))


SHAPES = {
    "data": (8, 3, 6, 6), "w1": (4, 3, 3, 3), "b1": (4,), "gamma": (4,), "beta": (4,),
    "mean": (4,), "var": (4,), "w2": (6, 36),
}  # fmt: skip


def test_planned_memory_gives_what_separate_arrays_give():
    """An executor over one arena beside the same calls one by one, each with memory of its own."""
    rng = np.random.RandomState(0)
    values = {k: rng.uniform(0.1, 1, s).astype("float32") for k, s in SHAPES.items()}
    head = rng.normal(size=(8, 6)).astype("float32")

    arrays = {k: mx.nd.array(v) for k, v in values.items()}
    learned = [k for k in SHAPES if k not in ("mean", "var")]
    for k in learned:
        arrays[k].attach_grad()
    with mx.autograd.record():
        out = branches(mx.nd, **arrays)
    out.backward(mx.nd.array(head))

    net = branches(mx.sym, **{k: mx.sym.Variable(k) for k in SHAPES})
    args = {k: mx.nd.array(values[k]) for k in learned}
    grads = {k: mx.nd.zeros(SHAPES[k]) for k in learned}
    aux = {k: mx.nd.array(values[k]) for k in ("mean", "var")}
    exe = net.bind(mx.cpu(), args, grads, aux_states=aux)
    for _ in range(3):  # the arena is used again
        exe.forward(is_train=True)
        exe.backward([mx.nd.array(head)])
    np.testing.assert_array_equal(exe.outputs[0].asnumpy(), out.asnumpy())
    for k in learned:
        np.testing.assert_allclose(
            grads[k].asnumpy(), arrays[k].grad.asnumpy(), rtol=1e-5, atol=1e-6, err_msg=k
        )
