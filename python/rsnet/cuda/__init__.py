"""CUDA devices: which there are, their memory, and which operators run on the host instead.

Nothing of CUDA is loaded before a function here or an array on a ``gpu`` context asks for it. The
driver is ``libcuda.so.1``, or the library that the environment variable ``RSNET_LIBCUDA`` names.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core
from ..base import MXNetError

__all__ = ["Device", "device", "device_count", "is_available", "operators_on_host"]


@dataclass(frozen=True)
class Device:
    """A device as the driver describes it; see `device`."""

    #: Number of the device: that of ``rsnet.gpu(number)``.
    number: int
    #: The name that its maker gave it.
    name: str
    #: Bytes that are free, and bytes in all.
    free_bytes: int
    total_bytes: int
    #: Handle of the stream (``CUstream``) on which rsnet runs operations.
    stream: int
    #: The CUDA version of the driver as (major, minor).
    driver_version: tuple[int, int]


def is_available() -> bool:
    """True if there are a driver and a device that rsnet can use; never raises."""
    try:
        return device_count() > 0
    except MXNetError:
        return False


def device_count() -> int:
    """Number of CUDA devices.

    Raises
    ------
    MXNetError
        If there is no driver, or if it is too old.
    """
    return _core.cuda_device_count()


def device(number: int = 0) -> Device:
    """The device of that number, which is opened if it is not in use yet.

    Raises
    ------
    MXNetError
        If there is no driver or no such device, or in a forked child of a process that has used
        CUDA.
    """
    name, stream, free, total, version = _core.cuda_device(number)
    return Device(number, name, free, total, stream, (version // 1000, version % 1000 // 10))


def operators_on_host() -> list[str]:
    """Names of the operators that have run on the host for arrays on a device, sorted.

    They have no CUDA kernel for at least one of the calls so far. Each was warned of once, with a
    RuntimeWarning. Their results are those of a kernel; what they cost more is the copies of their
    arrays to the host and back.
    """
    return _core.cuda_operators_on_host()
