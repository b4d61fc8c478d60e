"""Shapes and dtypes between Python's conventions and the core's.

In programs of old, 0 is an unknown extent and `()` an unknown rank; with np_shape -1 is an unknown
extent, None an unknown rank, and 0 and `()` are real. The core has -1 and None.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from ..util import is_np_shape


def to_core_shape(shape: Any) -> tuple[int, ...] | None:
    """A shape as the program writes it, for the core."""
    if shape is None:
        return None
    if is_np_shape():
        return tuple(index(d) for d in shape)
    return tuple(index(d) or -1 for d in shape) or None


def from_core_shape(shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """A shape of the core, for the program."""
    if is_np_shape():
        return shape
    return () if shape is None else tuple(max(d, 0) for d in shape)


def dtype_or_none(name: str | None) -> Any:
    """The NumPy type of this name."""
    return None if name is None else np.dtype(name).type
