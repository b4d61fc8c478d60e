"""The functions of an operator on arrays (``nd``) and on symbols (``sym``) take the same arguments.

They differ in the options of a call only: ``out`` of arrays, ``name`` and ``attr`` of symbols.
"""

import inspect
import re

import numpy as np
import pytest

import rsnet as mx
from rsnet import _core, nd, sym
from rsnet._operators import registry
from rsnet.symbol import register

OPTIONS = {"out", "name", "attr"}
NAMES = [n for n in registry.names() if not _core.is_backward_operator(n)]
OPERATORS = [n for n in NAMES if mx._core.operator_info(n)["name"] == n]  # each by one of its names


def both(name):
    """The function of arrays and that of symbols, made for the operator itself."""
    return mx._core.make_function(name, name, "rsnet.ndarray"), register.function(name)


def shown(parameters):
    return [(p.name, p.kind, repr(p.default)) for p in parameters.values() if p.name not in OPTIONS]


def documented(function):
    """The documentation of the arguments, without the words array and symbol."""
    text = function.__doc__.partition("Parameters\n----------\n")[2].partition("\nReturns")[0]
    text = re.sub(r"^(out|name) : .*\n .*\n", "", text, flags=re.MULTILINE)
    return text.replace("NDArray", "Symbol")


@pytest.mark.parametrize("name", NAMES)
def test_signatures_and_documentation_agree(name):
    array, symbol = both(name)
    assert documented(array) == documented(symbol)
    of_array, of_symbol = (inspect.signature(f).parameters for f in (array, symbol))
    assert shown(of_array) == shown(of_symbol)
    assert {"name", "attr"} <= set(of_symbol)
    assert {"name", "out"} <= set(of_array)


def of_same_kind(name, *args, **kwargs):
    """The errors of both functions, with strings for operands put in as arrays and as symbols."""
    operands = [
        lambda text: nd.ones((2, 2)),
        lambda text: sym.Variable(text),
    ]
    errors = []
    for function, operand in zip(both(name), operands, strict=True):

        def put(v, operand=operand):
            return operand(v[1:]) if isinstance(v, str) and v.startswith("$") else v

        with pytest.raises(Exception) as caught:
            function(*map(put, args), **{k: put(v) for k, v in kwargs.items()})
        errors.append((type(caught.value), str(caught.value)))
    return errors


@pytest.mark.parametrize("name", OPERATORS)
def test_an_argument_that_is_given_twice_is_refused_by_both(name):
    info = mx._core.operator_info(name)
    keys = [*info["arrays"], *(p[0] for p in info["params"])]
    if info["variadic"] or not keys:
        pytest.skip("no argument has a position and a name")
    value = "$a" if info["arrays"] else 1
    array, symbol = of_same_kind(name, value, **{keys[0]: value})
    assert array == symbol
    assert array == (TypeError, f"{name}() got multiple values for argument '{keys[0]}'")


@pytest.mark.parametrize("name", OPERATORS)
def test_too_many_positional_arguments_are_refused_by_both(name):
    info = mx._core.operator_info(name)
    if info["variadic"]:
        pytest.skip("it takes any number")
    count = len(info["arrays"]) + len(info["params"])
    values = ["$a"] * len(info["arrays"]) + [1] * (len(info["params"]) + 3)
    (kind, text), (symbol_kind, symbol_text) = of_same_kind(name, *values)
    assert kind is symbol_kind is TypeError
    assert text == f"{name}() takes at most {count + 1} positional arguments"
    # After the parameters: `out` of arrays, `name` and `attr` of symbols.
    assert symbol_text == f"{name}() takes at most {count + 2} positional arguments"


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("sum", ("$x", 0), {"axis": 0}),
        ("Activation", ("$x",), {"act_type": "relu", "alpha": 3}),
        ("Activation", ("$x",), {"act_type": "tanhh"}),
        ("FullyConnected", ("$x", "$w"), {"no_bias": True}),
        ("Concat", ("$x", "$y"), {"dim": "x"}),
        ("Concat", ("$x",), {"data": [1]}),
    ],
)
def test_errors_of_parameters_agree(name, args, kwargs):
    (kind, text), (symbol_kind, symbol_text) = of_same_kind(name, *args, **kwargs)
    # The error of a node names it too.
    node = re.compile(rf"^({name}) '[^']*': ")
    assert kind is symbol_kind
    assert node.sub(r"\1: ", symbol_text) == text


