"""The array class and the functions that make arrays, under the name of their old module."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import NDArray, waitall
from ..base import mx_real_t  # noqa: F401  programs take it from here
from . import _arithmetic, _creation, _io
from ._arithmetic import *  # noqa: F403
from ._creation import *  # noqa: F403
from ._io import *  # noqa: F403

# Numbers of dtypes, storage types and requests in files and in calls of MXNet's C interface.
_DTYPE_NP_TO_MX: dict[Any, int] = {
    None: -1,
    np.float32: 0,
    np.float64: 1,
    np.float16: 2,
    np.uint8: 3,
    np.int32: 4,
    np.int8: 5,
    np.int64: 6,
    np.bool_: 7,
}
_DTYPE_MX_TO_NP: dict[int, Any] = {flag: dtype for dtype, flag in _DTYPE_NP_TO_MX.items()}
_STORAGE_TYPE_STR_TO_ID: dict[str, int] = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2}
_STORAGE_TYPE_ID_TO_STR: dict[int, str] = {
    flag: name for name, flag in _STORAGE_TYPE_STR_TO_ID.items()
}
_GRAD_REQ_MAP: dict[str, int] = {"null": 0, "write": 1, "add": 3}

__all__ = [
    "NDArray",
    "waitall",
    *_arithmetic.__all__,
    *_creation.__all__,
    *_io.__all__,
]
