"""Symbols of networks that were written with MXNet's NumPy interface: nodes `_np_*`, `_npi_*` and
`_npx_*` are loaded, inferred, run, differentiated, and saved under their names.
"""

import json

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, sym

F = sym._internal


def attention():
    """Attention of two heads, as such networks write it."""
    x, mask = sym.Variable("x"), sym.Variable("mask")

    def heads(name):
        part = sym.FullyConnected(x, num_hidden=4, flatten=False, name=name)
        return F._np_transpose(F._npx_reshape(part, newshape=(-2, -2, 2, -1)), axes=(0, 2, 1, 3))

    query, key, value = map(heads, ("query", "key", "value"))
    scores = F._npi_matmul(query, sym.SwapAxis(key, dim1=2, dim2=3))
    scores = F._npi_true_divide_scalar(scores, scalar=2.0, is_int=False)
    scores = F._npi_where_rscalar(sym.expand_dims(mask, axis=1), scores, scalar=-1e4)
    weights = sym.softmax(scores, axis=-1)
    mixed = F._np_transpose(F._npi_matmul(weights, value), axes=(0, 2, 1, 3))
    result = F._npi_add(F._npx_reshape(mixed, newshape=(-2, -2, -5)), x)
    return sym.Group([result, F._np_sum(weights, axis=(1, 2))])


def attention_in_numpy(x, mask, **w):
    def heads(name):
        part = x @ w[f"{name}_weight"].T + w[f"{name}_bias"]
        return part.reshape(*x.shape[:2], 2, -1).transpose(0, 2, 1, 3)

    query, key, value = map(heads, ("query", "key", "value"))
    scores = np.where(mask[:, None] != 0, query @ key.swapaxes(2, 3) / 2, -1e4)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = (weights @ value).transpose(0, 2, 1, 3).reshape(x.shape)
    return mixed + x, weights.sum((1, 2))


@pytest.fixture(autouse=True)
def with_np_shape():
    with mx.np_shape(True):
        yield


def test_a_network_is_saved_loaded_and_run():
    saved = attention().tojson()
    ops = {node["op"] for node in json.loads(saved)["nodes"]}
    assert {"_npi_add", "_npi_matmul", "_np_sum", "_npx_reshape", "_np_transpose"} <= ops
    loaded = sym.load_json(saved)
    assert loaded.tojson() == saved
    rng = np.random.RandomState(3)
    exe = loaded.simple_bind(mx.cpu(), x=(2, 3, 4), mask=(2, 3, 3))
    given = {n: rng.uniform(-1, 1, a.shape).astype("float32") for n, a in exe.arg_dict.items()}
    given["mask"] = np.tril(np.ones((2, 3, 3), "float32"))
    for result, wanted in zip(exe.forward(True, **given), attention_in_numpy(**given)):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result.asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    exe.backward([nd.ones(o.shape) for o in exe.outputs])
    # The rows of the weights sum to one: only the first output depends on what they are made of.
    step = {**given, "value_weight": given["value_weight"] + 1e-2}
    change = attention_in_numpy(**step)[0].sum() - attention_in_numpy(**given)[0].sum()
    np.testing.assert_allclose(
        exe.grad_dict["value_weight"].asnumpy().sum() * 1e-2, change, rtol=1e-2
    )


def test_all_axes_are_reduced_to_a_scalar():
    x = sym.Variable("x")
    for name in ("_np_sum", "_np_prod", "_npi_mean", "_np_max", "_np_min", "_npi_argmax"):
        made = getattr(F, name)(x)
        assert made.infer_shape(x=(2, 3))[1] == [()], name
        assert made.infer_shape_partial(x=(-1, 3))[1] == [()], name
    assert F._np_any(x).infer_type(x="float32")[1] == [np.bool_]
    assert F._npi_argmin(x).infer_type(x="float32")[1] == [np.int64]


