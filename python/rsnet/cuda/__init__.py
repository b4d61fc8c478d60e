"""CUDA devices: which there are, their memory, and which operators run on the host instead.

Nothing of CUDA is loaded before a function here or an array on a ``gpu`` context asks for it. The
driver is ``libcuda.so.1``, or the library that the environment variable ``RSNET_LIBCUDA`` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..base import MXNetError, limit_bytes
from ..context import Context

__all__ = [
    "Device",
    "MemoryUsage",
    "as_array",
    "device",
    "device_count",
    "is_available",
    "memory_usage",
    "operators_on_host",
    "set_memory_limit",
]

if TYPE_CHECKING:
    from ..ndarray import NDArray


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


@dataclass(frozen=True)
class MemoryUsage:
    """Bytes of a device's memory in rsnet's pool; see `memory_usage`."""

    #: In arrays, plans and temporary space.
    used_bytes: int
    #: Kept for reuse.
    cached_bytes: int
    #: Most that was ever used at once.
    peak_bytes: int
    #: Most that may be used and cached; None without a limit.
    limit_bytes: int | None


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


def memory_usage(number: int = 0) -> MemoryUsage:
    """What rsnet has taken of a device's memory.

    Raises
    ------
    MXNetError
        If there is no driver or no such device.
    """
    ctx = Context("gpu", number)
    return MemoryUsage(*_core.memory_usage(ctx), _core.memory_limit(ctx))


def set_memory_limit(limit: int | str | None, number: int = 0) -> None:
    """Sets how much of a device's memory rsnet may take, for used and cached bytes together.

    An allocation that would go beyond it gives back what is cached; if that is not enough, it is a
    `MemoryError`. Memory that is in use already stays.

    Parameters
    ----------
    limit : int or str, optional
        Bytes, or a text such as ``"2GB"`` or ``"512MiB"``; None is no limit.
    number : int
        The device, that of ``rsnet.gpu(number)``.

    Raises
    ------
    MXNetError
        If there is no driver or no such device.
    """
    _core.set_memory_limit(Context("gpu", number), limit_bytes(limit))


def as_array(source: Any) -> NDArray:
    """An array over the memory of an array of another library on a CUDA device.

    Whatever has the attribute ``__cuda_array_interface__`` is accepted: arrays of CuPy and Numba,
    tensors of PyTorch. Both share the memory. Operations on the result come after the work that is
    issued on the stream which the interface names; the other library has to wait for operations of
    rsnet in turn. The owner is kept until the device has done what uses the memory.

    Parameters
    ----------
    source : object with ``__cuda_array_interface__``
        Row-major, without a mask. Memory that is read-only is copied.

    Raises
    ------
    TypeError
        If there is no interface, or if the dtype is none of rsnet's.
    ValueError
        If elements are masked or not row-major, or if the memory is not that of a device.
    """
    found = getattr(source, "__cuda_array_interface__", None)
    if found is None:
        raise TypeError(
            f"invalid source '{type(source).__name__}': "
            "expected an object with __cuda_array_interface__"
        )
    shape, dtype = tuple(found["shape"]), np.dtype(found["typestr"])
    if found.get("mask") is not None:
        raise ValueError("invalid mask of the source: expected none")
    strides, step = found.get("strides"), dtype.itemsize
    for extent, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if extent > 1 and stride != step:
            raise ValueError(f"invalid strides '{strides}': expected those of row-major elements")
        step *= extent
    address, read_only = found["data"]
    if prod(shape) == 0:
        raise ValueError(f"invalid shape '{shape}' of the source: expected at least one element")
    array = _core.cuda_wrap(source, address, shape, dtype, found.get("stream"))
    return array.copy() if read_only else array


def operators_on_host() -> list[str]:
    """Names of the operators that have run on the host for arrays on a device, sorted.

    They have no CUDA kernel for at least one of the calls so far. Each was warned of once, with a
    RuntimeWarning. Their results are those of a kernel; what they cost more is the copies of their
    arrays to the host and back.
    """
    return _core.cuda_operators_on_host()
