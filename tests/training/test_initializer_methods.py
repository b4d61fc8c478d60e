"""Every method of an initializer that a subclass may override is the one that is called."""

import logging

import numpy as np
import pytest

import rsnet as mx

# Name, method for an `InitDesc`, method for a plain string.
METHODS = [
    ("fc_weight", "_init_weight", "_init_weight"),
    ("fc_bias", "_init_bias", "_init_bias"),
    ("bn_gamma", "_init_gamma", "_init_gamma"),
    ("bn_beta", "_init_beta", "_init_beta"),
    ("q_min", "_init_zero", "_init_zero"),
    ("q_max", "_init_one", "_init_one"),
    ("bn_moving_mean", "_init_default", "_init_zero"),
    ("bn_moving_var", "_init_default", "_init_one"),
    ("a_moving_inv_var", "_init_default", "_init_zero"),
    ("a_moving_avg", "_init_default", "_init_zero"),
    ("fc_weight_quantize", "_init_quantized_weight", "_init_default"),
    ("fc_bias_quantize", "_init_quantized_bias", "_init_default"),
    ("upsampling_weight", "_init_weight", "_init_bilinear"),
    ("stn_loc_weight", "_init_weight", "_init_zero"),
    ("stn_loc_bias", "_init_bias", "_init_loc_bias"),
    ("state", "_init_default", "_init_default"),
]


def recording(calls):
    names = {m for _, *methods in METHODS for m in methods}
    body = {n: lambda self, name, arr, n=n: calls.append((n, str(name))) for n in names}
    return type("Recording", (mx.init.Xavier,), body)()


@pytest.mark.parametrize(("name", "described", "plain"), METHODS)
def test_overridden_methods_are_called(name, described, plain):
    calls = []
    init = recording(calls)
    init(mx.init.InitDesc(name), mx.nd.zeros((6,)))
    with pytest.warns(DeprecationWarning, match="is a str, which is deprecated"):
        init(name, mx.nd.zeros((6,)))
    assert calls == [(described, name), (plain, name)]


def test_a_subclass_that_fills_biases():
    class Tenths(mx.init.Xavier):
        def _init_bias(self, name, arr):
            arr[:] = 0.1

    arr = mx.nd.zeros((3,))
    Tenths()(mx.init.InitDesc("fc_bias"), arr)
    np.testing.assert_allclose(arr.asnumpy(), 0.1)


@pytest.mark.filterwarnings("ignore:the name .* is a str")
def test_layers_of_the_older_rules():
    kernel, weight, bias = mx.nd.zeros((1, 1, 4, 4)), mx.nd.ones((6, 2)), mx.nd.ones((6,))
    init = mx.init.Uniform()
    init("upsampling0_weight", kernel)
    row = [0.25, 0.75, 0.75, 0.25]
    np.testing.assert_allclose(kernel.asnumpy()[0, 0], np.outer(row, row))
    init("stn_loc_weight", weight)
    init("stn_loc_bias", bias)
    assert not weight.asnumpy().any() and bias.asnumpy().tolist() == [1, 0, 0, 0, 1, 0]
    with pytest.raises(ValueError, match=r"stn_loc_bias \(3,\): expected \(6,\)"):
        init("stn_loc_bias", mx.nd.ones((3,)))


def test_global_init_is_the_initializer_that_was_called():
    seen = []

    class Asks(mx.init.Initializer):
        def _init_weight(self, name, arr):
            seen.append(name.global_init)

    outer, given = Asks(), mx.init.One()
    outer(mx.init.InitDesc("fc_weight"), mx.nd.zeros((1,)))
    outer(mx.init.InitDesc("fc_weight", global_init=given), mx.nd.zeros((1,)))
    assert seen == [outer, given]
    desc = mx.init.InitDesc("fc_weight", {"__init__": mx.init.One().dumps()})
    outer(desc, mx.nd.zeros((1,)))
    assert desc.global_init is outer


@pytest.mark.parametrize("kind", [list, np.array, mx.nd.array])
def test_constants_of_arrays_can_be_stored(kind):
    text = mx.init.Constant(kind([1.0, 2.0])).dumps()
    assert text == '["constant", {"value": [1.0, 2.0]}]'
    weight = mx.nd.zeros((2,))
    mx.init.Xavier()(mx.init.InitDesc("fc_weight", {"__init__": text}), weight)
    assert weight.asnumpy().tolist() == [1, 2]
    assert mx.init.Uniform(np.float64(0.5)).dumps() == '["uniform", {"scale": 0.5}]'
    with pytest.raises(TypeError, match="invalid argument .* of an initializer"):
        mx.init.Constant(object()).dumps()


def test_verbosity(caplog):
    caplog.set_level(logging.INFO)
    init = mx.init.One().set_verbosity(True, lambda arr: f"{arr.size} values")
    init(mx.init.InitDesc("fc_weight"), mx.nd.zeros((4,)))
    assert caplog.messages == ["Initialized fc_weight as weight: 4 values"]
    caplog.clear()
    init.set_verbosity(True)(mx.init.InitDesc("fc_weight"), mx.nd.zeros((4,)))
    assert caplog.messages == ["Initialized fc_weight as weight: 1.0"]


def test_what_no_rule_knows_is_refused():
    with pytest.raises(NotImplementedError, match="'_init_weight'"):
        mx.init.Initializer()(mx.init.InitDesc("fc_weight"), mx.nd.zeros((1,)))
    with pytest.raises(TypeError, match="invalid name 3"):
        mx.init.One()(3, mx.nd.zeros((1,)))


@pytest.mark.parametrize(
    "text", ["[", "{}", "[]", "[1]", '["zeros", 3]', '[["zeros"]]', "[" * 100_000]
)
def test_json_that_describes_no_initializer_is_refused(text):
    with pytest.raises(ValueError, match="^invalid (initializer|arguments)"):
        mx.init.create(text)
