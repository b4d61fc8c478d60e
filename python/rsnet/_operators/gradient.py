"""Gradient rules written in Python: the operators they compose are recorded as data and built
by the core.

A rule handles :class:`GradEntry` objects: values of a graph that does not exist yet. Arithmetic on
entries and :meth:`Rule.call` append operators to the program; the graph's gradient pass or the
autograd tape then builds or runs it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._binary_methods import BinaryMethod, binary_methods
from .checks import invalid


class Source(enum.IntEnum):
    """Where an operand of a gradient comes from.

    The core's encoding, in which numbers from 0 on are results of earlier calls.
    """

    INPUT = -1
    OUTPUT = -2
    OUT_GRAD = -3


class RuleCall(NamedTuple):
    """One operator of a program; that of the core has the same name."""

    backward: bool
    op: str
    name: str
    params: list[tuple[str, str]]
    inputs: list[tuple[int, int]]


class GradEntry:
    """A value in a gradient rule: an input, output or output gradient of the node, or a result."""

    __slots__ = ("rule", "ref")

    def __init__(self, rule: Rule, ref: tuple[int, int]) -> None:
        self.rule, self.ref = rule, ref

    def __neg__(self) -> GradEntry:
        return self.rule.call("negative", (self,))[0]

    def __abs__(self) -> GradEntry:
        return self.rule.call("abs", (self,))[0]

    __hash__ = object.__hash__


def _binary(method: BinaryMethod) -> Callable[[GradEntry, Any], Any]:
    """The method of an entry, for another entry or a number."""

    def run(self: GradEntry, other: Any) -> Any:
        if isinstance(other, GradEntry):
            return self.rule.call(method.broadcast, (self, other))[0]
        if isinstance(other, (int, float, np.number, np.bool_)):
            return self.rule.call(method.scalar, (self,), {"scalar": float(other)})[0]
        return NotImplemented

    run.__name__ = run.__qualname__ = method.name
    return run


for _method in binary_methods(symbol=False):
    setattr(GradEntry, _method.name, _binary(_method))


class Rule:
    """The program of one gradient, while it is written."""

    def __init__(self) -> None:
        self.calls: list[RuleCall] = []

    def call(
        self,
        op: str,
        inputs: Sequence[GradEntry],
        params: dict[str, Any] | None = None,
        *,
        name: str = "",
        outputs: int = 1,
        backward: bool = False,
    ) -> list[GradEntry]:
        """Appends an operator; returns its first ``outputs`` results."""
        for entry in inputs:
            if not isinstance(entry, GradEntry):
                raise invalid("gradient rule", f"operand of {op}", entry, "a GradEntry")
        texts = [(k, str(v)) for k, v in (params or {}).items()]
        self.calls.append(RuleCall(backward, op, name, texts, [e.ref for e in inputs]))
        at = len(self.calls) - 1
        return [GradEntry(self, (at, i)) for i in range(outputs)]

    def run(
        self, op: str, inputs: Sequence[GradEntry], params: dict[str, Any], outputs: int, name: str
    ) -> Any:
        """Appends an operator; returns its result, or a list if there are several."""
        made = self.call(op, inputs, params, name=name, outputs=outputs)
        return made[0] if outputs == 1 else made

    def entries(self, kind: Source, n: int) -> list[GradEntry]:
        return [GradEntry(self, (kind, i)) for i in range(n)]

    def program(
        self, operator: str, results: Any, n: int
    ) -> tuple[list[RuleCall], list[tuple[int, int] | None]]:
        """The finished program with one gradient, or None for zero, per input."""
        if isinstance(results, GradEntry):
            results = [results]
        if not isinstance(results, (list, tuple)) or len(results) != n:
            raise invalid(operator, "result of the gradient rule", results, f"{n} gradients")
        for result in results:
            if result is not None and not isinstance(result, GradEntry):
                raise invalid(
                    operator, "result of the gradient rule", result, "a GradEntry or None"
                )
        return self.calls, [None if result is None else result.ref for result in results]
