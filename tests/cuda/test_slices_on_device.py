"""Slices by number and by coordinates on a device: many for one place, and coordinates outside."""

import numpy as np
import pytest
from conftest import assert_near, first_of
from processes import printed

import rsnet as mx
from rsnet import nd


@pytest.fixture(autouse=True)
def nothing_runs_on_the_host():
    before = mx.cuda.operators_on_host()
    yield
    assert mx.cuda.operators_on_host() == before


def compare(call, *arrays):
    """Results and gradients of a call on the device are those on the host."""
    found = []
    for ctx in (mx.gpu(0), mx.cpu(0)):
        inputs = [nd.array(a, ctx, a.dtype) for a in arrays]
        inputs[0].attach_grad("add")
        inputs[0].grad[:] = 0.5
        with mx.autograd.record():
            y = call(*inputs)
        y.backward(nd.arange(y.size, ctx=ctx).reshape(y.shape))
        found.append([y.asnumpy(), inputs[0].grad.asnumpy()])
    for got, want in zip(*found, strict=True):
        assert_near(got, want)


@pytest.mark.parametrize("count", [1, 7, 3000])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_rows_that_are_taken_often(count, dtype):
    random = np.random.RandomState(count)
    rows = random.standard_normal((5, 3)).astype("float32")
    numbers = random.randint(-2, 7, count).astype(dtype)
    compare(lambda x, i: nd.take(x, i), rows, numbers)
    compare(lambda x, i: nd.take(x, i, mode="wrap"), rows, numbers)
    compare(lambda x, i: nd.take(x, i, axis=1), rows, numbers)
    compare(lambda w, i: nd.Embedding(i, w, input_dim=5, output_dim=3), rows, numbers)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_numbers_that_must_lie_inside(dtype):
    rows = np.random.RandomState(1).standard_normal((5, 3)).astype("float32")
    numbers = np.random.RandomState(2).randint(-5, 5, (4, 30)).astype(dtype)
    compare(lambda x, i: nd.take(x, i, mode="raise"), rows, numbers)
    compare(lambda x, i: nd.take(x, i.clip(-3, 2), axis=1, mode="raise"), rows, numbers)


@pytest.mark.parametrize(
    "dtype", first_of("int8", "float16", "float64", "int32", "int64", "uint8", "bool")
)
def test_slices_of_every_dtype(dtype):
    rows, numbers = np.arange(15).reshape(5, 3).astype(dtype), np.array([4, 0, 2], "int32")
    for mode in ("clip", "wrap", "raise"):
        got, want = (
            nd.take(nd.array(rows, ctx, dtype), nd.array(numbers, ctx, "int32"), mode=mode)
            for ctx in (mx.gpu(0), mx.cpu(0))
        )
        np.testing.assert_array_equal(got.asnumpy(), want.asnumpy())


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_coordinates(axes):
    random = np.random.RandomState(axes)
    x = random.standard_normal((4, 3, 2)).astype("float32")
    at = np.stack([random.randint(-x.shape[a], x.shape[a], 50) for a in range(axes)])
    at = at.astype("int32")
    compare(lambda x, i: nd.gather_nd(x, i), x, at)
    parts = random.standard_normal((50, *x.shape[axes:])).astype("float32")
    compare(lambda p, i: nd.scatter_nd(p, i, shape=(4, 3, 2)), parts, at)
    compare(lambda p, i: nd._internal._backward_gather_nd(p, i, shape=(4, 3, 2)), parts, at)


def test_the_last_of_several_is_set():
    x, at = np.arange(6, dtype="float32"), np.array([[1, 3, 1, 1]])
    put = np.array([7, 8, 9, 5], "float32")
    compare(lambda x, p, i: nd._internal._scatter_set_nd(x, p, i, shape=(6,)), x, put, at)


@pytest.mark.process
@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("gather_nd", "nd.gather_nd(x, nd.array([[0, 3]], ctx=mx.gpu(0)))"),
        ("take", "nd.take(x, nd.array([0, 3], ctx=mx.gpu(0)), mode='raise')"),
        ("take", "nd.take(x, nd.array([0, -4], ctx=mx.gpu(0)), mode='raise')"),
    ],
)
def test_a_place_outside_is_a_fault(op, call):
    text = printed(f"""
        import rsnet as mx
        from rsnet import nd

        x = nd.ones((3, 2), ctx=mx.gpu(0))
        y = {call}
        try:
            print(y.asnumpy())
        except mx.MXNetError as error:
            print(str(error).splitlines()[0])
        try:
            nd.waitall()
        except mx.MXNetError:
            pass
    """)
    assert text.startswith(f"{op}: gpu(0): ") and "CUDA error 719" in text
