"""Gradients by names of arguments, sizes and inference by dtype, kernels of a GPU."""

import numpy as np
import pytest
from plugins import compiled

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process  # the compiler is one


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled("oneflow_forms.cpp"))


@pytest.mark.parametrize(("name", "slope"), [("form_copy", 7_000_701), ("form_same", 701)])
def test_inputs_of_a_gradients_operator_go_by_name(name, slope):
    """Whatever the order in which the rule binds them, and whether others are optional."""
    x = nd.array([7.0])
    x.attach_grad()
    with mx.autograd.record():
        y = getattr(nd, name)(x)
    y.backward()
    assert x.grad.asscalar() == slope
    exe = getattr(sym, name)(sym.var("a")).simple_bind(mx.cpu(), a=(1,))
    exe.forward(is_train=True, a=nd.array([7.0]))
    exe.backward(nd.ones(1))
    assert exe.grad_arrays[0].asscalar() == slope


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_temporary_space_is_asked_of_the_chosen_kernel(dtype):
    x = nd.array([1, 2, 3], dtype=dtype)
    assert nd.form_tmp(x).asnumpy().tolist() == [1, 2, 3]
    exe = sym.form_tmp(sym.var("a", dtype=dtype)).simple_bind(mx.cpu(), a=(3,), grad_req="null")
    exe.arg_dict["a"][:] = x
    assert exe.forward()[0].asnumpy().tolist() == [1, 2, 3]


def test_shapes_follow_without_dtypes():
    y = sym.form_index(sym.var("a"))
    assert y.infer_shape(a=(4, 3))[1] == [(4, 3)]
    with pytest.raises(mx.MXNetError, match="form_index: Check failed"):
        nd.form_index(nd.ones(3))
    assert y.infer_type(a="int32")[1] == [np.float32]


def test_kernels_of_a_gpu_are_listed_and_say_why_they_do_not_run():
    assert mx.op.kernels("form_gpu")[0][1] == "device == gpu"
    text = r"form_gpu.*: no kernel matches on cpu .*\n.*does not match: device == gpu \[false\]"
    with pytest.raises(mx.MXNetError, match=text):
        nd.form_gpu(nd.ones(3))
    with pytest.raises(mx.MXNetError, match=text):
        sym.form_gpu(sym.var("a")).simple_bind(mx.cpu(), a=(3,), grad_req="null")
    with pytest.raises(mx.MXNetError, match=r"gpu\(0\) is not available"):
        sym.form_gpu(sym.var("a")).simple_bind(mx.gpu(0), a=(3,))