def test_options_follow_the_parameters():
    x = sym.Variable("x")
    flat = sym.flatten(x, "flat", {"mood": "calm"})
    assert (flat.name, flat.attr("mood")) == ("flat", "calm")
    assert sym.FullyConnected(x, None, None, 5, True, True, "fc").list_outputs() == ["fc_output"]
    with pytest.raises(TypeError, match="flatten: invalid name 5: expected a str"):
        sym.flatten(x, 5)
    with pytest.raises(TypeError, match="flatten: invalid attr 'b': expected a dict"):
        sym.flatten(x, "a", "b")
    out = nd.empty((2, 6))
    assert nd.flatten(nd.ones((2, 3, 2)), out) is out


def test_inputs_of_another_kind_are_refused():
    with pytest.raises(AssertionError, match="invalid argument 'data' 3: expected an NDArray"):
        nd.relu(3)
    with pytest.raises(
        TypeError, match="relu: invalid argument 'data' of type int: expected a Symbol"
    ):
        sym.relu(3)
    with pytest.raises(AssertionError, match="invalid argument 'data' .*: expected an NDArray"):
        nd.relu(sym.Variable("x"))
    with pytest.raises(TypeError, match="relu: invalid argument 'data' of type NDArray"):
        sym.relu(nd.ones((2,)))
    with pytest.raises(TypeError, match="Concat: invalid argument '1' of type int"):
        sym.Concat(sym.Variable("x"), 2)


def test_inputs_may_be_given_in_the_same_ways():
    x, y = np.ones((2, 2), "float32"), np.full((2, 2), 3, "float32")
    calls = [
        lambda f, a, b: f.Concat(a, b, dim=1),
        lambda f, a, b: f.Concat([a, b], dim=1),
        lambda f, a, b: f.broadcast_add(lhs=a, rhs=b),
        lambda f, a, b: f.broadcast_add(a, rhs=b),
        lambda f, a, b: f.FullyConnected(a, b, num_hidden=2, no_bias=True),
        lambda f, a, b: f.FullyConnected(weight=b, data=a, num_hidden=2, no_bias=True),
        lambda f, a, b: f.sum(a, 1) + f.sum(b, axis=1, keepdims=mx.base._Null),
        lambda f, a, b: f.LeakyReLU(a, f.max(b, axis=0), act_type="prelu"),
    ]
    for call in calls:
        array = call(nd, nd.array(x), nd.array(y))
        symbol = call(sym, sym.Variable("x"), sym.Variable("y"))
        inputs = {"x": nd.array(x), "y": nd.array(y)}
        got = symbol.eval(**{k: inputs[k] for k in symbol.list_arguments()})[0]
        np.testing.assert_array_equal(got.asnumpy(), array.asnumpy())


def test_a_node_takes_name_and_attributes():
    fc = sym.FullyConnected(sym.Variable("x"), num_hidden=3, name="fc", attr={"color": "red"})
    assert fc.list_arguments() == ["x", "fc_weight", "fc_bias"]
    assert fc.attr("color") == "red" and fc.name == "fc"
    with mx.name.NameManager():
        assert sym.relu(sym.Variable("x"), name=None, out=None).name == "relu0"


def test_methods_of_symbols_take_what_those_of_arrays_take():
    def moved(x):
        return x.expand_dims(axis=1, inplace=True).squeeze(axis=1, inplace=True).squeeze()

    x = sym.Variable("x")
    assert moved(x).infer_shape(x=(2, 1, 3))[1] == [(2, 3)]
    assert moved(nd.ones((2, 1, 3))).shape == (2, 3)
    assert "axis" not in x.squeeze().tojson()
    named = {"name": "n"}
    made = [x.expand_dims(0, **named), x.squeeze(**named), x.reshape(-1, **named)]
    assert [s.name for s in (*made, x.astype("int32", **named))] == ["n"] * 4


def test_numbers_are_assigned_to_regions_by_mxnet_s_name():
    x = nd.zeros((3,)).slice_assign_scalar(value=3, begin=(0,), end=(1,), step=(1,))
    assert x.asnumpy().tolist() == [3, 0, 0]
