"""Storing results as requested, and resources that operators ask for (``ctx.requested``)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ndarray as nd
from ..base import MXNetError
from .requests import REQ_NUMBERS


class ResourceRequest(str, enum.Enum):
    """A resource that an operator asks for: scratch memory or random numbers."""

    temp_space = "temp_space"
    random = "random"


def assign(dst: Any, req: str | int, src: Any) -> None:
    """Stores ``src`` in ``dst`` as the request says: null nothing, write and inplace overwrite, add
    adds.

    Raises
    ------
    rsnet.MXNetError
        For any other request.
    """
    if req == "write" or req == "inplace":
        dst[:] = src
    elif req == "null":
        return
    elif req == "add":
        dst[:] += _addend(dst, src)
    elif isinstance(req, int) and 0 <= req < 4:
        assign(dst, tuple(REQ_NUMBERS)[req], src)
    else:
        raise MXNetError(f"assign: invalid req {req!r}: expected one of: {', '.join(REQ_NUMBERS)}")


def _addend(dst: Any, src: Any) -> Any:
    """``src`` in a form that can be added to ``dst``."""
    if isinstance(src, (list, tuple)):
        src = np.asarray(src)
    if not getattr(src, "shape", ()):
        return src.item() if isinstance(src, (np.generic, np.ndarray)) else src
    if isinstance(dst, np.ndarray):
        return np.asarray(src).astype(dst.dtype, copy=False)
    if isinstance(src, nd.NDArray) or not isinstance(dst, nd.NDArray):
        return src if src.dtype == dst.dtype else src.astype(dst.dtype)
    return nd.array(src, dtype=dst.dtype)


class TempSpace:
    """Scratch memory for the time of one call."""

    kind = "temp_space"

    def __init__(self, declared: int, ctx: Any, keep: Callable[[Any], None]) -> None:
        self._ctx, self._keep = ctx, keep
        self._declared = self._left = declared

    def get_space(self, shape: Any, dtype: Any = "float32", stream: Any = None) -> Any:
        """An uninitialised NDArray; it may be used until the operator's function returns.

        Raises
        ------
        rsnet.MXNetError
            All arrays of the call together take more bytes than the operator declared, if it
            did, or the call has ended.
        """
        space = nd.empty(shape, ctx=self._ctx, dtype=dtype)
        self._keep(space)
        if self._declared:
            wanted = space.size * np.dtype(space.dtype).itemsize
            if wanted > self._left:
                raise MXNetError(
                    f"get_space({shape!r}, {np.dtype(dtype).name!r}): invalid size of {wanted} "
                    f"bytes: expected at most {self._left}, which are left of the "
                    f"{self._declared} that the operator declared as its temp_space"
                )
            self._left -= wanted
        return space


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
        return nd.array(values, ctx=self._ctx, dtype=dtype)


class Requested(list[Any]):
    """The resources in declared order; also by kind: ``ctx.requested["random"]``."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            for resource in self:
                if resource.kind == key:
                    return resource
            kinds = ", ".join(resource.kind for resource in self) or "none"
            raise MXNetError(f"invalid resource '{key}': expected one that is requested ({kinds})")
        return super().__getitem__(key)


def make(
    requests: list[tuple[str, int]], seed: int, stream: int, ctx: Any, keep: Callable[[Any], None]
) -> Requested:
    """One resource per request, a kind and the bytes declared (0: none were); ``keep`` is called
    with the arrays of temporary space.
    """
    return Requested(
        Random(seed, stream, ctx) if kind == "random" else TempSpace(declared, ctx, keep)
        for kind, declared in requests
    )
