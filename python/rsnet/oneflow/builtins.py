"""User operators that OneFlow's tutorials take for granted, under their argument names.

They are defined when this module is imported: with ``rsnet.oneflow``, or when one of them is first
used by name. In ``nd`` and ``sym`` they are hidden (``_user_multiply`` ...): MXNet has operators of
the same names.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from .._operators import registry
from .._operators.checks import invalid
from .._operators.user.arguments import Attr
from .._operators.user.registration import define, grad, kernel

Function = Callable[[Any], Any]


def _operator(
    name: str, inputs: str, infer: Function, value: Function, gradient: Function,
    types: Function | None = None, /, **attrs: Attr,
) -> None:  # fmt: skip
    """Defines one, unless the program has defined an operator of that name."""
    if name in registry.user_operators:
        return
    define(
        name, inputs=inputs, outputs="out", attrs=attrs, infer=infer, infer_dtype=types,
        _registered="_user_" + name,
    )  # fmt: skip

    @kernel(name)
    def _(ctx: Any) -> None:
        ctx.out("out")[:] = value(ctx)

    grad(name)(gradient)


def _same(arg: str) -> Function:
    return lambda ctx: ctx.out("out").like(ctx.inp(arg))


def _bound(value: Function) -> Function:
    """The gradient function that binds ``value(ctx)`` to the input."""
    return lambda ctx: ctx.bind("in", lambda: value(ctx))


def _all_alike(*args: str) -> Function:
    """Inference of operators whose inputs all have one shape, that of the output."""

    def infer(ctx: Any) -> None:
        found = [(a, i, ctx.inp(a, i).shape) for a in args for i in range(ctx.count(a))]
        for arg, i, shape in found:
            if shape != found[0][2]:
                expected = f"{found[0][2]}, that of '{args[0]}'"
                raise invalid(ctx.conf.definition.name, f"shape of '{arg}' {i}", shape, expected)
        ctx.out("out").shape = found[0][2]

    return infer


def _multiply_gradient(ctx: Any) -> None:
    ctx.bind("x", lambda: ctx.grad("out") * ctx.inp("y"))
    ctx.bind("y", lambda: ctx.grad("out") * ctx.inp("x"))


def _scalar(ctx: Any) -> Any:
    return ctx.attr("int_operand" if ctx.attr("has_int_operand") else "float_operand")


def _infer_cast(ctx: Any) -> None:
    ctx.out("out").shape = ctx.inp("in").shape
    ctx.out("out").dtype = ctx.attr("dtype")


def _sum_gradient(ctx: Any) -> None:
    for i in range(ctx.count("in")):
        ctx.bind(("in", i), lambda: ctx.grad("out"))


def _infer_reshape(ctx: Any) -> None:
    given, wanted = ctx.inp("in").shape, list(ctx.attr("shape"))
    size, rest = math.prod(given), math.prod(d for d in wanted if d != -1)
    if wanted.count(-1) == 1 and rest:
        wanted[wanted.index(-1)] = size // rest
    if any(d < 0 for d in wanted) or math.prod(wanted) != size:
        raise invalid("reshape", "shape", ctx.attr("shape"), f"one of {size} elements, as {given}")
    ctx.out("out").shape = tuple(wanted)


# Name, inputs, inference of shapes, value, gradient and inference of types.
_operator(
    "multiply", "x, y", _all_alike("x", "y"),
    lambda ctx: ctx.inp("x") * ctx.inp("y"),
    _multiply_gradient, _same("x"),
)  # fmt: skip
_operator(
    "scalar_mul", "in", _same("in"),
    lambda ctx: ctx.inp("in") * _scalar(ctx),
    _bound(lambda ctx: ctx.grad("out") * _scalar(ctx)),
    has_int_operand=Attr(bool, False), has_float_operand=Attr(bool, False),
    int_operand=Attr("int64", 0), float_operand=Attr("double", 0.0),
)  # fmt: skip
_operator(
    "cast", "in", _infer_cast,
    lambda ctx: ctx.inp("in").astype(ctx.attr("dtype")),
    _bound(lambda ctx: ctx.op("_backward_cast_like", ctx.grad("out"), ctx.inp("in"))),
    dtype=Attr("data_type"),
)  # fmt: skip
_operator(
    "add_n", "in*2+", _all_alike("in"),
    lambda ctx: functools.reduce(operator.add, [ctx.inp("in", i) for i in range(ctx.count("in"))]),
    _sum_gradient, _same("in"),
)  # fmt: skip
_operator(
    "reshape", "in", _infer_reshape,
    lambda ctx: ctx.inp("in").reshape(ctx.out("out").shape),
    _bound(lambda ctx: ctx.op("reshape_like", ctx.grad("out"), ctx.inp("in"))),
    _same("in"), shape=Attr("shape"),
)  # fmt: skip
