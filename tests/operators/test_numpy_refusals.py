"""What operators of MXNet's NumPy interface refuse: the error names the operator and the argument,
whatever nonsense is given.
"""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def with_np_shape():
    with mx.np_shape(True):
        yield


def ones(*shape, dtype="float32"):
    return nd.array(np.ones(shape, dtype), dtype=dtype)


def calls():
    x, xs, row, empty = ones(2), ones(2, 3), ones(3), ones(0)
    yield "einsum", (x,), {"subscripts": ""}, "invalid subscripts '': expected a label for each"
    yield "einsum", (x,), {"subscripts": "i->->i"}, "invalid subscripts '->i'"
    yield "einsum", (x,), {"subscripts": "i,,"}, "expected 1 operands between commas"
    yield "einsum", (x,), {"subscripts": "é->é"}, "expected letters"
    yield "einsum", (x,), {"subscripts": "......"}, "one '...' per operand"
    yield "einsum", (xs,), {"subscripts": "i...->i"}, "expected '...' in the output"
    yield "einsum", (xs,), {"subscripts": "ij->iji"}, "each once"
    yield "einsum", (ones(1, 3),), {"subscripts": "ii->i"}, "invalid shape '(1, 3)'"
    yield "einsum", (ones(2, dtype="bool"),), {"subscripts": "i"}, "a number, not bool"
    many = (ones(100000),) * 6
    yield "einsum", many, {"subscripts": "a,b,c,a,b,c->"}, "products fit into memory"
    axes = {"a_axes_summed": (0,), "b_axes_summed": (1,)}
    yield "tensordot", (xs, xs), axes, "these have 2 and 3"
    yield "tensordot", (xs, xs), {**axes, "a_axes_summed": (5,)}, "axis 5 is out of range"
    yield "tensordot", (xs, xs), {**axes, "a_axes_summed": (0, 0)}, "axes that differ"
    yield "tensordot", (xs, xs), {**axes, "a_axes_summed": ()}, "expected 0, as in a_axes_summed"
    yield "tensordot_int_axes", (xs, xs), {"axes": -1}, "invalid axes '-1'"
    yield "matmul", (ones(), xs), {}, "argument 'a' has shape ()"
    yield "column_stack", (x, row), {}, "argument 'arg1' has shape (3,)"
    yield "dsplit", (xs,), {"indices": (0, 1)}, "axis 2 is out of range"
    yield "rot90", (xs,), {"axes": (0, 1, 2)}, "invalid axes '(0, 1, 2)': expected two axes"
    yield "rot90", (xs,), {"axes": (0, 0)}, "two axes that differ"
    yield "pad", (x,), {"pad_width": ((-1, 2),)}, "invalid pad_width '(-1, 2)'"
    yield "pad", (x,), {"pad_width": ((2**62, 2**62),)}, "too many elements"
    yield "pad", (x,), {"pad_width": ((1, 1), (1, 1))}, "expected 1, a pair for each axis"
    yield "pad", (x,), {"pad_width": "nonsense"}, "invalid pad_width 'nonsense'"
    yield "pad", (empty,), {"pad_width": ((1, 1),), "mode": "edge"}, "argument 'data'"
    yield "var", (xs,), {"axis": (0, 0)}, "axis 0 is named twice"
    yield "average", (xs, x), {"axis": 1}, "argument 'weights' has shape (2,)"
    yield "percentile", (xs,), {"q_scalar": NAN}, "invalid percentile 'NaN': expected 0 to 100"
    yield "percentile", (xs, x * 1000), {}, "invalid percentile '1000.0'"
    yield "percentile", (empty,), {"q_scalar": 50}, "argument 'a' has shape (0,)"
    yield "arctan2", (ones(2, dtype="int32"),) * 2, {}, "expected a float"
    yield "lcm", (x, x), {}, "expected integers or bool"
    yield "diff", (xs,), {"n": -1}, "invalid n '-1': expected at least 0"
    yield "diff", (ones(),), {}, "axis -1 is out of range"
    yield "polyval", (xs, x), {}, "argument 'p' has shape (2, 3)"
    yield "hamming", (), {"M": 2**62}, "too many elements"
    yield "indices", (), {"dimensions": (2**40, 2**40)}, "too many elements"
    yield "diag_indices_from", (xs,), {}, "at least two axes of one extent"
    yield "eigh", (xs,), {}, "argument 'A' has shape (2, 3)"
    yield "solve", (ones(2, 2) * NAN, x), {}, "argument 'A' has value a singular matrix"
    yield "pinv", (xs, x), {}, "argument 'rcond' has shape (2,)"
    yield "tensorsolve", (ones(2, 2), row), {}, "argument 'a' has shape (2, 2)"
    mask = {"value": 1, "start_axis": 9}
    yield "boolean_mask_assign_scalar", (xs, x), mask, "argument 'mask' has shape (2,)"
    yield "norm", (xs,), {"ord": NAN, "axis": (0,)}, "invalid ord 'NaN'"
    yield "norm", (ones(0, 3),), {}, "argument 'data' has shape (0, 3)"
    yield "insert_scalar", (x,), {"val": 1, "int_ind": -(2**63)}, "invalid index '-92"
    yield "insert_scalar", (x,), {"val": 1}, "invalid int_ind 'None'"
    yield "insert_slice", (x, row), {"start": 0, "stop": 2}, "argument 'values' has shape (3,)"
    yield "delete", (xs,), {"int_ind": 0, "axis": 3}, "axis 3 is out of range"
    uniform = {"low": 0, "high": 1, "size": (2,)}
    yield "uniform", (), {**uniform, "high": INF}, "invalid parameters '0, inf'"
    yield "uniform", (), {**uniform, "size": (-1,)}, "invalid extent in size '-1'"
    yield "uniform", (), {**uniform, "dtype": "int32"}, "invalid dtype 'int32'"
    yield "normal", (), {"loc": 0, "scale": NAN}, "invalid parameters '0, NaN'"
    yield "pareto", (), {"size": (2,)}, "invalid number of inputs 0: expected 1: input1"
    choice = {"a": 3, "size": (2,), "weighted": True}
    yield "choice", (row * 0,), choice, "probabilities that are not all 0"
    yield "choice", (row * NAN,), choice, "invalid weights 'NaN'"
    yield "multinomial", (), {"n": 3, "pvals": ()}, "invalid pvals"


with mx.np_shape(True):
    CALLS = list(calls())


@pytest.mark.parametrize(("name", "arrays", "params", "text"), CALLS)
def test_nonsense_is_refused_by_name(name, arrays, params, text):
    with pytest.raises(mx.MXNetError) as info:
        getattr(nd._internal, f"_npi_{name}")(*arrays, **params).asnumpy()
    assert str(info.value).startswith(f"_npi_{name}: ")
    assert text in str(info.value)


def test_numbers_that_are_none_stay_so():
    ops = nd._internal
    broken = nd.array([[NAN, 1], [1, 2]])
    assert np.isnan(ops._npi_svd(broken)[1].asnumpy()).all()
    assert np.isnan(ops._npi_eigvalsh(broken).asnumpy()).all()
    assert np.isnan(ops._npi_norm(broken).asnumpy())
    assert np.isnan(ops._npi_percentile(broken, q_scalar=50).asnumpy())
    assert np.isnan(ops._npi_var(ones(0)).asnumpy())
