"""Operators on 8-bit integers where their cases do not reach: ranges of extreme size."""

import numpy as np
import pytest

from rsnet import nd


def quantized(array, most, dtype="int8"):
    """Integers of an array, and the range from -most to most."""
    return nd.contrib.quantize(array, nd.array([-most]), nd.array([most]), out_type=dtype)


@pytest.mark.parametrize("most", [0.0, 1e-30, 1e-12, 1e-7, 1e-3, 1.0])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_bias_keeps_its_value_beside_small_data(most, dtype):
    """In the unit of the products the bias may be more than int32 holds."""
    rng = np.random.RandomState(3)
    x = nd.array(rng.uniform(-most, most, (2, 3, 4, 4)))
    weight, bias = nd.array(rng.uniform(-1, 1, (5, 3, 2, 2))), nd.array(rng.uniform(-2, 2, (5,)))
    window = {"kernel": (2, 2), "num_filter": 5}
    parts = [quantized(x, most, dtype), quantized(weight, 1.0), quantized(bias, 2.0)]
    operands, ranges = [part[0] for part in parts], [r for part in parts for r in part[1:]]
    real = [nd.contrib.dequantize(*part) for part in parts]
    sums = nd.contrib.quantized_conv(*operands, *ranges, **window)
    near = {"atol": 1e-6 + most * 1e-2}
    want = nd.Convolution(*real, **window)
    np.testing.assert_allclose(nd.contrib.dequantize(*sums).asnumpy(), want.asnumpy(), **near)

    def flat(operands):
        """The operands of a layer on rows of the same numbers."""
        x, weight, bias = operands
        return x.reshape((8, 12)), weight.reshape((5, 12)), bias

    sums = nd.contrib.quantized_fully_connected(*flat(operands), *ranges, num_hidden=5)
    want = nd.FullyConnected(*flat(real), num_hidden=5)
    np.testing.assert_allclose(nd.contrib.dequantize(*sums).asnumpy(), want.asnumpy(), **near)
