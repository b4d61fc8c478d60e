"""Distributions of tensors, and signatures: one for every input and output of an operator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base import MXNetError


class Sbp(NamedTuple):
    """One distribution: ``S(axis)``, ``B`` or ``P``."""

    kind: str
    axis: int | None = None

    def __repr__(self) -> str:
        return self.kind if self.axis is None else f"{self.kind}({self.axis})"


B, P = Sbp("B"), Sbp("P")


def S(axis: int) -> Sbp:
    """Split along an axis."""
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise MXNetError(f"invalid axis {axis!r} of S: expected an integer")
    return Sbp("S", int(axis))


class OpArg(NamedTuple):
    """Array ``index`` of an argument of an operator."""

    name: str
    index: int = 0  # type: ignore[assignment]


class TensorDesc(NamedTuple):
    """Shape and dtype of the whole (logical) tensor."""

    shape: tuple[int, ...]
    dtype: str

    def NumAxes(self) -> int:
        """Number of axes."""
        return len(self.shape)


class Signature:
    """The distribution of every input and output, by :class:`OpArg`."""

    __slots__ = ("of",)

    def __init__(self, of: dict[OpArg, Sbp]) -> None:
        self.of = of

    def __getitem__(self, arg: str | tuple[str, int]) -> Sbp:
        return self.of[OpArg(arg) if isinstance(arg, str) else OpArg(*arg)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self.of == other.of

    def __hash__(self) -> int:
        return hash(frozenset(self.of.items()))

    def __repr__(self) -> str:
        alone = {arg.name for arg in self.of} - {arg.name for arg in self.of if arg.index}
        names = (arg.name if arg.name in alone else f"{arg.name}[{arg.index}]" for arg in self.of)
        return " ".join(f"{name}:{sbp}" for name, sbp in zip(names, self.of.values(), strict=True))
