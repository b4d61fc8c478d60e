"""The cost of changing a distribution, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .signature import Sbp


class Boxing(NamedTuple):
    """How a distribution becomes another, and what that costs.

    ``same`` and ``disjoint`` are functions of the numbers of ranks before and after: the bytes sent
    by all ranks together, in units of the bytes of the whole tensor, where both use the same ranks
    or where no rank is in both.
    """

    collective: str
    same: Callable[[int, int], float]
    disjoint: Callable[[int, int], float]


def _nothing(before: int, after: int) -> float:
    return 0.0


def _once(before: int, after: int) -> float:
    return 1.0


def _before(before: int, after: int) -> float:
    return float(before)


def _after(before: int, after: int) -> float:
    return float(after)


#: By the kinds before and after; "S S" keeps the axis, "S S'" changes it.
BOXING: dict[str, Boxing] = {
    "S S": Boxing("none", _nothing, _once),
    "S S'": Boxing("all-to-all", lambda p, q: (p - 1) / p, _once),
    "S B": Boxing("all-gather", lambda p, q: float(p - 1), _after),
    "S P": Boxing("zero-fill", _nothing, _once),
    "B S": Boxing("slice", _nothing, _once),
    "B B": Boxing("broadcast", _nothing, _after),
    "B P": Boxing("keep-on-one-rank", _nothing, _once),
    "P S": Boxing("reduce-scatter", lambda p, q: float(p - 1), _before),
    "P B": Boxing("all-reduce", lambda p, q: 2.0 * (p - 1), lambda p, q: float(p + q - 1)),
    "P P": Boxing("none", _nothing, _before),
}


def boxing(before: Sbp, after: Sbp) -> Boxing:
    """The row of ``BOXING`` for a change of distribution.

    >>> import rsnet as mx
    >>> row = mx.sbp_rules.boxing(mx.sbp.P, mx.sbp.B)
    >>> row.collective, row.same(4, 4)
    ('all-reduce', 6.0)
    """
    moved = "'" if before.kind == after.kind == "S" and before.axis != after.axis else ""
    return BOXING[f"{before.kind} {after.kind}{moved}"]
