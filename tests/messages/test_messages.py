"""Messages name the place, the argument, what was given and what was expected."""

import pytest
from recovery import says, still_working  # noqa: F401

import rsnet as mx

Error = mx.base.MXNetError


ones = mx.nd.ones
DENSE = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc1")
SUM = mx.sym.elemwise_add(mx.sym.Variable("a"), mx.sym.Variable("b"), name="sum")
# What is called, and the beginning of the message: place, argument, got, expected.
MESSAGES = {
    "shape": (
        lambda: mx.nd.FullyConnected(ones((2, 4)), ones((10, 3)), ones((10,)), num_hidden=10),
        "FullyConnected: argument 'weight' has shape (10, 3), expected (10, 4)",
    ),
    "shape in a graph": (
        lambda: DENSE.infer_shape(data=(2, 4), fc1_weight=(10, 3)),
        "FullyConnected 'fc1': argument 'weight' has shape (10, 3), expected (10, 4)",
    ),
    "shapes that do not broadcast": (
        lambda: ones((2, 3)) + ones((2, 4)),
        "broadcast_add: operands could not be broadcast together with shapes (2, 3) (2, 4): "
        "expected equal extents, or 1, on each axis",
    ),
    "axes": (
        lambda: mx.nd.Convolution(
            ones((1, 4, 4)), ones((1, 1, 3, 3)), kernel=(3, 3), num_filter=1, no_bias=True
        ),
        "Convolution: argument 'data' has shape (1, 4, 4), expected 4 axes",
    ),
    "extent": (
        lambda: mx.nd.SliceChannel(ones((2, 3)), num_outputs=2),
        "SliceChannel: argument 'data' has shape (2, 3), expected an extent of axis 1 that 2 "
        "divides",
    ),
    "dtype": (
        lambda: ones((2,)) + ones((2,), dtype="float64"),
        "broadcast_add: Incompatible attr at 1-th input: expected float32, got float64",
    ),
    "dtype in a graph": (
        lambda: SUM.infer_type(a="float32", b="float64"),
        "elemwise_add 'sum': Incompatible attr at 1-th input: expected float32, got float64",
    ),
    "enum": (
        lambda: mx.nd.Activation(ones((2,)), act_type="rely"),
        "Activation: invalid act_type 'rely': expected one of: relu, sigmoid, softrelu, softsign, "
        "tanh",
    ),
    "enum in a graph": (
        lambda: mx.sym.Activation(mx.sym.Variable("x"), act_type="rely", name="act0"),
        "Activation 'act0': invalid act_type 'rely': expected one of: ",
    ),
    "range": (
        lambda: mx.nd.Dropout(ones((2,)), p=1.5),
        "Dropout: invalid p '1.5': expected 0 to 1 (Probability",
    ),
    "text for a tuple": (
        lambda: mx.nd.sum(ones((2,)), axis="two"),
        "sum: invalid axis 'two': expected Shape or None",
    ),
    "number beyond single precision": (
        lambda: mx.nd.smooth_l1(ones((2,)), scalar=1e39),
        "smooth_l1: invalid scalar '1e39': expected float within its range",
    ),
    "missing parameter": (
        lambda: mx.nd.FullyConnected(ones((2, 4)), ones((10, 4)), no_bias=True),
        "FullyConnected: missing parameter 'num_hidden': expected int",
    ),
    "missing parameter in a graph": (
        lambda: mx.sym.FullyConnected(mx.sym.Variable("x"), name="fc7"),
        "FullyConnected 'fc7': missing parameter 'num_hidden': expected int",
    ),
    "unknown parameter": (
        lambda: mx.nd.Activation(ones((2,)), act_type="relu", alpha=3),
        "Activation: unknown parameter 'alpha': expected one of: act_type",
    ),
    "missing argument": (
        lambda: mx.nd.FullyConnected(ones((2, 4)), num_hidden=10),
        "FullyConnected: invalid number of inputs 1: expected 3: data, weight, bias",
    ),
    "unknown argument in a graph": (
        lambda: mx.sym.FullyConnected(
            mx.sym.Variable("data"), wait=mx.sym.Variable("w"), num_hidden=2, name="fc"
        ),
        "FullyConnected 'fc': unknown argument 'wait': expected one of: data, weight, bias",
    ),
    "argument twice": (
        lambda: mx.nd.FullyConnected(ones((2,)), data=ones((2,)), num_hidden=3),
        "FullyConnected() got multiple values for argument 'data'",
    ),
    "parameter twice": (
        lambda: mx.nd.sum(ones((2,)), 0, axis=0),
        "sum() got multiple values for argument 'axis'",
    ),
    "arrays twice": (
        lambda: mx.nd.add_n(ones((2,)), data=[ones((2,))]),
        "add_n() got multiple values for argument 'data'",
    ),
    "out of another shape": (
        lambda: mx.nd.relu(ones((2, 3)), out=ones((3, 2))),
        "relu: output 0 has shape (3, 2), expected (2, 3)",
    ),
    "out of another dtype": (
        lambda: mx.nd.relu(ones((2, 3)), out=ones((2, 3), dtype="float64")),
        "relu: output 0 has dtype float64, expected float32",
    ),
    "bound array of another shape": (
        lambda: SUM.bind(mx.cpu(), {"a": ones((2,)), "b": ones((3,))}),
        "elemwise_add 'sum': Incompatible attr at 1-th input: expected (2,), got (3,)",
    ),
    "gradient of another shape": (
        lambda: SUM.bind(mx.cpu(), {"a": ones((2,)), "b": ones((2,))}, {"a": ones((5,))}),
        "argument 'gradient of a' has shape (5,), expected (2,)",
    ),
    "bound name missing": (
        lambda: SUM.bind(mx.cpu(), {"a": ones((2,))}),
        "invalid args ['a']: expected a key 'b'",
    ),
    "too few arrays": (
        lambda: SUM.bind(mx.cpu(), [ones((2,))]),
        "invalid length of args 1: expected 2: ['a', 'b']",
    ),
    "duplicate names": (
        lambda: (mx.sym.Variable("x") + mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(2,)),
        "duplicate argument name 'x': expected every name once, got ['x', 'x']",
    ),
    "no function": (
        lambda: SUM.bind(
            mx.cpu(), {"a": ones((2,)), "b": ones((2,))}
        ).set_monitor_callback(3),
        "invalid callback 3: expected a function of name and array",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MESSAGES)
def test_messages_name_place_argument_got_and_expected(what):
    call, message = MESSAGES[what]
    with pytest.raises((Error, TypeError, ValueError)) as error:
        call()
    assert str(error.value).startswith(message), str(error.value)