def test_what_is_not_calculated_is_refused_by_name():
    x, whole = nd.ones((2,)), nd.ones((2,), dtype="int32")
    ops = nd._internal
    refused = [
        (lambda: ops._npi_add(x, nd.ones((3,))), "broadcast together"),
        (lambda: ops._npi_equal(x, whole), "Incompatible attr"),
        (lambda: ops._npi_einsum(x, x, subscripts="i,ij->i"), "a label for each of 1 axes"),
        (lambda: ops._npi_einsum(x, subscripts="i->j"), "labels of the output"),
        (lambda: ops._npi_einsum(x, nd.ones((3,)), subscripts="i,i"), "these have 2 and 3"),
        (lambda: ops._npi_tensordot_int_axes(x, x, axes=2), "at most 1"),
        (lambda: ops._npi_vstack(x, nd.ones((3,))), "arg1"),
        (lambda: ops._npi_rot90(x), "two axes"),
        (lambda: ops._np_roll(x), "invalid shift"),
        (lambda: ops._npi_pad(x, pad_width=((1,),)), "pairs of at least 0"),
        (lambda: ops._npi_percentile(x, q_scalar=101).asnumpy(), "0 to 100"),
        (lambda: ops._npi_average(x, nd.ones((3,)), axis=0), "weights"),
        (lambda: ops._npi_svd(nd.ones((3, 2))), "at most as many rows"),
        (lambda: ops._npi_solve(nd.ones((2, 2)), x).asnumpy(), "singular"),
        (lambda: ops._npi_tensorinv(nd.ones((2, 3)), ind=1), "as many elements"),
        (lambda: ops._npi_norm(nd.ones((2, 3)), ord=3), "invalid ord '3'"),
        (lambda: ops._npi_norm(nd.ones((1, 2, 3)), axis=(0, 1, 2)), "one axis or two"),
        (lambda: ops._npi_norm(nd.ones((2, 3)), axis=(0, 0)), "axes that differ"),
        (lambda: ops._npi_insert_scalar(x, val=1, int_ind=3).asnumpy(), "invalid index '3'"),
        (lambda: ops._npi_insert_scalar(x, nd.ones((2, 2)), int_ind=0), "at most 1 axes"),
        (lambda: ops._npi_insert_slice(x, val=1, step=0), "invalid step '0'"),
        (lambda: ops._npi_insert_tensor(x, x, val=1), "an integer dtype"),
        (lambda: ops._npi_delete(x, int_ind=2), "invalid index '2': expected -2 to 1"),
        (
            lambda: ops._npx_constraint_check(nd.zeros((2,), dtype="bool"), msg="no!").asnumpy(),
            "no!",
        ),
        (lambda: ops._npi_mean(whole), "expected a float"),
        (
            lambda: ops._np_sum(x, dtype="float64"),
            "invalid dtype 'float64': expected None or float32",
        ),
        (lambda: ops._np_sum(x, initial=1.0), "invalid initial '1': expected None"),
        (lambda: ops._np_max(x, axis=()), r"invalid axis '\(\)'"),
        (lambda: ops._np_moveaxis(x, source=(0, 0), destination=(0, 0)), "invalid source"),
        (lambda: ops._np_reshape(x, newshape=(3,)), "expected as many elements"),
        (lambda: ops._npx_reshape(x, newshape=(-3,)), "expected one of extent 1"),
        (lambda: ops._npi_broadcast_to(nd.ones((2, 2)), shape=(2,)), "at most 1 axes"),
        (lambda: ops._npi_matmul(nd.ones((2, 3)), nd.ones((2, 3))), "expected 3 as its first"),
        (lambda: ops._np_diagonal(x), "expected at least two axes"),
        (lambda: ops._npi_bitwise_and(x, x), "expected integers or bool"),
        (lambda: ops._npi_tril(x), "expected at least two axes"),
    ]
    for call, message in refused:
        with pytest.raises(mx.MXNetError, match=message):
            call()


def test_operands_of_different_dtypes_meet():
    x = sym.Variable("x")
    made = F._npi_multiply(F._npi_greater_scalar(x, scalar=0.0), x)
    loaded = sym.load_json(made.tojson())
    exe = loaded.simple_bind(mx.cpu(), x=(3,))
    given = np.array([-1, 2, 3], "float32")
    assert exe.forward(True, x=given)[0].asnumpy().tolist() == [0, 2, 3]
    exe.backward([nd.array([5, 6, 7])])
    assert exe.grad_dict["x"].asnumpy().tolist() == [0, 6, 7]

    found = {}
    for a in ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"):
        for b in ("bool", "int32", "float16", "float64"):
            arrays = nd.ones((2,), dtype=a), nd.ones((2,), dtype=b)
            total, part = (getattr(nd._internal, f"_npi_{n}")(*arrays) for n in ("add", "mod"))
            assert total.dtype == part.dtype
            found[a, b] = np.dtype(total.dtype).name
    assert found["bool", "bool"] == "bool" and found["int8", "bool"] == "int8"
    assert found["int64", "float16"] == "float16" and found["float32", "float16"] == "float32"
    assert found["uint8", "int32"] == "int32" and found["int8", "float64"] == "float64"

    whole = nd.array([1, 2], dtype="int32")
    quotient = nd._internal._npi_true_divide(whole, whole)
    assert quotient.dtype == np.float32 and quotient.asnumpy().tolist() == [1, 1]


def test_gradients_reach_operands_in_their_dtypes():
    half, double = nd.array([1, 2], dtype="float16"), nd.array([[3], [4]], dtype="float64")
    for array in (half, double):
        array.attach_grad()
    with mx.autograd.record():
        y = nd._internal._npi_multiply(half, double)
    y.backward()
    assert (y.dtype, half.grad.dtype) == (np.float64, np.float16)
    assert half.grad.asnumpy().tolist() == [7, 7]
    assert double.grad.asnumpy().tolist() == [[3], [3]]


def test_second_derivatives_of_arithmetic():
    x = nd.array([1, 2])
    x.attach_grad()
    with mx.autograd.record():
        y = nd._internal._npi_multiply(x, nd._internal._npi_power_scalar(x, scalar=2.0))
        (slope,) = mx.autograd.grad(y, [x], create_graph=True)
    slope.backward()
    assert x.grad.asnumpy().tolist() == [6, 12]


def test_special_numbers():
    x = nd.array([float("nan"), float("inf"), -float("inf"), 2])
    ops = nd._internal
    most = float(np.finfo(np.float32).max)
    assert ops._npi_nan_to_num(x, nan=1).asnumpy().tolist() == [1, most, -most, 2]
    assert ops._npi_nan_to_num(x, posinf=5, neginf=6).asnumpy().tolist() == [0, 5, 6, 2]
    assert ops._npi_isinf(x).asnumpy().tolist() == [False, True, True, False]
    assert ops._npi_not_equal(x, x).asnumpy().tolist() == [True, False, False, False]
    x.attach_grad()
    with mx.autograd.record():
        y = ops._npi_nan_to_num(x)
    y.backward()
    assert x.grad.asnumpy().tolist() == [0, 0, 0, 1]
