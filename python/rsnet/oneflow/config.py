"""Settings before the first job."""

from __future__ import annotations

from ..base import MXNetError, MXNotImplementedError
from .sysconfig import WITHOUT_LIBRARIES


def load_library(path: str) -> bool:
    """Would load a library of operators.

    Raises
    ------
    rsnet.error.NotImplementedError
        Always: see :mod:`rsnet.oneflow.sysconfig`.
    """
    raise MXNotImplementedError(f"load_library('{path}'): {WITHOUT_LIBRARIES}")


load_library_now = load_library


def gpu_device_num(n: int) -> None:
    """How many GPUs a job may use; accepted for any number, jobs run where their arrays are."""
    if not isinstance(n, int) or n < 0:
        raise MXNetError(f"gpu_device_num: {n!r} is not a number of devices")


def cpu_device_num(n: int) -> None:
    """How many CPU devices a job may use."""
    gpu_device_num(n)
