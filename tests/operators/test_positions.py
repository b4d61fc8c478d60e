"""Dtypes of positions: they compare with labels of the data's dtype, and hold every position."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, sym

SAME = ["float32", "float64", "int32", "int64"]
NARROW = ["float16", "int8", "uint8", "bool"]


@pytest.mark.parametrize("name", ["argmax", "argmin", "argmax_channel"])
@pytest.mark.parametrize("dtype", SAME + NARROW)
def test_positions_have_the_dtype_of_the_data_if_that_holds_them(name, dtype):
    want = dtype if dtype in SAME else "float32"
    params = {} if name == "argmax_channel" else {"axis": 1}
    found = getattr(nd, name)(nd.array([[0, 1, 0]], dtype=dtype), **params)
    assert found.dtype == np.dtype(want) and found.asscalar() == (0 if name == "argmin" else 1)
    symbol = getattr(sym, name)(sym.Variable("x"), **params)
    assert symbol.infer_type(x=dtype)[1] == [np.dtype(want)]


@pytest.mark.parametrize("dtype", SAME + NARROW)
def test_far_positions_are_exact(dtype):
    x = np.zeros((2, 5003), dtype)
    x[:, 4999] = 1
    assert nd.argmax(nd.array(x, dtype=dtype), axis=1).asnumpy().tolist() == [4999, 4999]


def test_positions_compare_with_labels():
    x, labels = nd.array([[1, 3], [5, 2]], dtype="float64"), nd.array([1, 1], dtype="float64")
    assert (x.argmax(axis=1) == labels).asnumpy().tolist() == [1, 0]
    assert mx.nd.argmax(x).asnumpy().tolist() == [2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_encoded_positions_are_rows_with_a_one(dtype):
    out = nd.full((4, 3), 9, dtype=dtype)
    for indices in (nd.array([2, 0, -1, 3]), nd.array([2, 0, -1, 3], dtype="int8")):
        assert nd.onehot_encode(indices, out) is out
        assert out.asnumpy().tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
        out[:] = 9


def test_encoding_takes_no_memory_beside_the_rows():
    indices, out = nd.array([199_999]), nd.empty((1, 200_000))
    assert nd.onehot_encode(indices, out)[0, -1].asscalar() == 1
