"""User operators that OneFlow's tutorials take for granted, under their argument names.

In ``nd`` and ``sym`` they are hidden (``_user_multiply`` ...): MXNet has operators of the same
names.
"""

from __future__ import annotations

import math
from typing import Any

from .base import MXNetError
from .user_op import Attr, define, grad, kernel


def _same(arg: str) -> Any:
    return lambda ctx: ctx.out("out").like(ctx.inp(arg))


def _define(name: str, inputs: str, infer: Any, types: Any = None, /, **attrs: Attr) -> None:
    define(
        name, inputs=inputs, outputs="out", attrs=attrs, infer=infer, infer_dtype=types,
        _registered="_user_" + name,
    )  # fmt: skip


def _all_alike(*args: str) -> Any:
    """Inference of operators whose inputs all have one shape, that of the output."""

    def infer(ctx: Any) -> None:
        found = [(a, i, ctx.inp(a, i).shape) for a in args for i in range(ctx.count(a))]
        for arg, i, shape in found:
            if shape != found[0][2]:
                raise MXNetError(
                    f"{ctx.conf.definition.name}: input '{arg}' {i} has shape {shape}, "
                    f"expected {found[0][2]}, that of '{args[0]}'"
                )
        ctx.out("out").shape = found[0][2]

    return infer


_define("multiply", "x, y", _all_alike("x", "y"), _same("x"))


@kernel("multiply")
def _(ctx: Any) -> None:
    ctx.out("out")[:] = ctx.inp("x") * ctx.inp("y")


@grad("multiply")
def _(ctx: Any) -> None:
    ctx.bind("x", lambda: ctx.grad("out") * ctx.inp("y"))
    ctx.bind("y", lambda: ctx.grad("out") * ctx.inp("x"))


_define(
    "scalar_mul",
    "in",
    _same("in"),
    has_int_operand=Attr(bool, False),
    has_float_operand=Attr(bool, False),
    int_operand=Attr("int64", 0),
    float_operand=Attr("double", 0.0),
)


def _scalar(ctx: Any) -> Any:
    return ctx.attr("int_operand" if ctx.attr("has_int_operand") else "float_operand")


@kernel("scalar_mul")
def _(ctx: Any) -> None:
    ctx.out("out")[:] = ctx.inp("in") * _scalar(ctx)


@grad("scalar_mul")
def _(ctx: Any) -> None:
    ctx.bind("in", lambda: ctx.grad("out") * _scalar(ctx))


def _infer_cast(ctx: Any) -> None:
    ctx.out("out").shape = ctx.inp("in").shape
    ctx.out("out").dtype = ctx.attr("dtype")


_define("cast", "in", _infer_cast, dtype=Attr("data_type"))


@kernel("cast")
def _(ctx: Any) -> None:
    ctx.out("out")[:] = ctx.inp("in").astype(ctx.attr("dtype"))


@grad("cast")
def _(ctx: Any) -> None:
    ctx.bind("in", lambda: ctx.op("_backward_cast_like", ctx.grad("out"), ctx.inp("in")))


_define("add_n", "in*2+", _all_alike("in"), _same("in"))


@kernel("add_n")
def _(ctx: Any) -> None:
    total = ctx.inp("in", 0) + ctx.inp("in", 1)
    for i in range(2, ctx.count("in")):
        total = total + ctx.inp("in", i)
    ctx.out("out")[:] = total


@grad("add_n")
def _(ctx: Any) -> None:
    for i in range(ctx._conf.counts["in"]):
        ctx.bind(("in", i), lambda: ctx.grad("out"))


def _infer_reshape(ctx: Any) -> None:
    given, wanted = ctx.inp("in").shape, list(ctx.attr("shape"))
    size, rest = math.prod(given), math.prod(d for d in wanted if d != -1)
    if wanted.count(-1) == 1 and rest:
        wanted[wanted.index(-1)] = size // rest
    if any(d < 0 for d in wanted) or math.prod(wanted) != size:
        raise MXNetError(f"reshape: {given} has {size} elements, the shape is {ctx.attr('shape')}")
    ctx.out("out").shape = tuple(wanted)


_define("reshape", "in", _infer_reshape, _same("in"), shape=Attr("shape"))


@kernel("reshape")
def _(ctx: Any) -> None:
    ctx.out("out")[:] = ctx.inp("in").reshape(ctx.out("out").shape)


@grad("reshape")
def _(ctx: Any) -> None:
    ctx.bind("in", lambda: ctx.op("reshape_like", ctx.grad("out"), ctx.inp("in")))
