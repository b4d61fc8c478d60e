"""Memory of a device shared with other libraries: DLPack and `__cuda_array_interface__`."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd


class Foreign:
    """An array of another library: memory from the driver, and a stream of its own."""

    def __init__(self, emulated, size, dtype="float32"):
        self.library, self.size, self.dtype = emulated.library, size, np.dtype(dtype)
        self.address, self.stream = ctypes.c_uint64(), ctypes.c_void_p()
        self.changes = {}
        mx.cuda.device(0)
        context = ctypes.c_void_p()
        assert not self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        assert not self.library.cuCtxSetCurrent(context)
        bytes_ = ctypes.c_size_t(size * self.dtype.itemsize)
        assert not self.library.cuMemAlloc_v2(ctypes.byref(self.address), bytes_)
        assert not self.library.cuStreamCreate(ctypes.byref(self.stream), 1)

    def fill(self, byte):
        bytes_ = ctypes.c_size_t(self.size * self.dtype.itemsize)
        set_ = self.library.cuMemsetD8Async
        assert not set_(self.address, ctypes.c_ubyte(byte), bytes_, self.stream)

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3,
            "shape": (self.size,),
            "typestr": self.dtype.str,
            "data": (self.address.value, False),
            "strides": None,
            "stream": self.stream.value,
            **self.changes,
        }


def test_an_array_shows_its_memory(gpu):
    x = nd.arange(6, ctx=gpu).reshape((2, 3)) + 1
    found = x.__cuda_array_interface__
    assert found["shape"] == (2, 3) and found["typestr"] == "<f4" and found["version"] == 3
    assert found["stream"] == mx.cuda.device(0).stream and not found["data"][1]
    assert not hasattr(nd.ones((2,)), "__cuda_array_interface__")


def test_the_same_memory_by_two_arrays(gpu):
    x = nd.arange(6, ctx=gpu).reshape((2, 3))
    y = mx.cuda.as_array(x)
    assert y.context == gpu and y.shape == (2, 3)
    y += 1
    y.wait_to_read()
    np.testing.assert_array_equal(x.asnumpy(), np.arange(1, 7).reshape(2, 3))
    shared = nd.from_dlpack(x)
    assert shared.context == gpu
    shared *= 2
    shared.wait_to_read()
    np.testing.assert_array_equal(x.asnumpy(), 2 * np.arange(1, 7).reshape(2, 3))
    assert x.__dlpack_device__() == (2, 0)
    del x
    gc.collect()
    np.testing.assert_array_equal(y.asnumpy(), 2 * np.arange(1, 7).reshape(2, 3))


def test_work_of_the_owner_comes_first(gpu, emulated):
    owner = Foreign(emulated, 40_000, "int32")
    emulated.library.emulated_hold(owner.stream, 1)
    owner.fill(1)
    x = mx.cuda.as_array(owner)
    y = x + 1
    emulated.library.emulated_hold(owner.stream, 0)
    np.testing.assert_array_equal(y.asnumpy(), np.full(40_000, 0x01010102))
    np.testing.assert_array_equal(x.asnumpy(), np.full(40_000, 0x01010101))


def test_the_owner_is_kept_until_the_device_has_used_the_memory(gpu, emulated):
    owner = Foreign(emulated, 8)
    owner.fill(0)
    kept = []
    weakref.finalize(owner, kept.append, True)
    x = mx.cuda.as_array(owner)
    nd.waitall()
    del owner
    with emulated.held():
        y = x + 1
        del x
        gc.collect()
        assert not kept
    np.testing.assert_array_equal(y.asnumpy(), np.ones(8))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"mask": 1}, ValueError, "invalid mask of the source: expected none"),
        ({"strides": (8,)}, ValueError, "expected those of row-major elements"),
        ({"shape": (0,)}, ValueError, "expected at least one element"),
        ({"typestr": "<c8"}, TypeError, "complex64"),
        ({"data": (4096, False)}, mx.MXNetError, "expected memory of a CUDA device"),
        ({"data": (4097, False)}, ValueError, "a multiple of 4 bytes"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_memory_that_cannot_be_shared(emulated, changes, error, text):
    owner = Foreign(emulated, 8)
    owner.changes = changes
    with pytest.raises((error, ValueError), match=text):
        mx.cuda.as_array(owner)
    with pytest.raises(TypeError, match="expected an object with __cuda_array_interface__"):
        mx.cuda.as_array(np.ones(3))


def test_memory_that_is_read_only_is_copied(emulated):
    owner = Foreign(emulated, 8)
    owner.fill(0)
    owner.changes = {"data": (owner.address.value, True)}
    x = mx.cuda.as_array(owner)
    x += 1
    np.testing.assert_array_equal(x.asnumpy(), np.ones(8))
    owner.changes = {}
    np.testing.assert_array_equal(mx.cuda.as_array(owner).asnumpy(), np.zeros(8))


def test_a_pushed_function_gets_the_stream_and_is_waited_for(gpu, emulated):
    owner = Foreign(emulated, 8, "int32")
    owner.fill(0)
    x = mx.cuda.as_array(owner)
    x.wait_to_read()
    seen, var = [], mx.engine.new_variable()
    context = ctypes.c_void_p()
    assert not emulated.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)

    def fill(rc):
        seen.append(rc.stream)
        emulated.library.cuCtxSetCurrent(context)
        set_ = emulated.library.cuMemsetD8Async
        bytes_, stream = ctypes.c_size_t(32), ctypes.c_void_p(rc.stream)
        assert not set_(owner.address, ctypes.c_ubyte(2), bytes_, stream)

    mx.engine.push_sync(fill, gpu, mutate_vars=[var])
    mx.engine.wait_for_var(var)
    assert seen == [mx.cuda.device(0).stream]
    np.testing.assert_array_equal(x.asnumpy(), np.full(8, 0x02020202))


def test_a_consumers_stream_waits_and_the_host_does_not(gpu, emulated):
    x = nd.zeros((40_000,), ctx=gpu)
    nd.waitall()
    consumer = Foreign(emulated, 40_000, "int32")
    with emulated.held():
        y = x + 1
        capsule = y.__dlpack__(stream=consumer.stream.value, max_version=(1, 0))
        consumer.fill(1)
        assert emulated.library.emulated_queued(consumer.stream) > 0
    shared = nd.from_dlpack(capsule)
    np.testing.assert_array_equal(shared.asnumpy(), np.ones(40_000))


def test_memory_of_a_device_is_copied_to_the_host_on_demand(gpu):
    x = nd.arange(6, ctx=gpu)
    capsule = x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    there = nd.from_dlpack(capsule)
    assert there.context == mx.cpu()
    np.testing.assert_array_equal(there.asnumpy(), np.arange(6))
    with pytest.raises(BufferError, match="as copy is False"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
