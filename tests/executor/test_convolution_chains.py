"""Chains behind a convolution: what follows it is done where it writes its output."""

import re

import numpy as np
import pytest
from test_chains import chains, equal_without, run

import rsnet as mx

nd, sym = mx.nd, mx.sym

#: Convolutions for every path of the kernels: shape of the data, and parameters.
CASES = {
    "3x3": ((2, 16, 37, 35), {"kernel": (3, 3), "num_filter": 24, "pad": (1, 1)}),
    "3x3 of small planes": ((5, 33, 7, 7), {"kernel": (3, 3), "num_filter": 70, "pad": (1, 1)}),
    "7x7, stride 2": ((3, 3, 75, 69), {"kernel": (7, 7), "num_filter": 20, "stride": (2, 2)}),
    "3x3, stride 2": ((2, 16, 65, 63), {"kernel": (3, 3), "num_filter": 40, "stride": (2, 2)}),
    "1x1": ((2, 40, 29, 31), {"kernel": (1, 1), "num_filter": 12}),
    "1x1 of one image": ((1, 64, 28, 28), {"kernel": (1, 1), "num_filter": 64}),
    "1x1 in groups": ((9, 40, 17, 19), {"kernel": (1, 1), "num_filter": 12, "num_group": 2}),
    "depthwise": ((2, 18, 31, 33), {"kernel": (3, 3), "num_filter": 18, "num_group": 18}),
    "5x5": ((3, 6, 40, 41), {"kernel": (5, 5), "num_filter": 7, "pad": (2, 2)}),
    "dilated": ((2, 40, 19, 60), {"kernel": (3, 3), "num_filter": 30, "dilate": (4, 6)}),
    "1-D": ((4, 48, 700), {"kernel": (3,), "num_filter": 8}),
    "3-D": ((2, 5, 9, 21, 23), {"kernel": (3, 3, 3), "num_filter": 6, "pad": (1, 0, 1)}),
}


def block(x, params, name=""):
    """Convolution, batch normalisation and relu."""
    y = sym.Convolution(x, name=f"{name}conv", **params)
    y = sym.BatchNorm(y, fix_gamma=False, name=f"{name}bn")
    return sym.Activation(y, act_type="relu", name=f"{name}relu")


