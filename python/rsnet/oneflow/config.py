"""Settings before the first job."""

from __future__ import annotations

import ctypes
import os

from ..base import MXNetError

_libraries: dict[str, ctypes.CDLL] = {}


def load_library(path: str) -> bool:
    """Loads a library of operators at once; a second time the same file does nothing."""
    path = os.path.abspath(path)
    if path in _libraries:
        return True
    try:
        _libraries[path] = ctypes.CDLL(path)
    except OSError as error:
        raise MXNetError(f"load_library: {path}: {error}") from None
    return True


load_library_now = load_library


def gpu_device_num(n: int) -> None:
    """How many GPUs a job may use; accepted for any number, jobs run where their arrays are."""
    if not isinstance(n, int) or n < 0:
        raise MXNetError(f"gpu_device_num: {n!r} is not a number of devices")


def cpu_device_num(n: int) -> None:
    """How many CPU devices a job may use."""
    gpu_device_num(n)
