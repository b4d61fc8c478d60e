"""Layers in their rarer forms: softmax over some elements, random slopes, channels last."""

import numpy as np
import pytest
from conftest import assert_near, compare, first_of

from rsnet import nd

FLOATS = ["float32", "float16", "float64"]
REQUESTS = ["write", "add"]


def numbers(*shape, dtype="float32"):
    return np.random.RandomState(sum(shape)).uniform(-2, 2, shape).astype(dtype)


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("dtype", first_of(*FLOATS))
@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 7), -1), ((2, 5, 3), 1), ((4, 300), -1)])
def test_softmax_over_as_many_elements_as_count(shape, axis, kind, dtype, req):
    rows = tuple(np.delete(shape, axis))
    lengths = np.random.RandomState(3).randint(-1, shape[axis] + 2, rows).astype(kind)

    def call(x):
        counts = nd.array(lengths, x.context, kind)
        return nd.softmax(x, counts, axis=axis, use_length=True, temperature=0.7)

    compare(call, numbers(*shape, dtype=dtype), req=req)


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("of", first_of(*FLOATS))
@pytest.mark.parametrize("to", first_of(*FLOATS))
@pytest.mark.parametrize("op", ["softmax", "log_softmax", "softmin"])
def test_softmax_in_another_dtype(op, of, to, req):
    def near(got, want):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3)

    loose = near if "float16" in (of, to) else assert_near
    if {of, to} == {"float32", "float64"}:

        def loose(got, want):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)

    compare(lambda x: getattr(nd, op)(x, dtype=to), numbers(4, 9, dtype=of), req=req, near=loose)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("dtype", first_of(*FLOATS))
@pytest.mark.parametrize("size", [1, 5, 3000])
def test_random_slopes_are_those_of_the_host(size, dtype, train):
    def call(x):
        return nd.LeakyReLU(x, act_type="rrelu", lower_bound=0.1, upper_bound=0.6)

    for req in REQUESTS:
        compare(call, numbers(size, dtype=dtype), req=req, train=train)


def last(array):
    """An array (N, C, ...) with channels last."""
    return np.moveaxis(array, 1, -1).copy()


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("dtype", first_of(*FLOATS))
@pytest.mark.parametrize(
    ("layout", "kernel", "image"),
    [("NHWC", (3, 2), (5, 6)), ("NDHWC", (1, 2, 2), (3, 4, 5))],
)
@pytest.mark.parametrize("group", [1, 2])
def test_convolutions_with_channels_last(layout, kernel, image, group, dtype, req):
    spatial = {"kernel": kernel, "stride": (2,) * len(kernel), "pad": (1,) * len(kernel)}
    shared = {"layout": layout, "num_filter": 6, "num_group": group, **spatial}
    x, bias = last(numbers(3, 4, *image, dtype=dtype)), numbers(6, dtype=dtype)
    w = last(numbers(6, 4 // group, *kernel, dtype=dtype))
    compare(lambda x, w, b: nd.Convolution(x, w, b, **shared), x, w, bias, req=req)
    w = last(numbers(4, 6 // group, *kernel, dtype=dtype))

    def transpose(x, w, b):
        return nd.Deconvolution(x, w, b, no_bias=False, **shared)

    compare(transpose, x, w, bias, req=req)


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("kind", ["max", "avg", "sum", "lp"])
@pytest.mark.parametrize(
    ("layout", "kernel", "image"), [("NWC", (3,), (7,)), ("NHWC", (2, 3), (5, 6))]
)
def test_pooling_with_channels_last(layout, kernel, image, kind, req):
    def call(x):
        options = {"layout": layout, "pool_type": kind, "p_value": 2}
        return nd.Pooling(x, kernel=kernel, stride=(2,) * len(kernel), **options)

    compare(call, np.abs(last(numbers(2, 3, *image))) + 0.5, req=req)


def test_a_network_with_channels_last():
    def call(x, w, gamma, beta):
        x = nd.Convolution(
            x, w, kernel=(3, 3), num_filter=4, layout="NHWC", pad=(1, 1), no_bias=True
        )
        x = nd.BatchNorm(
            x, gamma, beta, nd.zeros_like(gamma), nd.ones_like(gamma), axis=-1, fix_gamma=False
        )
        return nd.Pooling(nd.relu(x), global_pool=True, pool_type="avg", layout="NHWC")

    def near(got, want):  # sums over a batch, of which most cancel
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)

    x, w = last(numbers(4, 3, 6, 6)), last(numbers(4, 3, 3, 3))
    compare(call, x, w, numbers(4), numbers(4), near=near)