def operators(exe):
    """The operators of the executor's chains, without the variables between them."""
    names = re.findall(r"^(?:Op:(\w+)|Variable)", exe.debug_str(), re.M)
    return [[n for n in names[first:end] if n] for first, end in chains(exe)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_kind_of_convolution(monkeypatch, case, dtype):
    shape, params = CASES[case]
    net = block(sym.Variable("x"), params)
    assert equal_without(monkeypatch, net, dtype, False, "null", x=shape)
    _, exe = run(net, dtype, False, "null", x=shape)
    assert operators(exe) == [["Convolution", "BatchNorm", "Activation"]]


def test_half_precision_channels_last_and_shallow_filters_run_step_by_step(monkeypatch):
    shape, params = CASES["3x3"]
    net = block(sym.Variable("x"), params)
    assert not equal_without(monkeypatch, net, "float32", False, "null", x=(2, 3, 60, 60))
    net = block(sym.Variable("x"), params)
    assert not equal_without(monkeypatch, net, "float16", False, "null", x=shape)
    net = sym.Convolution(sym.Variable("x"), layout="NHWC", **params)
    net = sym.Activation(net, act_type="relu")
    assert not equal_without(monkeypatch, net, "float32", False, "null", x=(2, 37, 35, 16))


def residual(x, channels, name=""):
    params = {"kernel": (3, 3), "num_filter": channels, "pad": (1, 1), "no_bias": True}
    y = block(x, params, f"{name}a_")
    y = sym.Convolution(y, name=f"{name}b_conv", **params)
    y = sym.BatchNorm(y, name=f"{name}b_bn", eps=1e-5)
    return sym.Activation(y + x, act_type="relu")


@pytest.mark.parametrize("train", [False, True])
def test_a_residual_block(monkeypatch, train):
    net = residual(residual(sym.tanh(sym.Variable("x")), 16, "one_"), 16, "two_")
    shape = (3, 16, 33, 32)
    equal_without(monkeypatch, net, train=train, requests="null", x=shape)
    equal_without(monkeypatch, net, train=train, requests="write", x=shape)
    names = operators(run(net, "float32", False, "null", x=shape)[1])
    assert ["Convolution", "BatchNorm", "elemwise_add", "Activation"] in names


def test_relu_behind_a_convolution_in_training(monkeypatch):
    shape, params = CASES["3x3"]
    net = sym.Activation(sym.Convolution(sym.Variable("x"), **params), act_type="relu")
    assert equal_without(monkeypatch, net, x=shape)
    assert equal_without(monkeypatch, net, requests="add", x=shape)


def test_statistics_of_the_batch_and_global_ones(monkeypatch):
    """A graph without gradients may run in training: then nothing is known of the whole batch
    while a convolution runs, unless the moving averages are used there, too."""
    shape, params = CASES["3x3"]
    x = sym.Variable("x")
    inferred, _ = run(block(x, params), "float32", False, "null", x=shape)
    equal_without(monkeypatch, block(x, params), train=True, requests="null", x=shape)
    trained, _ = run(block(x, params), "float32", True, "null", x=shape)
    assert abs(inferred[0] - trained[0]).max() > 0.1
    fixed = sym.BatchNorm(sym.Convolution(x, **params), use_global_stats=True, fix_gamma=False)
    assert equal_without(monkeypatch, sym.relu(fixed), train=True, x=shape)


def test_outputs_within_a_chain(monkeypatch):
    shape, params = CASES["3x3"]
    conv = sym.Convolution(sym.Variable("x"), **params)
    norm = sym.BatchNorm(conv, output_mean_var=True, fix_gamma=False)
    net = sym.Group([sym.relu(norm[0]) * conv, conv, norm])
    equal_without(monkeypatch, net, train=False, requests="null", x=shape)


def test_results_in_the_place_of_the_data(monkeypatch):
    """The data of a convolution, which it reads to the end, is as large as its output and not
    needed afterwards: what follows must not write there meanwhile."""
    params = {"kernel": (3, 3), "num_filter": 8, "pad": (1, 1), "name": "conv"}
    conv = sym.Convolution(sym.tanh(sym.Variable("x")), **params)
    net = sym.exp(sym.BatchNorm(conv) * 0.1) + conv
    equal_without(monkeypatch, net, train=False, requests="null", x=(2, 8, 41, 39))
    room = {}

    def values():
        x = nd.array(np.random.default_rng(5).uniform(-1, 1, (2, 8, 41, 39)))
        exe = sym.relu(sym.Convolution(sym.Variable("x"), **params)).bind(
            mx.cpu(), {"x": x, **room}, grad_req="null"
        )
        exe.forward()
        return exe.outputs[0].asnumpy()

    room["conv_weight"] = nd.array(np.random.default_rng(6).uniform(-1, 1, (8, 8, 3, 3)))
    room["conv_bias"] = nd.zeros(8)
    got = values()
    monkeypatch.setenv("MXNET_USE_FUSION", "0")
    np.testing.assert_array_equal(got, values())


def test_changed_parameters_count():
    """Nothing of weights, scales or moving averages is kept from call to call."""
    shape, params = CASES["1x1"]
    _, exe = run(block(sym.Variable("x"), params), "float32", False, "null", x=shape)
    for name in ("conv_weight", "conv_bias", "bn_gamma", "bn_beta"):
        before = exe.forward()[0].asnumpy()
        exe.arg_dict[name][:] = exe.arg_dict[name] * 2 + 1
        assert abs(exe.forward()[0].asnumpy() - before).max() > 0.1, name
    for name in ("bn_moving_mean", "bn_moving_var"):
        before = exe.forward()[0].asnumpy()
        exe.aux_dict[name][:] = exe.aux_dict[name] + 3
        assert abs(exe.forward()[0].asnumpy() - before).max() > 0.1, name
    x, w, b, gamma, beta = (exe.arg_dict[n].asnumpy().astype("float64") for n in exe.arg_dict)
    mean, var = (a.asnumpy().astype("float64") for a in exe.aux_arrays)
    y = np.einsum("nchw,fc->nfhw", x, w[:, :, 0, 0]) + b[:, None, None]
    scale = (gamma / np.sqrt(var + 1e-3))[:, None, None]
    want = np.maximum((y - mean[:, None, None]) * scale + beta[:, None, None], 0)
    np.testing.assert_allclose(exe.outputs[0].asnumpy(), want, 1e-5, 1e-4)


def test_one_thread_and_two_give_the_same_bits():
    net = residual(block(sym.Variable("x"), CASES["3x3"][1]), 24)
    before = mx.engine.num_threads()
    try:
        mx.engine.set_num_threads(1)
        one, _ = run(net, "float32", False, "null", x=CASES["3x3"][0])
        mx.engine.set_num_threads(2)
        two, _ = run(net, "float32", False, "null", x=CASES["3x3"][0])
    finally:
        mx.engine.set_num_threads(before)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_hybridized_network(monkeypatch):
    def values():
        mx.random.seed(3)
        net = mx.gluon.nn.HybridSequential()
        for stride in (1, 2):
            net.add(mx.gluon.nn.Conv2D(24, 3, stride, 1, in_channels=16 if stride == 1 else 24))
            net.add(mx.gluon.nn.BatchNorm(in_channels=24), mx.gluon.nn.Activation("relu"))
        net.initialize()
        net.hybridize()
        x = nd.array(np.random.default_rng(1).uniform(-1, 1, (2, 16, 45, 43)))
        found = [net(x).asnumpy()]
        with mx.autograd.record():
            out = net(x)
        out.backward()
        return [*found, out.asnumpy(), net(x).asnumpy()]

    got = values()
    monkeypatch.setenv("MXNET_USE_FUSION", "0")
    for one, other in zip(got, values(), strict=True):
        np.testing.assert_array_equal(one, other)
