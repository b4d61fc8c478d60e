"""Chains of a bound graph: one pass over memory gives the bits of single steps."""

import re

import numpy as np
import pytest

import rsnet as mx

nd, sym = mx.nd, mx.sym

# Chains are of large arrays only; odd extents leave a short block at the end.
SHAPE = (3, 5, 401, 353)


def chains(exe):
    """The nodes of the executor's chains, as pairs (first, end)."""
    found = re.findall(r"^chain \[(\d+), (\d+)\)$", exe.debug_str(), re.M)
    return [(int(first), int(end)) for first, end in found]


def run(net, dtype, train, requests="write", **shapes):
    """The outputs, gradients and states of three runs on random numbers, and the executor."""
    types = {name: dtype for name in shapes}
    exe = net.simple_bind(mx.cpu(), grad_req=requests, type_dict=types, **shapes)
    rng = np.random.default_rng(7)
    for name in sorted(exe.arg_dict):
        array = exe.arg_dict[name]
        array[:] = nd.array(rng.uniform(-2, 2, array.shape), dtype=array.dtype)
    seen = []
    for _ in range(3):
        heads = exe.forward(is_train=train)
        if train and requests != "null":
            exe.backward([nd.ones(head.shape, dtype=head.dtype) * 3 for head in heads])
        arrays = [*heads, *(g for g in exe.grad_arrays if g is not None), *exe.aux_arrays]
        seen += [array.asnumpy() for array in arrays]
    return seen, exe


def equal_without(monkeypatch, net, dtype="float32", train=True, requests="write", **shapes):
    """Asserts that the graph's values have the same bits without chains; returns the chains."""
    got, exe = run(net, dtype, train, requests, **shapes)
    with monkeypatch.context() as without:
        without.setenv("MXNET_USE_FUSION", "0")
        want, plain = run(net, dtype, train, requests, **shapes)
        assert not chains(plain)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    return chains(exe)


def formula(x, y):
    h = sym.exp(x * 0.25) + sym.tanh(y) * x
    h = sym.broadcast_add(h, sym.clip(y, -1, 1)) - sym.sqrt(sym.abs(x))
    return sym.Activation(h * h, act_type="relu") + sym.add_n(x, y, h)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("requests", ["null", "write", "add"])
def test_formulas(monkeypatch, dtype, requests):
    x, y = sym.Variable("x"), sym.Variable("y")
    if dtype == "int32":
        if requests != "null":
            pytest.skip("no gradient of whole numbers")
        net = (x * 3 + y) * x - 5
    else:
        net = formula(x, y)
    train = requests != "null"
    found = equal_without(monkeypatch, net, dtype, train, requests, x=SHAPE, y=SHAPE)
    assert found and max(end - first for first, end in found) > 2


def test_other_dtypes_within_a_chain(monkeypatch):
    x = sym.Variable("x")
    half = sym.Cast(x * 2, dtype="float16") + 1
    net = sym.Cast(sym.Cast(half * half, dtype="float64") - 0.5, dtype="float32") * x
    assert equal_without(monkeypatch, net, x=SHAPE)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("train", [False, True])
def test_batch_norm_and_what_follows(monkeypatch, dtype, train):
    def norm(x, name):
        return sym.BatchNorm(x, fix_gamma=False, name=name)

    x, y = sym.Variable("x"), sym.Variable("y")
    net = sym.Activation(norm(x, "a"), act_type="relu")
    net = sym.Activation(norm(net * 0.5, "b") + y, act_type="relu")
    found = equal_without(monkeypatch, net, dtype, train, x=SHAPE, y=SHAPE)
    assert found
    if dtype != "float16":
        text = net.simple_bind(mx.cpu(), type_dict={"x": dtype, "y": dtype}, x=SHAPE, y=SHAPE)
        operators = re.findall(r"^(?:Op:(\w+)|Variable)", text.debug_str(), re.M)
        joined = [operators[first:end] for first, end in chains(text)]
        assert any(names[0] == "BatchNorm" for names in joined)
        assert any(names[-1] == "_backward_BatchNorm" for names in joined)


