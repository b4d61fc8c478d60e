"""Conditions of kernels: what they name is there, and equal values match whatever their form."""

import numpy as np
import pytest

import rsnet as mx
import rsnet.oneflow as flow
from rsnet import MXNetError, nd, op

_count = iter(range(1000))


def defined(**attrs):
    name = f"t_where{next(_count)}"
    op.define(name, inputs="in", attrs=attrs, infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
    return name


def kernel(name, where, value=1, **how):
    op.kernel(name, where=where, **how)(
        lambda ctx: ctx.out("out").__setitem__(slice(None), value)
    )  # fmt: skip


def fill(name, value):
    return op.kernel(name, priority=-1)(
        lambda ctx: ctx.out("out").__setitem__(slice(None), value)
    )  # fmt: skip


@pytest.mark.parametrize("negated", [False, True])
def test_unknown_attributes_are_refused_at_registration(negated):
    name = defined(mode=op.Attr(str, "a"), level=op.Attr(int, 0))
    where = op.attr("typo") == "a"
    with pytest.raises(
        MXNetError, match=f"{name}: .*unknown attribute 'typo': expected one of: mode, level"
    ):
        kernel(name, ~where if negated else where)
    assert op.kernels(name) == []


def test_waiting_kernels_are_checked_when_the_operator_is_defined():
    kernel("t_where_late", op.attr("typo") == 1)
    with pytest.raises(MXNetError, match="t_where_late: .*unknown attribute 'typo': expected none"):
        op.define("t_where_late", inputs="in", infer=lambda ctx: None)


EQUAL = [
    ("bool", True, [True, 1, np.bool_(True), 1.0]),
    ("bool", False, [0, np.False_]),
    ("int32", 1, [1, True, 1.0, np.True_, np.int64(1), np.float32(1)]),
    ("int64", -7, [-7, np.int8(-7)]),
    ("float", 2.0, [2, 2.0, np.float16(2), np.int32(2)]),
    ("double", 0.1, [0.1, np.float64(0.1)]),
    ("string", "fast", ["fast", np.str_("fast")]),
    ("shape", (1, 2), [(1, 2), [1, 2], (np.int64(1), 2)]),
    ("shape", (3,), [[3]]),
    ("data_type", "float32", ["float32", np.float32, np.dtype("float32"), flow.float32, "f4"]),
    ("list_int32", (1,), [(1,), [1], np.array([1])]),
    ("list_float", (1.0, 0.5), [(1, 0.5), [1.0, 0.5]]),
    ("list_float", (1e-7, 1e20, 1.5), [(1e-7, 1e20, 1.5)]),
    ("list_data_type", ("int8", "float32"), [["int8", np.float32]]),
    ("list_shape", ((1,), (2, 3)), [[[1], [2, 3]]]),
    ("list_string", ("a", "b, c"), [["a", "b, c"]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "other"), [(k, v, other) for k, v, others in EQUAL for other in others]
)
def test_equal_values_match(kind, value, other):
    name = defined(a=op.Attr(kind))
    fill(name, 0)
    kernel(name, op.attr("a") == other, 1)
    kernel(name, op.attr("a") != other, 2)
    x = nd.zeros((1,))
    built = mx.user_op_builder("b").Op(name).Input("in", [x]).Output("out").Attr("a", value)
    assert built.Build().InferAndTryRun().SoleOutputBlob().asscalar() == 1


def test_numbers_have_an_order():
    name = defined(n=op.Attr(int, 0), x=op.Attr(float, 0.0), mode=op.Attr(str, ""))
    kernel(name, (op.attr("n") < 2.5) & (op.attr("x") >= 1))
    assert getattr(nd, name)(nd.zeros((1,)), n=2, x=1.0).asscalar() == 1
    with pytest.raises(MXNetError, match="no kernel matches"):
        getattr(nd, name)(nd.zeros((1,)), n=3, x=1.0)


@pytest.mark.parametrize(
    ("kind", "where", "says"),
    [
        ("bool", lambda a: a == "yes", "attribute 'a' 'yes': expected bool"),
        ("int32", lambda a: a == "x", "attribute 'a' 'x': expected int32"),
        ("shape", lambda a: a == 5, "attribute 'a' 5: expected shape"),
        ("data_type", lambda a: a.is_in("int8", "int7"), "'int7': expected data_type"),
        ("shape", lambda a: a < (1, 2), "only numbers and strings have an order"),
        ("int32", lambda a: a < "x", "only numbers and strings have an order"),
    ],
)
def test_values_of_another_kind_are_refused(kind, where, says):
    with pytest.raises(MXNetError, match=says):
        kernel(defined(a=op.Attr(kind)), where(op.attr("a")))


def test_devices():
    name = defined()
    kernel(name, op.device(mx.cpu()))
    assert getattr(nd, name)(nd.zeros((1,))).asscalar() == 1
    assert op.kernels(name)[0][1] == "device == cpu"
    for wrong in ("tpu", 3, None):
        with pytest.raises(
            MXNetError, match=f"device: unknown device type '{wrong}': .*expected one of: cpu"
        ):
            op.device(wrong)


def test_types_and_ranks_that_are_none():
    with pytest.raises(MXNetError, match="dtype of 'in' 'float31': expected a type"):
        op.dtype("in") == "float31"  # noqa: B015
    with pytest.raises(MXNetError, match="ndim of 'in' 'x': expected a number"):
        op.ndim("in") < "x"  # noqa: B015
