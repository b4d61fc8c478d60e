"""Products of matrices on a device, by cuBLAS or, where there is none, by a kernel of rsnet."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import assert_near

import rsnet as mx
from rsnet import nd

BY_LIBRARY = bool(os.environ.get("RSNET_LIBCUBLAS"))
DTYPES = ["float16", "float32", "float64"]


@pytest.fixture(autouse=True)
def who_multiplies(emulated):
    """Every test here multiplies on the device, by the library if there is one."""
    before, on_host = emulated.products(), mx.cuda.operators_on_host()
    yield
    assert (emulated.products() > before) is BY_LIBRARY
    assert mx.cuda.operators_on_host() == on_host


def compare(gpu, call, *shapes, dtype="float32", req="write"):
    """Results and gradients of a call on the device are those on the host."""

    def run(ctx):
        random = np.random.RandomState(7)
        arrays = [nd.array(random.uniform(-1, 1, s), ctx, dtype) for s in shapes]
        for array in arrays:
            array.attach_grad(req)
            array.grad[:] = 0.5
        for _ in range(2 if req == "add" else 1):
            with mx.autograd.record():
                out = call(*arrays)
            out.backward(nd.array(random.uniform(-1, 1, out.shape), ctx, dtype))
        return [array.asnumpy() for array in (out, *(a.grad for a in arrays))]

    for got, want in zip(run(gpu), run(mx.cpu()), strict=True):
        assert_near(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("extents", [(7, 5, 3), (1, 5, 3), (7, 1, 3), (7, 5, 1), (1, 1, 1)])
def test_every_layout(gpu, dtype, transposed, extents):
    (m, n, k), (ta, tb) = extents, transposed
    a, b = (k, m) if ta else (m, k), (n, k) if tb else (k, n)

    def dot(x, y):
        return nd.dot(x, y, transpose_a=ta, transpose_b=tb)

    def batch_dot(x, y):
        return nd.batch_dot(x, y, transpose_a=ta, transpose_b=tb)

    compare(gpu, dot, a, b, dtype=dtype)
    compare(gpu, batch_dot, (3, *a), (3, *b), dtype=dtype, req="add")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("req", ["write", "add"])
def test_layers_with_and_without_bias(gpu, bias, req):
    def layer(x, w, *b):
        return nd.FullyConnected(x, w, *b, num_hidden=5, no_bias=not bias)

    compare(gpu, layer, (4, 2, 3), (5, 6), *[(5,)] * bias, req=req)


GEOMETRIES = [
    {"kernel": (3,), "stride": (2,), "pad": (1,)},
    {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "num_group": 2},
    {"kernel": (2, 1, 2), "pad": (1, 0, 1), "stride": (1, 2, 1)},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=["1d", "2d", "3d"])
def test_convolutions_and_their_transposes(gpu, dtype, geometry):
    images = (6, 4, *(7, 6, 5)[: len(geometry["kernel"])])
    group = geometry.get("num_group", 1)

    def convolution(x, w, b):
        return nd.Convolution(x, w, b, num_filter=6, **geometry)

    def transpose(x, w, b):
        return nd.Deconvolution(x, w, b, num_filter=6, no_bias=False, **geometry)

    compare(gpu, convolution, images, (6, 4 // group, *geometry["kernel"]), (6,), dtype=dtype)
    compare(gpu, transpose, images, (4, 6 // group, *geometry["kernel"]), (6,), dtype=dtype)
    compare(
        gpu, transpose, images, (4, 6 // group, *geometry["kernel"]), (6,), dtype=dtype, req="add"
    )


def test_gradients_of_filters_over_many_images(gpu):
    def layer(x, w):
        return nd.Convolution(x, w, kernel=(3, 3), num_filter=2, no_bias=True)

    compare(gpu, layer, (130, 1, 5, 4), (2, 1, 3, 3))


def test_nan_in_an_output_does_not_stay(gpu):
    x, out = nd.ones((3, 3), ctx=gpu), nd.array(np.full((3, 3), np.nan), ctx=gpu)
    nd.dot(x, x, out=out)
    np.testing.assert_array_equal(out.asnumpy(), np.full((3, 3), 3.0))


@pytest.mark.skipif(not BY_LIBRARY, reason="needs the emulated cuBLAS")
@pytest.mark.parametrize("path", ["/no/such/libcublas.so", "libc.so.6"])
def test_a_library_that_is_none(gpu, path):
    nd.dot(nd.ones((2, 2), ctx=gpu), nd.ones((2, 2), ctx=gpu)).wait_to_read()
    program = "import rsnet as mx; x = mx.nd.ones((2, 2), ctx=mx.gpu(0)); mx.nd.dot(x, x)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RSNET_LIBCUBLAS": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"invalid RSNET_LIBCUBLAS '{path}': expected the path of cuBLAS" in done.stderr


def test_the_library_of_the_wheel_has_every_function(gpu):
    """Where NVIDIA's wheel is installed: its library cannot work here, but its names are known."""
    nd.dot(nd.ones((2, 2), ctx=gpu), nd.ones((2, 2), ctx=gpu)).wait_to_read()
    from rsnet.cuda import _loader

    path = _loader.library("cublas")
    if path is None:
        pytest.skip("cuBLAS is not installed")
    library = ctypes.CDLL(path)
    for name in ("Create_v2", "Destroy_v2", "SetStream_v2", "GemmStridedBatchedEx_64"):
        assert getattr(library, f"cublas{name}")
