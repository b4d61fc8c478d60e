"""Resources that operators ask for: temporary space and random numbers (``ctx.requested``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import MXNetError


class TempSpace:
    """Scratch memory for the time of one call."""

    kind = "temp_space"

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx

    def get_space(self, shape: Any, dtype: Any = "float32", stream: Any = None) -> Any:
        """An uninitialised NDArray; it may be used until the operator's function returns."""
        from . import ndarray as nd

        return nd.empty(shape, ctx=self._ctx, dtype=dtype)


class Random:
    """Random numbers of one call: they depend on the seed and the order of pushes, not on
    threads.
    """

    kind = "random"

    def __init__(self, seed: int, stream: int, ctx: Any) -> None:
        self._ctx = ctx
        self._generator = np.random.Generator(np.random.Philox(key=[seed, stream]))

    def get_random(self, stream: Any = None) -> Random:
        """The generator: ``uniform`` and ``normal``."""
        return self

    def uniform(
        self, low: float = 0.0, high: float = 1.0, shape: Any = (1,), dtype: Any = "float32"
    ) -> Any:
        """An NDArray of numbers evenly distributed in [low, high)."""
        return self._array(self._generator.uniform(low, high, shape), dtype)

    def normal(
        self, loc: float = 0.0, scale: float = 1.0, shape: Any = (1,), dtype: Any = "float32"
    ) -> Any:
        """An NDArray of normally distributed numbers."""
        return self._array(self._generator.normal(loc, scale, shape), dtype)

    def _array(self, values: Any, dtype: Any) -> Any:
        from . import ndarray as nd

        return nd.array(values, ctx=self._ctx, dtype=dtype)


class Requested(list):
    """The resources in declared order; also by kind: ``ctx.requested["random"]``."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            for resource in self:
                if resource.kind == key:
                    return resource
            raise MXNetError(f"the operator did not request '{key}'")
        return super().__getitem__(key)


def make(kinds: list[str], seed: int, stream: int, ctx: Any) -> Requested:
    """One resource per kind."""
    return Requested(
        Random(seed, stream, ctx) if kind == "random" else TempSpace(ctx) for kind in kinds
    )
