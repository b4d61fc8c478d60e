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
    with pytest.raises(ValueError):
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
