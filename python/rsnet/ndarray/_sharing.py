"""Memory of arrays shown to other libraries: DLPack and ``__cuda_array_interface__``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core import NDArray
from ..context import Context, cpu

__all__ = ["cuda_array_interface", "dlpack", "dlpack_device"]


def dlpack(
    self: NDArray,
    *,
    stream: Any = None,
    max_version: Any = None,
    dl_device: Any = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule of the array's memory: ``np.from_dlpack(x)`` shares it.

    Parameters
    ----------
    stream : int, optional
        For an array on a device: the consumer's stream (None and 1 are the legacy default stream,
        2 is that of the thread), which waits for the writes of the array. -1: the calling thread
        waits for them.
    max_version : (int, int), optional
        The latest version that the consumer reads: from (1, 0) on the capsule is a versioned one,
        which says whether the memory may be written.
    dl_device : (int, int), optional
        Where the memory has to be: that of the array, or (1, 0), the host.
    copy : bool, optional
        True: a copy of the array. False: never a copy.

    Raises
    ------
    BufferError
        If the memory would have to be copied to be where `dl_device` says, and `copy` is False, or
        if it would have to be copied to a device.
    """
    own = dlpack_device(self)
    wanted = own if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if wanted not in (own, (1, 0)) or (wanted != own and copy is False):
        raise BufferError(
            f"invalid dl_device '{wanted}': expected {own}, where the array is"
            f"{', as copy is False' if copy is False else ', or (1, 0), the host'}"
        )
    copies = bool(copy) or wanted != own
    shared = self.copyto(cpu()) if wanted != own else self.copy() if copies else self
    flags = None
    if max_version is not None and tuple(max_version) >= _core.DLPACK_VERSION:
        flags = _core.DLPACK_COPIED if copies else 0
    follower = None
    if wanted[0] == own[0] == Context.devstr2type["gpu"] and stream != -1:
        follower = int(stream or 1)
    # Who gets a versioned capsule may write, so pending reads come first.
    return _core.to_dlpack(shared, flags is not None, flags, follower)


def dlpack_device(self: NDArray) -> tuple[int, int]:
    """DLPack's numbers of the device: (1, 0) is host memory."""
    return self.context.device_typeid, self.context.device_id


def cuda_array_interface(self: NDArray) -> dict[str, Any]:
    """Address, shape and stream of an array on a device, for CuPy and its like."""
    found = _core.cuda_address(self)
    if found is None:
        raise AttributeError(
            f"an NDArray on {self.context} has no attribute '__cuda_array_interface__'"
        )
    address, stream = found
    return {
        "version": 3,
        "shape": self.shape,
        "typestr": np.dtype(self.dtype).str,
        "data": (address, False),
        "strides": None,
        "stream": stream,
    }
