"""Values of parameters and shapes that are refused by rule, with the argument in the error."""

import numpy as np
import pytest

import rsnet as mx


def test_an_axis_named_twice():
    for call in (
        lambda: mx.nd.broadcast_axis(mx.nd.ones((1, 1, 3)), axis=(0, 0), size=(2, 3)),
        lambda: mx.nd.broadcast_axis(mx.nd.ones((1, 1, 3)), axis=(0, -3), size=(2, 3)),
        lambda: mx.sym.broadcast_axis(mx.sym.Variable("x"), axis=(0, 0), size=(2, 3)).infer_shape(
            x=(1, 1, 3)
        ),
    ):
        with pytest.raises(mx.MXNetError, match="broadcast_axis.*axis -?[03] is named twice"):
            call()


@pytest.mark.parametrize("shape", [(2**62, 2**62), (2**62,), (2**59, 3)])
def test_more_bytes_than_there_are_addresses(shape):
    net = mx.sym.exp(mx.sym.exp(mx.sym.Variable("a"), name="first"), name="second")
    text = r"(null 'a'|exp '\w+'): invalid shape .* of '\w+': expected a graph of at most"
    for call in (net.memory_plan, lambda **k: net.simple_bind(mx.cpu(), **k)):
        with pytest.raises(mx.MXNetError, match=rf"{text}|expected less than 2\^60 elements"):
            call(a=shape)
    assert net.memory_plan(a=(2**31, 2**20), grad_req="null").output_bytes == 2**53


@pytest.mark.parametrize("shape", ["x", 3.5, 4, (1, "x"), {"a": 1}])
def test_what_is_no_shape_names_its_argument(shape):
    net = mx.sym.exp(mx.sym.Variable("a"))
    for where, call in (
        ("memory_plan", lambda: net.memory_plan(a=shape)),
        ("dump_passes", lambda: net.dump_passes(a=shape)),
        ("simple_bind", lambda: net.simple_bind(mx.cpu(), a=shape)),
    ):
        with pytest.raises(TypeError, match=f"{where}: invalid shape .* of 'a': expected a tuple"):
            call()


def test_a_probability_is_a_number():
    x = mx.nd.ones((2, 3))
    for call in (
        lambda: mx.nd.Dropout(x, p=float("nan")),
        lambda: mx.nd.Dropout(x, p="nan"),
        lambda: mx.sym.Dropout(mx.sym.Variable("x"), p=np.nan),
        lambda: mx.sym.RNN(mx.sym.Variable("x"), state_size=1, num_layers=1, mode="gru", p=np.nan),
    ):
        with pytest.raises(mx.MXNetError, match="invalid p 'nan': expected 0 to 1"):
            call()


@pytest.mark.parametrize("limits", [(0, 2**40), (0, 2**31 + 1), (-(2**31) - 1, 0), (-(2**40), 5)])
def test_integers_beyond_their_dtype(limits):
    with pytest.raises(mx.MXNetError, match="'(low|high)' has value .* with dtype int32"):
        mx.nd.random.randint(*limits, dtype="int32", shape=3)
    assert mx.nd.random.randint(*limits, dtype="int64", shape=3).shape == (3,)
    mx.nd.random.randint(-(2**31), 2**31, shape=3).wait_to_read()
