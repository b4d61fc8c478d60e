"""Random numbers: seeds, and the samplers of ``nd.random`` under their older import path."""

from __future__ import annotations

import operator

from . import _core
from .context import Context, as_context
from .ndarray.random import *  # noqa: F403
from .ndarray.random import __all__ as _samplers

__all__ = ["seed", *_samplers]


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Seeds the random numbers of all devices, or of one.

    Parameters
    ----------
    seed_state : int
    ctx : Context or 'all'
        With a context only that device is seeded. The device's number has no influence: two
        devices with the same seed generate the same numbers.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet import nd
    >>> mx.random.seed(3)
    >>> first = nd.random.uniform(shape=(2,)).asnumpy()
    >>> mx.random.seed(3)
    >>> bool((nd.random.uniform(shape=(2,)).asnumpy() == first).all())
    True
    """
    try:
        seed_state = operator.index(seed_state)
    except TypeError:
        raise ValueError(f"invalid seed_state {seed_state!r}: expected an int") from None
    _core.seed(seed_state, None if ctx == "all" else as_context(ctx))
