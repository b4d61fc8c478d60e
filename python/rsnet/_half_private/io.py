"""What `mxnet.io` and `mxnet.io.utils` have for iterators that programs write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..io.in_memory import named_arrays
from ..ndarray import NDArray, array, take

__all__ = ["_getdata_by_idx", "_has_instance", "_init_data"]


def _init_data(data: Any, allow_empty: bool, default_name: str) -> list[tuple[str, NDArray]]:
    """Arrays by name, sorted, from an array, a list or a dict of arrays; NumPy's become float32.

    Raises
    ------
    ValueError
        There are none, unless `allow_empty`.
    TypeError
        `data` is something else.
    """
    return named_arrays(data, default_name, allow_empty)


def _has_instance(data: Sequence[tuple[str, Any]], dtype: Any) -> bool:
    """Is one of the named arrays of this class?"""
    return any(isinstance(values, dtype) for _, values in data)


def _getdata_by_idx(
    data: Sequence[tuple[str, NDArray]], idx: np.ndarray
) -> list[tuple[str, NDArray]]:
    """The rows `idx` of named arrays, in this order."""
    rows = array(idx, dtype="int64")
    return [(name, take(values, rows)) for name, values in data]
