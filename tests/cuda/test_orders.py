"""Sorting networks and running sums on a device, against the host."""

import numpy as np
import pytest
from conftest import assert_near

import rsnet as mx
from rsnet import nd

DTYPES = ["float16", "float32", "float64", "int32", "int64"]


@pytest.fixture(autouse=True)
def nothing_runs_on_the_host():
    before = mx.cuda.operators_on_host()
    yield
    assert mx.cuda.operators_on_host() == before


def numbers(shape, dtype):
    """Few different numbers, so that many are equal; in floats NaN and infinities among them."""
    values = np.random.RandomState(int(np.prod(shape))).randint(-9, 9, shape).astype(dtype)
    if values.dtype.kind == "f" and values.size > 3:
        places = values.reshape(-1)
        places[:: max(1, values.size // 3)] = np.nan
        places[1 :: max(1, values.size // 2)] = np.inf
    return values


def compare(gpu, call, *arrays):
    """Results on the device are those on the host, to the bit."""
    got = call(*[nd.array(a, gpu, a.dtype) for a in arrays])
    want = call(*[nd.array(a, mx.cpu(), a.dtype) for a in arrays])
    for one, other in zip(*[r if isinstance(r, list) else [r] for r in (got, want)], strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
        assert one.dtype == other.dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ascend", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1,), 0), ((7,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 9, 4), 1), ((4, 6), None), ((2, 33), -1)],
)
def test_orders(gpu, dtype, ascend, shape, axis):
    x = numbers(shape, dtype)
    compare(gpu, lambda x: nd.sort(x, axis=axis, is_ascend=ascend), x)
    compare(gpu, lambda x: nd.argsort(x, axis=axis, is_ascend=ascend, dtype="int32"), x)


@pytest.mark.parametrize("length", [2047, 2048, 2049, 9000])
def test_lines_longer_than_a_block_sorts(gpu, length):
    x = numbers((2, length), "float32")
    compare(gpu, lambda x: nd.argsort(x, dtype="int64"), x)
    compare(gpu, lambda x: nd.sort(x, axis=0, is_ascend=False), x.T.copy().reshape(length, 2))
    compare(gpu, lambda x: nd.topk(x, k=5, ret_typ="value"), x)


@pytest.mark.parametrize("kind", ["value", "indices", "mask", "both"])
@pytest.mark.parametrize("axis", [0, -1, None])
def test_top_elements(gpu, kind, axis):
    x = numbers((5, 6), "float32")
    compare(gpu, lambda x: nd.topk(x, axis=axis, k=3, ret_typ=kind), x)
    compare(gpu, lambda x: nd.topk(x, axis=axis, k=0, ret_typ=kind, is_ascend=True), x)


@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: nd.sort(x, axis=0),
        lambda x: nd.topk(x, k=2, ret_typ="value"),
        lambda x: nd.topk(x, k=2, ret_typ="both")[0],
        lambda x: nd.cumsum(x, axis=1),
        lambda x: nd.cumsum(x),
    ],
)
def test_gradients(gpu, call, req):
    def run(ctx):
        x = nd.array(np.random.RandomState(3).permutation(20).reshape(4, 5), ctx)
        x.attach_grad(req)
        x.grad[:] = 0.5
        with mx.autograd.record():
            y = call(x)
        y.backward(nd.arange(y.size, ctx=ctx).reshape(y.shape))
        return x.grad.asnumpy()

    assert_near(run(gpu), run(mx.cpu()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((7,), 0), ((600,), None), ((3, 257, 2), 1), ((2, 3, 4), -1)]
)
def test_running_sums(gpu, dtype, shape, axis):
    x = np.random.RandomState(5).randint(-3, 4, shape).astype(dtype)
    compare(gpu, lambda x: nd.cumsum(x, axis=axis), x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("call", [nd.sum, nd.max, nd.min])
def test_reductions_of_whole_numbers(gpu, dtype, call):
    x = np.random.RandomState(6).randint(-(2**31), 2**31, (5, 300)).astype(dtype)
    for axis in (0, 1, None):
        compare(gpu, lambda x, axis=axis: call(x, axis=axis), x)
