"""Arrays that share memory with NumPy and others."""

import gc

import numpy as np
import pytest
from arrays import counting

import rsnet as mx
from rsnet import nd


def test_from_numpy_shares_memory():
    values = counting(2, 3)
    x = nd.from_numpy(values)
    assert not values.flags.writeable
    x[0, 0] = 9
    assert values[0, 0] == 9
    with pytest.raises(ValueError, match="expected those of a C-contiguous array"):
        nd.from_numpy(counting(2, 3).T)


def test_dlpack_shares_memory_both_ways():
    x = nd.array(counting(2, 3))
    capsule = nd.to_dlpack_for_write(x)
    y = nd.from_dlpack(capsule)
    y[0, 0] = 42
    assert x.asnumpy()[0, 0] == 42 and y.shape == (2, 3)
    with pytest.raises(AssertionError, match="consumed only once"):
        nd.from_dlpack(capsule)
    values = counting(4)
    z = nd.from_dlpack(values)
    z[1] = 7
    assert values[1] == 7
    del z, y, x, capsule
    gc.collect()
    nd.to_dlpack_for_read(nd.ones((2,)))  # a capsule nobody takes


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3)])
def test_a_consumer_gets_the_layout_that_it_reads(version):
    x = nd.array(counting(2, 3))
    capsule = x.__dlpack__(max_version=version)
    versioned = version is not None and version >= (1, 0)
    assert ("dltensor_versioned" in repr(capsule)) == versioned
    y = nd.from_dlpack(capsule)
    y[0] = 9
    assert x.asnumpy()[0].tolist() == [9, 9, 9]
    with pytest.raises(AssertionError, match="consumed only once"):
        nd.from_dlpack(capsule)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"]
)
def test_versioned_capsules_and_numpy(dtype):
    values = counting(2, 3).astype(dtype)
    x = nd.array(values, dtype=dtype)
    there = np.from_dlpack(x)
    assert there.dtype == values.dtype
    np.testing.assert_array_equal(there, values)
    back = nd.from_dlpack(x.__dlpack__(max_version=(1, 0)))
    assert back.dtype == values.dtype and np.shares_memory(np.from_dlpack(back), there)


class Capsule:
    """An object of a library that has one capsule, and remembers what it was asked."""

    def __init__(self, make, knows_versions=True):
        self.make, self.knows_versions, self.asked = make, knows_versions, []

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        self.asked.append(options)
        if "max_version" in options and not self.knows_versions:
            raise TypeError("unexpected keyword max_version")
        return self.make(**options)


def test_a_producer_is_asked_for_a_versioned_capsule_first():
    x = nd.array(counting(3))
    for knows in (True, False):
        source = Capsule(x.__dlpack__, knows)
        np.testing.assert_array_equal(nd.from_dlpack(source).asnumpy(), x.asnumpy())
        assert source.asked == [{"max_version": (1, 0)}, {}][: 1 if knows else 2]


def test_memory_that_is_read_only_stays_so():
    values = counting(4)
    values.flags.writeable = False
    x = nd.from_numpy(values)
    shared = nd.from_dlpack(x.__dlpack__(max_version=(1, 0)))
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 1
    np.testing.assert_array_equal((shared + 1).asnumpy(), values + 1)


def test_copies_are_made_on_demand_and_marked():
    x = nd.array(counting(3))
    y = nd.from_dlpack(x.__dlpack__(copy=True, max_version=(1, 0)))
    y[:] = 0
    assert x.asnumpy().tolist() == counting(3).tolist()
    with pytest.raises(BufferError, match=r"invalid dl_device '\(2, 0\)': expected \(1, 0\)"):
        x.__dlpack__(dl_device=(2, 0))


def test_a_tensor_of_a_later_version_is_refused():
    import ctypes

    x = nd.array(counting(3))
    capsule = x.__dlpack__(max_version=(1, 0))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = pointer(capsule, b"dltensor_versioned")
    ctypes.c_uint32.from_address(at).value = 2
    with pytest.raises(BufferError, match="invalid version of a DLPack tensor '?2'?: expected"):
        nd.from_dlpack(capsule)
    ctypes.c_uint32.from_address(at).value = 1
    np.testing.assert_array_equal(nd.from_dlpack(capsule).asnumpy(), counting(3))


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">i8", ">f2"])
def test_bytes_in_another_order_are_converted_or_refused(dtype):
    values = np.arange(3, dtype=dtype)
    assert nd.array(values).asnumpy().tolist() == [0, 1, 2]
    assert nd.array(values, dtype=values.dtype).asnumpy().tolist() == [0, 1, 2]
    assert nd.from_numpy(values, zero_copy=False).asnumpy().tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="order"):
        nd.from_numpy(values)


def test_read_only_memory_stays_as_it_is():
    kept = bytes(8)
    x = nd.from_numpy(np.frombuffer(kept, "float32"))
    assert not x.writable and nd.ones((2,)).writable
    for write in (
        lambda: x.__setitem__(slice(None), 1),
        lambda: x.__setitem__(0, 1),
        lambda: nd.ones((2,)).copyto(x),
        lambda: nd.relu(nd.ones((2,)), out=x),
        lambda: nd.sgd_update(x, nd.ones((2,)), lr=1.0, out=x),
        lambda: x[0:1].__setitem__(slice(None), 1),
    ):
        with pytest.raises((ValueError, mx.MXNetError), match="read-?only"):
            write()
    nd.waitall()
    assert kept == bytes(8)
