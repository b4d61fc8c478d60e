"""Arrays on a device: made, copied in every direction, saved, indexed; and their memory."""

import copy
import gc
import pickle

import numpy as np
import pytest
from conftest import until

import rsnet as mx
from rsnet import nd

DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool")


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_survive_the_way_to_a_device_and_back(gpu, dtype):
    values = np.random.uniform(0, 100, (5, 7)).astype(dtype)
    array = nd.array(values, ctx=gpu, dtype=dtype)
    assert array.context == gpu and array.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(array.asnumpy(), values)


def test_arrays_are_made_on_a_device(gpu):
    np.testing.assert_array_equal(nd.zeros((3, 4), ctx=gpu).asnumpy(), np.zeros((3, 4)))
    np.testing.assert_array_equal(nd.full((3,), 2.5, ctx=gpu).asnumpy(), np.full(3, 2.5))
    np.testing.assert_array_equal(nd.arange(6, ctx=gpu).asnumpy(), np.arange(6))
    with gpu:
        assert nd.ones((2,)).context == gpu
        assert mx.random.uniform(shape=(4,)).context == gpu


@pytest.mark.parametrize("source", [mx.cpu(0), mx.gpu(0), mx.gpu(1)], ids=str)
@pytest.mark.parametrize("target", [mx.cpu(0), mx.gpu(0), mx.gpu(1)], ids=str)
def test_copies_between_all_devices(source, target):
    values = np.arange(1000, dtype="float32")
    array = nd.array(values, ctx=source)
    for made in (array.copyto(target), array.as_in_context(target)):
        assert made.context == target
        np.testing.assert_array_equal(made.asnumpy(), values)
    other = nd.zeros((1000,), ctx=target, dtype="float64")
    array.copyto(other)  # converts the dtype on the way
    np.testing.assert_array_equal(other.asnumpy(), values)


def test_a_copy_waits_for_its_source_and_later_writes_wait_for_it(gpu):
    array = nd.zeros((512, 512), ctx=gpu)
    taken = []
    for i in range(20):
        array[:] = i
        taken.append(array.as_in_context(mx.cpu()))
    for i, one in enumerate(taken):
        assert (one.asnumpy() == i).all()


def test_parts_are_read_and_written(gpu):
    values = np.arange(60, dtype="float32").reshape(5, 12)
    array = nd.array(values, ctx=gpu)
    np.testing.assert_array_equal(array[1:4].asnumpy(), values[1:4])
    np.testing.assert_array_equal(array[2].asnumpy(), values[2])
    np.testing.assert_array_equal(array[1:4, 2:9:3].asnumpy(), values[1:4, 2:9:3])
    array[1:4, 2:9:3] = 7
    values[1:4, 2:9:3] = 7
    array[0] = nd.arange(12, ctx=gpu)
    values[0] = np.arange(12)
    array[3] = np.ones(12)
    values[3] = 1
    np.testing.assert_array_equal(array.asnumpy(), values)
    rows = nd.array([4, 0], ctx=gpu, dtype="int32")
    np.testing.assert_array_equal(array[rows].asnumpy(), values[[4, 0]])


def test_views_share_the_memory_of_a_device(gpu):
    array = nd.zeros((4, 6), ctx=gpu)
    array.reshape((6, 4))[1] = 3
    array[2:] += 1
    expected = np.zeros((4, 6), "float32")
    expected.reshape(6, 4)[1] = 3
    expected[2:] += 1
    np.testing.assert_array_equal(array.asnumpy(), expected)


def test_saved_from_a_device_and_loaded(gpu, tmp_path):
    array = nd.array(np.random.normal(size=(3, 5)), ctx=gpu)
    nd.save(tmp_path / "a.params", {"a": array})
    loaded = nd.load(str(tmp_path / "a.params"))["a"]
    assert loaded.context == mx.cpu()
    np.testing.assert_array_equal(loaded.asnumpy(), array.asnumpy())
    for again in (pickle.loads(pickle.dumps(array)), copy.deepcopy(array)):
        np.testing.assert_array_equal(again.asnumpy(), array.asnumpy())


def test_empty_arrays_and_scalars(gpu):
    empty = nd.zeros((3, 4), ctx=gpu)[1:1]
    assert empty.asnumpy().shape == (0, 4)
    assert empty.as_in_context(mx.cpu()).shape == (0, 4)
    assert nd.array([2.5], ctx=gpu).asscalar() == 2.5
    assert bool(nd.array([1], ctx=gpu))


def test_numpy_cannot_share_the_memory_of_a_device(gpu):
    array = nd.zeros((3,), ctx=gpu)
    with pytest.raises(
        ValueError, match=r"invalid device of the array 'gpu\(0\)': expected one on"
    ):
        mx._core.numpy_over(array)


def test_memory_is_reused_counted_and_returned(gpu, emulated):
    nd.waitall()
    gc.collect()
    used = mx._core.memory_usage(gpu)[0]
    array = nd.zeros((1000, 1000), ctx=gpu)
    array.wait_to_read()
    now = mx._core.memory_usage(gpu)
    assert 4_000_000 <= now[0] - used <= 5_000_000 and now[2] >= now[0]
    del array
    given_back = lambda: mx._core.memory_usage(gpu)[0] <= used  # noqa: E731
    until(given_back)
    live = emulated.live_bytes()
    for _ in range(5):
        nd.zeros((1000, 1000), ctx=gpu).wait_to_read()
        until(given_back)  # so that the next one finds the block free
    assert emulated.live_bytes() == live  # from the pool
    gpu.empty_cache()
    assert mx._core.memory_usage(gpu)[1] == 0
    assert emulated.live_bytes() < live
    free, total = mx.context.gpu_memory_info(0)
    assert 0 < free <= total


def test_nothing_is_left_behind(emulated):
    device = mx.gpu(1)
    for _ in range(3):
        x = nd.ones((100, 100), ctx=device)
        y = nd.dot(x, x) + 1
        assert (y.asnumpy() == 101).all()
        del x, y
    nd.waitall()
    gc.collect()
    until(lambda: device.empty_cache() or mx._core.memory_usage(device)[:2] == (0, 0))
