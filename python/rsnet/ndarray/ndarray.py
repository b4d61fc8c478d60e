"""The array class and the functions that make arrays, under the name of their old module."""

from __future__ import annotations

from .._core import NDArray, waitall
from . import _arithmetic, _creation, _io
from ._arithmetic import *  # noqa: F403
from ._creation import *  # noqa: F403
from ._io import *  # noqa: F403

__all__ = [
    "NDArray",
    "waitall",
    *_arithmetic.__all__,
    *_creation.__all__,
    *_io.__all__,
]
