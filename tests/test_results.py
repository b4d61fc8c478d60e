"""What a user's function may do with its outputs, and what it may return."""

import itertools

import numpy as np
import pytest

from rsnet import autograd, nd, op
from rsnet.base import MXTypeError

_count = itertools.count()


def fresh():
    return f"t_results_{next(_count)}"


def decorated(function, **how):
    name = fresh()
    return name, op.op(name, views="numpy", **how)(function)


# Kinds of results ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "dtype", "got"),
    [
        (np.fft.fft, "float32", "complex128|complex64"),
        (lambda x: x * 0.5, "int32", "float64"),
        (lambda x: -1.0 * x, "uint8", "float64|float32"),
        (lambda x: x.astype("int64") - 1, "uint8", "int64"),
        (lambda x: 0.5, "int32", "float64"),
        (lambda x: -1, "uint8", "int8"),
        (lambda x: x + 1.0, "bool", "float64"),
        (lambda x: nd.array([0.5, 1, 2]), "int32", "float32"),
    ],
    ids=["complex", "fraction", "sign", "int", "float", "minus", "bool", "ndarray"],
)
def test_results_of_another_kind_are_refused(function, dtype, got):
    name, _ = decorated(function, outputs=("y",))
    says = rf"{name} returned ({got}) for output 'y', which is {dtype}: .*astype\('{dtype}'\)"
    with pytest.raises(MXTypeError, match=says):
        getattr(nd, name)(nd.array([0, 1, 2], dtype=dtype)).asnumpy()


@pytest.mark.parametrize(
    ("function", "dtype", "want"),
    [
        (lambda x: x.astype("float64") / 2, "float32", [0, 0.5, 1]),
        (lambda x: x.astype("int64") + 1, "int8", [1, 2, 3]),
        (lambda x: x > 0, "float32", [0, 1, 1]),
        (lambda x: x > 0, "uint8", [0, 1, 1]),
        (lambda x: 7, "uint8", [7, 7, 7]),
        (lambda x: [7, 8, 9], "float16", [7, 8, 9]),
        (lambda x: (x * 0.5).astype(x.dtype), "int32", [0, 0, 1]),
    ],
)
def test_results_of_the_same_kind_are_cast(function, dtype, want):
    name, _ = decorated(lambda x: (function(x),))
    y = getattr(nd, name)(nd.array([0, 1, 2], dtype=dtype))
    assert y.dtype == np.dtype(dtype) and y.asnumpy().tolist() == want


def gradient_of(name, n_in=1):
    arrays = [nd.array([1, 2]) for _ in range(n_in)]
    for x in arrays:
        x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(*arrays)
    y.backward()
    return [x.grad.asnumpy().tolist() for x in arrays]


def test_gradients_of_another_kind_are_refused():
    name, f = decorated(lambda x: 2 * x)
    f.gradient(lambda out_grads, inputs, outputs: 1j * out_grads[0])
    with pytest.raises(MXTypeError, match="complex.* for gradient of input 'data'"):
        gradient_of(name)


def test_none_is_no_gradient_for_one_input_too():
    name, f = decorated(lambda x: 2 * x)
    f.gradient(lambda out_grads, inputs, outputs: None)
    assert gradient_of(name) == [[0, 0]]
    name, f = decorated(lambda x, y: x * y, inputs=("x", "y"))
    f.gradient(lambda out_grads, inputs, outputs: (None, 3 * out_grads[0]))
    assert gradient_of(name, 2) == [[0, 0], [3, 3]]
