"""Small arrays for tests."""

import numpy as np

from rsnet import nd

DTYPES = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"]


def counting(*shape, dtype="float32"):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


def leaf(values, req="write"):
    """An array with a gradient."""
    x = nd.array(values)
    x.attach_grad(req)
    return x
