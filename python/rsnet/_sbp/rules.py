"""Rules that give signatures: ready-made functions, and those that are written as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..base import MXNetError, shown
from .context import SbpContext
from .signature import OpArg


def elementwise(ctx: SbpContext) -> None:
    """``S(i)`` of all inputs gives ``S(i)`` of all outputs, for each axis i of the first input."""
    for axis in range(ctx.LogicalTensorDesc4InputArgNameAndIndex(*ctx.inputs()[0]).NumAxes()):
        ctx.NewBuilder().Split(ctx.inputs(), axis).Split(ctx.outputs(), axis).Build()


def linear(ctx: SbpContext) -> None:
    """As :func:`elementwise`, and partial sums of all inputs give partial sums of the outputs."""
    elementwise(ctx)
    ctx.NewBuilder().PartialSum(ctx.inputs()).PartialSum(ctx.outputs()).Build()


#: OneFlow's name.
SplitForEachAxis = elementwise


# Rules as text ----------------------------------------------------------------------------------

_LOOP = re.compile(r"(.*?)\s+for\s+(\w+)\s+in\s+axes\(\s*(\w+)\s*\)\s*\Z")
_TERM = re.compile(r"(\w+)(?:\[(\d+)\])?:(?:(B)|(P)|S\((?:(\d+)|([A-Za-z_]\w*)([+-]\d+)?)\))\Z")


class _Term(NamedTuple):
    """``x:S(i+1)`` or ``x[2]:B``."""

    name: str
    #: The only array that is meant, None for all of the argument.
    index: int | None  # type: ignore[assignment]
    kind: str
    #: The axis, or what is added to the variable of the loop.
    number: int
    variable: str | None


class _TextRule(NamedTuple):
    """``in:S(i) out:S(i) for i in axes(in)``."""

    terms: tuple[_Term, ...]
    loop_over: str | None

    def __call__(self, ctx: SbpContext) -> None:
        axes = range(1)
        if self.loop_over is not None:
            axes = range(ctx.LogicalTensorDesc4InputArgNameAndIndex(self.loop_over).NumAxes())
        for i in axes:
            builder = ctx.NewBuilder()
            for name, index, kind, number, variable in self.terms:
                arrays = [a for a in (*ctx.inputs(), *ctx.outputs()) if a.name == name]
                args = arrays if index is None else [OpArg(name, index)]
                if kind == "S":
                    builder.Split(args, number + (i if variable else 0))
                else:
                    (builder.Broadcast if kind == "B" else builder.PartialSum)(args)
            builder.Build()


def parse_rule(op: str, text: str, inputs: Sequence[str], outputs: Sequence[str]) -> _TextRule:
    def wrong(why: str) -> MXNetError:
        return MXNetError(f"{op}: invalid sbp rule {shown(text)}: {why}")

    loop = _LOOP.match(text.strip())
    body, variable, over = loop.groups() if loop else (text, None, None)
    if over is not None and over not in inputs:
        raise wrong(
            f"axes({shown(over)[1:-1]}): expected an input, one of {', '.join(inputs) or 'none'}"
        )
    terms = []
    for word in body.split():
        found = _TERM.match(word)
        if found is None:
            raise wrong(f"{shown(word)}: expected name:B, name:P, name:S(0) or name:S(i)")
        name, index, b, p, axis, used, plus = found.groups()
        if name not in (*inputs, *outputs):
            raise wrong(f"{shown(name)}: expected one of {', '.join((*inputs, *outputs))}")
        if used not in (None, variable):
            raise wrong(f"'{used}': expected the variable of a loop, 'for {used} in axes(...)'")
        number = int(axis or plus or 0)
        terms.append(
            _Term(name, None if index is None else int(index), b or p or "S", number, used)
        )
    missing = [name for name in (*inputs, *outputs) if name not in {t.name for t in terms}]
    if missing:
        raise wrong(f"expected a distribution of argument '{missing[0]}'")
    return _TextRule(tuple(terms), over)
