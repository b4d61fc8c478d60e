"""Tolerances that tests choose by dtype, or give themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compare import default_atols, default_rtols

__all__ = ["effective_dtype", "get_atol", "get_etol", "get_rtol", "get_tolerance", "get_tols"]


def effective_dtype(dat: Any) -> np.dtype:
    """The dtype of an array, of a NumPy array or a number."""
    return np.dtype(dat.dtype) if hasattr(dat, "dtype") else np.asarray(dat).dtype


def get_tolerance(dat: Any, tol: float | None, default_tol: dict[np.dtype, float]) -> float:
    """`tol`, or what the table says for the dtype of `dat` if it is None."""
    return default_tol[effective_dtype(dat)] if tol is None else tol


def get_tols(x: Any, y: Any, rtol: float | None, atol: float | None) -> tuple[float, float]:
    """Relative and absolute tolerance: those given, or the looser one of two arrays."""

    def looser(tol: float | None, table: dict[np.dtype, float]) -> float:
        return max(get_tolerance(x, tol, table), get_tolerance(y, tol, table))

    return looser(rtol, default_rtols()), looser(atol, default_atols())


def get_rtol(rtol: float | None = None, dtype: Any = "float64") -> float:
    """`rtol`, or the relative tolerance of a dtype if it is None."""
    return default_rtols()[np.dtype(dtype)] if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = "float64") -> float:
    """`atol`, or the absolute tolerance of a dtype if it is None."""
    return default_atols()[np.dtype(dtype)] if atol is None else atol


def get_etol(etol: float | None = None) -> float:
    """`etol`, the part of elements that may differ; none if it is None."""
    return 0 if etol is None else etol
