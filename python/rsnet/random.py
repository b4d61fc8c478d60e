"""Random numbers: seeds, and the samplers of ``nd.random`` under their old place."""

from __future__ import annotations

import operator

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
    try:
        seed_state = operator.index(seed_state)
    except TypeError:
        raise ValueError(f"seed_state must be an int, got {seed_state!r}") from None
    _core.seed(seed_state, None if ctx == "all" else ctx)
