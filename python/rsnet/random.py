"""Random numbers: seeds, and the samplers of ``nd.random`` under their old place."""

from __future__ import annotations

from . import _core
from .ndarray.random import *  # noqa: F403
from .ndarray.random import __all__ as _samplers

__all__ = ["seed", *_samplers]


def seed(seed_state, ctx="all"):
    """Seeds the random numbers of all devices, or of one.

    Parameters
    ----------
    seed_state : int
    ctx : Context or 'all'
        With a context only that device is seeded, and its number does not enter: two devices seeded
        alike give the same numbers.
    """
    if not isinstance(seed_state, int):
        raise ValueError("seed_state must be int")
    _core.seed(seed_state, None if ctx == "all" else ctx)
