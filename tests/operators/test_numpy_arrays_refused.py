"""A NumPy array or a list in place of an NDArray or of a number is refused in a short message that
names the operator, the argument and the remedy.
"""

import re

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, nd, sym

ARRAY = np.arange(10**4, dtype="float32").reshape(100, 100)
LIST = [0.5] * 10**4
ROWS = [[0.5] * 100 for _ in range(100)]
LARGE = pytest.mark.parametrize("wrong", [ARRAY, LIST, ROWS], ids=["array", "list", "rows"])
#: Characters of a message, with 80 of each value.
MOST = 500


def refusal(error, call):
    """The message of a call that is refused: short, and in one line."""
    with pytest.raises(error) as raised:
        call()
    text = str(raised.value)
    assert len(text) < MOST
    assert "\n" not in text
    return text


@pytest.fixture
def x():
    return nd.ones((2,))


@LARGE
@pytest.mark.parametrize(
    ("call", "operator", "argument"),
    [
        (lambda x, wrong: nd.dot(wrong, wrong), "dot", "lhs"),
        (lambda x, wrong: nd.dot(x, wrong), "dot", "rhs"),
        (lambda x, wrong: x.dot(wrong), "dot", "rhs"),
        (lambda x, wrong: nd.Activation(data=wrong, act_type="relu"), "Activation", "data"),
        (lambda x, wrong: nd.BatchNorm(x, wrong, wrong, wrong, wrong), "BatchNorm", "gamma"),
        (lambda x, wrong: nd.sgd_update(x, grad=wrong, lr=0.1), "sgd_update", "grad"),
        (lambda x, wrong: nd.concat(x, [wrong], dim=0), "concat", "data"),
    ],
)
def test_in_place_of_an_input(x, wrong, call, operator, argument):
    text = refusal(AssertionError, lambda: call(x, wrong))
    shown = "array" if wrong is ARRAY else "\\["
    pattern = f"{operator}: invalid argument '{argument}' {shown}.*: expected an NDArray .*array"
    assert re.match(pattern, text)


@LARGE
def test_in_place_of_a_symbol(wrong):
    kind = type(wrong).__name__
    text = f"dot: invalid argument 'rhs' of type {kind}: expected a Symbol"
    assert refusal(TypeError, lambda: sym.dot(sym.Variable("x"), wrong)) == text


@LARGE
@pytest.mark.parametrize(
    ("call", "operator", "parameter"),
    [
        (lambda x, wrong: nd.Activation(x, act_type=wrong), "Activation", "act_type"),
        (lambda x, wrong: nd.Activation(x, wrong), "Activation", "act_type"),
        (lambda x, wrong: nd.clip(x, wrong, 1), "clip", "a_min"),
        (lambda x, wrong: nd.sum(x, axis=wrong), "sum", "axis"),
        (lambda x, wrong: nd.sum(x, keepdims=wrong), "sum", "keepdims"),
        (lambda x, wrong: nd.topk(x, k=wrong), "topk", "k"),
        (lambda x, wrong: nd.slice(x, begin=wrong, end=(1,)), "slice", "begin"),
        (lambda x, wrong: nd.random.uniform(0, wrong), "_random_uniform", "high"),
    ],
)
def test_in_place_of_a_parameter(x, wrong, call, operator, parameter):
    text = refusal(mx.MXNetError, lambda: call(x, wrong))
    assert re.match(rf"{operator}: invalid {parameter} '\(.*\.\.\.': expected ", text)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nd.reshape(x, shape=(10**5,) * 10**4),
        lambda x: nd.transpose(x, axes=range(10**4)),
        lambda x: nd.broadcast_to(x, shape=range(10**4)),
        lambda x: nd.Activation(x, act_type="x" * 10**4),
        lambda x: nd.relu(x, out=LIST),
        lambda x: nd.relu(x, out=ARRAY),
        lambda x: sym.Activation(sym.Variable("x"), act_type=LIST),
    ],
)
def test_long_parameters_are_cut(x, call):
    refusal((mx.MXNetError, TypeError), lambda: call(x))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nd.zeros(shape=LIST),
        lambda x: x.reshape(ARRAY),
        lambda x: x.broadcast_to(LIST),
        lambda x: nd.random.normal(shape=LIST),
        lambda x: mx.cpu(LIST),
        lambda x: x.backward(ARRAY),
        lambda x: autograd.backward([x], [ARRAY]),
        lambda x: sym.Variable(LIST),
        lambda x: sym.relu(sym.Variable("x"), name=LIST),
        lambda x: sym.relu(sym.Variable("x"), attr=ARRAY),
        lambda x: sym.Variable("x").simple_bind(mx.cpu(), x=LIST),
        lambda x: mx.optimizer.create(LIST),
        lambda x: mx.kv.create(LIST),
    ],
)
def test_in_place_of_a_shape_name_or_gradient(x, call):
    text = refusal((TypeError, ValueError), lambda: call(x))
    assert "expected" in text or "broadcast" in text


@pytest.mark.parametrize("wrong", [ARRAY, LIST, (1, 2)], ids=["array", "list", "tuple"])
@pytest.mark.parametrize(
    ("call", "operator"),
    [
        (lambda x, wrong: x + wrong, "broadcast_add"),
        (lambda x, wrong: x * wrong, "broadcast_mul"),
        (lambda x, wrong: x**wrong, "broadcast_power"),
        (lambda x, wrong: x == wrong, "broadcast_equal"),
        (lambda x, wrong: x < wrong, "broadcast_lesser"),
        (lambda x, wrong: x.__isub__(wrong), "broadcast_sub"),
    ],
)
def test_in_place_of_an_operand(x, wrong, call, operator):
    text = refusal(TypeError, lambda: call(x, wrong))
    kind = type(wrong).__name__
    assert text == (
        f"{operator}: invalid operand 'rhs' of type {kind}: expected an NDArray or a number "
        "(mx.nd.array makes an NDArray)"
    )


def test_an_array_on_the_left_is_an_operand_too(x):
    text = refusal(TypeError, lambda: ARRAY - x)
    assert text.startswith("broadcast_sub: invalid operand 'lhs' of type ndarray: expected")
    rows = [0]
    rows += nd.array([1, 2])
    assert len(rows) == 3, "a list takes the rows of an array"


def test_what_no_array_can_be_made_of_has_no_remedy(x):
    text = "invalid argument 'data' 'a': expected an NDArray"
    assert refusal(AssertionError, lambda: nd.relu("a")) == f"relu: {text}"


@pytest.mark.parametrize(
    "wrong",
    [10**5000, [[[[[[1] * 6] * 6] * 6] * 6] * 6] * 6, "x" * 10**5, {"k": LIST}],
    ids=["int", "nested", "text", "dict"],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda wrong: nd.zeros(shape=[wrong]),
        lambda wrong: sym.relu(sym.Variable("x"), name=[wrong]),
        lambda wrong: mx.op.define("test_refused_values", inputs="x", infer=wrong),
        lambda wrong: mx.op.Attr(str(type(wrong)) * 10**4),
    ],
)
def test_values_of_any_size_are_one_short_line(wrong, call):
    assert "expected" in refusal((TypeError, mx.MXNetError), lambda: call(wrong))
