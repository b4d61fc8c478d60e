"""Integers for real numbers on a device: those of the host, to the last one."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd


def both(call, *arrays):
    """Results on the device are those on the host to the bit, and from kernels."""
    before, found = mx.cuda.operators_on_host(), []
    for ctx in (mx.gpu(0), mx.cpu(0)):
        outs = call(*[nd.array(a, ctx, a.dtype) for a in arrays])
        found.append(outs if isinstance(outs, list) else [outs])
    for got, want in zip(*found, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.asnumpy(), want.asnumpy())
    assert mx.cuda.operators_on_host() == before


def reals(n, low=-3.0, high=2.0):
    values = np.random.RandomState(n).uniform(low, high, n).astype("float32")
    values[::7] = np.round(values[::7] * 16) / 16  # some of them halves of units
    values[3::11] = np.nan
    return values


@pytest.mark.parametrize("n", [1, 5, 3000, 150_000])
@pytest.mark.parametrize("to", ["int8", "uint8"])
def test_real_numbers(n, to):
    ends = [np.array([end], "float32") for end in (-2, 2)]
    x = reals(n)
    both(lambda x, low, high: nd.contrib.quantize(x, low, high, out_type=to), x, *ends)
    both(lambda x: nd.contrib.quantize_v2(x, out_type=to), x)
    calibrated = {"min_calib_range": 0.0, "max_calib_range": 1.9}
    both(lambda x: nd.contrib.quantize_v2(x, out_type=to, **calibrated), x)
    both(lambda x: nd.contrib.quantize_v2(x, out_type=to), np.full(n, np.nan, "float32"))
    both(lambda x: nd.contrib.quantize_v2(x, out_type=to), np.zeros(n, "float32"))


@pytest.mark.parametrize("n", [1, 5, 3000, 150_000])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_integers(n, dtype):
    kind = np.iinfo(dtype)
    q = np.random.RandomState(n).randint(kind.min, kind.max, n, "int64").astype(dtype)
    ends = [np.array([end], "float32") for end in (-2.5, 2)]
    both(nd.contrib.dequantize, q, *ends)
    if dtype == "int32":
        both(nd.contrib.requantize, q, *ends)
        calibrated = {"min_calib_range": -0.5, "max_calib_range": 0.7}
        both(lambda *a: nd.contrib.requantize(*a, **calibrated), q, *ends)