@pytest.mark.parametrize("shape", [(700001, 3), (2, 3, 601, 599), (2048, 1031), (1, 4, 1201, 500)])
def test_batch_norm_of_other_extents(monkeypatch, shape):
    x = sym.Variable("x")
    net = sym.sigmoid(sym.BatchNorm(sym.tanh(x) * 2)) * 3
    equal_without(monkeypatch, net, x=shape)


def test_small_arrays_are_in_no_chain():
    exe = formula(sym.Variable("x"), sym.Variable("y")).simple_bind(mx.cpu(), x=(7, 9), y=(7, 9))
    assert not chains(exe)


def test_repeated_operands_end_a_chain(monkeypatch):
    x, bias = sym.Variable("x"), sym.Variable("bias")
    net = sym.relu(sym.broadcast_mul(sym.broadcast_add(x * 2, bias) + 1, bias) - x)
    equal_without(monkeypatch, net, x=(5, 600, 771), bias=(1, 600, 1))


def test_arrays_bound_twice(monkeypatch):
    """An argument's array that is also its gradient's, or another argument's."""
    x, y = sym.Variable("x"), sym.Variable("y")
    net = (x * 2 + y) * x - y

    def values():
        rng = np.random.default_rng(3)
        a = nd.array(rng.uniform(-1, 1, SHAPE))
        grads = {"x": nd.zeros(SHAPE), "y": nd.zeros(SHAPE)}
        exe = net.bind(mx.cpu(), {"x": a, "y": a}, grads)
        out = exe.forward(is_train=True)[0].asnumpy()
        exe.backward(nd.ones(SHAPE))
        return out, grads["x"].asnumpy(), grads["y"].asnumpy()

    got = values()
    monkeypatch.setenv("MXNET_USE_FUSION", "0")
    for one, other in zip(got, values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_overlapping_arrays_run_step_by_step(monkeypatch):
    """A gradient that lies one row further in the memory of an argument: no order of blocks will
    do, so the steps run one after the other."""
    x = sym.Variable("x")
    net = sym.tanh(x * 2) + x * 3

    def values():
        rng = np.random.default_rng(3)
        room = nd.array(rng.uniform(-1, 1, (2100, 1024)))
        grad = room[1:]
        exe = net.bind(mx.cpu(), {"x": room[:2099]}, {"x": grad})
        exe.forward(is_train=True)
        exe.backward(nd.ones((2099, 1024)))
        return grad.asnumpy()

    got = values()
    monkeypatch.setenv("MXNET_USE_FUSION", "0")
    np.testing.assert_array_equal(got, values())


def test_one_thread_and_two_give_the_same_bits():
    x, y = sym.Variable("x"), sym.Variable("y")
    net = sym.relu(sym.BatchNorm(formula(x, y)) + y)
    before = mx.engine.num_threads()
    try:
        mx.engine.set_num_threads(1)
        one, _ = run(net, "float32", True, x=SHAPE, y=SHAPE)
        mx.engine.set_num_threads(2)
        two, _ = run(net, "float32", True, x=SHAPE, y=SHAPE)
    finally:
        mx.engine.set_num_threads(before)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_hybridized_block(monkeypatch):
    """Cached graphs put other arrays in the places of a program's."""

    def values():
        mx.random.seed(3)
        net = mx.gluon.nn.HybridSequential()
        with net.name_scope():
            net.add(mx.gluon.nn.BatchNorm(in_channels=5), mx.gluon.nn.Activation("relu"))
            net.add(mx.gluon.nn.HybridLambda(lambda F, x: F.tanh(x * 2) + 1))
        net.initialize()
        net.hybridize()
        x = nd.array(np.random.default_rng(1).uniform(-1, 1, SHAPE))
        x.attach_grad()
        found = []
        for _ in range(3):
            with mx.autograd.record():
                out = net(x)
            out.backward()
            found += [out.asnumpy(), x.grad.asnumpy()]
        return found

    got = values()
    monkeypatch.setenv("MXNET_USE_FUSION", "0")
    for one, other in zip(got, values(), strict=True):
        np.testing.assert_array_equal(one, other)
