"""User operators that OneFlow's tutorials take for granted, under their argument names.

In ``nd`` and ``sym`` they are hidden (``_user_multiply`` ...): MXNet has operators of the same
names.
"""

from __future__ import annotations

from typing import Any

from .user_op import Attr, define, grad, kernel


def _same(arg: str) -> Any:
    return lambda ctx: ctx.out("out").like(ctx.inp(arg))


def _define(name: str, inputs: str, infer: Any, **attrs: Attr) -> None:
    define(
        name, inputs=inputs, outputs="out", attrs=attrs, infer=infer, _registered="_user_" + name
    )


_define("multiply", "x, y", _same("x"))


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


_define("add_n", "in*2+", _same("in"))


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
    shape, size = list(ctx.attr("shape")), 1
    for extent in ctx.inp("in").shape:
        size *= extent
    if -1 in shape:
        rest = 1
        for extent in shape:
            rest *= extent if extent != -1 else 1
        shape[shape.index(-1)] = size // max(rest, 1)
    ctx.out("out").shape = tuple(shape)
    ctx.out("out").dtype = ctx.inp("in").dtype


_define("reshape", "in", _infer_reshape, shape=Attr("shape"))


@kernel("reshape")
def _(ctx: Any) -> None:
    ctx.out("out")[:] = ctx.inp("in").reshape(ctx.out("out").shape)


@grad("reshape")
def _(ctx: Any) -> None:
    ctx.bind("in", lambda: ctx.op("reshape_like", ctx.grad("out"), ctx.inp("in")))
