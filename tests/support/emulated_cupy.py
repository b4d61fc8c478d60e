"""As much of CuPy as rsnet and the tests use, on the emulated driver: take it for ``cupy``.

Copies and fills are issued on the current stream and not waited for; arithmetic waits for that
stream alone. So what is computed on a stream that nobody orders gives wrong results, as on a
device.
"""

import ctypes
import os
from types import SimpleNamespace

import numpy as np


class _State:
    """What is current, a stack of devices and one of streams; and what copies to devices read."""

    devices = []
    streams = []
    sources = []


def _call(name, *arguments):
    library = ctypes.CDLL(os.environ["RSNET_LIBCUDA"])
    status = getattr(library, name)(*arguments)
    assert status == 0, (name, status)


class Device:
    def __init__(self, number):
        self.id = number

    def __enter__(self):
        context = ctypes.c_void_p()
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.id)
        _call("cuCtxSetCurrent", context)
        _call("cuDevicePrimaryCtxRelease_v2", self.id)
        _State.devices.append(self)
        return self

    def __exit__(self, *_):
        _State.devices.pop()


class Stream:
    @classmethod
    def from_external(cls, other):
        made = cls()
        version, made.ptr = other.__cuda_stream__()
        assert version == 0 and made.ptr > 0
        return made

    def __enter__(self):
        _State.streams.append(self)
        return self

    def __exit__(self, *_):
        _State.streams.pop()


def get_current_stream():
    return _State.streams[-1]


def _stream():
    return ctypes.c_void_p(get_current_stream().ptr)


class UnownedMemory:
    def __init__(self, address, size, owner, device_id=-1):
        assert address > 0 and size > 0
        self.ptr, self.size, self.owner, self.device_id = address, size, owner, device_id


class _Owned:
    def __init__(self, size):
        self.ptr, self.size = ctypes.c_uint64(), size
        _call("cuMemAlloc_v2", ctypes.byref(self.ptr), ctypes.c_size_t(max(size, 1)))
        self.ptr, self.device_id = self.ptr.value, _State.devices[-1].id


class MemoryPointer:
    def __init__(self, memory, offset):
        self.mem, self.ptr = memory, memory.ptr + offset


class ndarray:
    def __init__(self, shape, dtype=float, memptr=None):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.size = int(np.prod(self.shape))
        self.nbytes = self.size * self.dtype.itemsize
        self.data = memptr or MemoryPointer(_Owned(self.nbytes), 0)

    @property
    def device(self):
        return SimpleNamespace(id=self.data.mem.device_id)

    def get(self):
        values = np.empty(self.shape, self.dtype)
        at, event = values.ctypes.data_as(ctypes.c_void_p), ctypes.c_void_p()
        length = ctypes.c_size_t(self.nbytes)
        _call("cuMemcpyDtoHAsync_v2", at, ctypes.c_uint64(self.data.ptr), length, _stream())
        _call("cuEventCreate", ctypes.byref(event), 0)
        _call("cuEventRecord", event, _stream())
        _call("cuEventSynchronize", event)
        _call("cuEventDestroy_v2", event)
        return values

    def fill(self, byte):
        """Every byte, not every element."""
        length, value = ctypes.c_size_t(self.nbytes), ctypes.c_ubyte(byte)
        _call("cuMemsetD8Async", ctypes.c_uint64(self.data.ptr), value, length, _stream())

    def astype(self, dtype):
        return array(self.get().astype(dtype))

    def __getitem__(self, key):
        assert key == slice(None)
        return self

    def __setitem__(self, key, value):
        assert key == slice(None)
        if not isinstance(value, ndarray):
            value = array(np.full(self.shape, value, self.dtype))
        assert value.shape == self.shape and value.dtype == self.dtype
        to, of = ctypes.c_uint64(self.data.ptr), ctypes.c_uint64(value.data.ptr)
        _call("cuMemcpyDtoDAsync_v2", to, of, ctypes.c_size_t(self.nbytes), _stream())

    def __mul__(self, other):
        return array(self.get() * (other.get() if isinstance(other, ndarray) else other))

    __rmul__ = __mul__

    def __iadd__(self, other):
        self[:] = array(self.get() + (other.get() if isinstance(other, ndarray) else other))
        return self


def array(values):
    made = ndarray(values.shape, values.dtype)
    values = np.ascontiguousarray(values)
    length, at = ctypes.c_size_t(made.nbytes), values.ctypes.data_as(ctypes.c_void_p)
    _call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(made.data.ptr), at, length, _stream())
    # A driver reads pageable memory before it returns; the emulated one reads it later, perhaps
    # after the last reference to `made`.
    _State.sources.append(values)
    return made


def empty(shape, dtype=float):
    return ndarray(shape, dtype)


cuda = SimpleNamespace(
    Device=Device,
    MemoryPointer=MemoryPointer,
    Stream=Stream,
    UnownedMemory=UnownedMemory,
    get_current_stream=get_current_stream,
)
