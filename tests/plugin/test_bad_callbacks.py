"""Libraries of which one callback misbehaves: a clear error of the call, and a process that goes
on.
"""

import gc

import pytest
from plugins import compiled
from processes import printed

import rsnet as mx
from rsnet import autograd, nd, sym

pytestmark = pytest.mark.process

#: Operators of `hostile_parts.cpp`, and what a call of each says.
CALLS = {
    "odd_check": r"C\+\+ exception: thrown in a callback",
    "odd_names": r"C\+\+ exception: thrown in a callback",
    "odd_names_twice": "invalid name 'x', which 'names' listed: expected distinct names",
    "odd_names_null": "the name of an array is null",
    "odd_parse": r"C\+\+ exception: thrown while making",
    "odd_adds_name": "invalid callback for add_name: expected one of: names",
    "odd_adds_inplace": "invalid callback for add_inplace: expected one of: inplace",
    "odd_adds_temp": "invalid callback for add_temp: expected one of: resources",
    "odd_adds_random": "invalid callback for add_random: expected one of: resources",
    "odd_adds_sbp": "invalid callback for add_sbp: expected one of: sbp",
    "odd_adds_dep": "invalid callback for add_dep: expected one of: deps",
    "odd_sets_shape": "invalid callback for set_shape: expected one of: infer, infer_shape, "
    "infer_type",
    "odd_sets_dtype": "invalid callback for set_dtype: expected one of: infer, infer_shape, "
    "infer_type",
    "odd_makes_node": "this function is for the rule of a gradient only",
    "odd_null_part": "invalid parallel_for of 8 items: expected 0 or more, and a function",
    "odd_negative_part": "invalid parallel_for of -8 items: expected 0 or more, and a function",
    "odd_endless_parts": "failed with status 77",
    "odd_kernel_state": r"C\+\+ exception: thrown while making",
    "odd_state": r"C\+\+ exception: thrown while making",
}

#: Operators whose graph is refused, and what is said of it.
GRAPHS = {
    **CALLS,
    "odd_inplace": r"C\+\+ exception: thrown in a callback",
    "odd_pair": r"invalid in-place pair \(3, -1\): expected one of 1 inputs and one of 1 outputs",
    "odd_kernel_pair": r"invalid in-place pair \(3, -1\)",
    "odd_resources": r"C\+\+ exception: thrown in a callback",
}

#: Operators whose gradient is refused, and what is said of it.
GRADIENTS = {
    "grad_throws": r"C\+\+ exception: thrown in a callback",
    "grad_nothing": "the gradient rule bound no gradient to input 'x', which needs one",
    "grad_no_entry": "invalid entry 99",
    "grad_no_input": "invalid input 7: expected 0 to 0",
    "grad_no_operator": "unknown operator 'no_such_operator' in the gradient rule: expected a",
    "grad_later_node": "a node of a gradient reads one that was made after it",
    "grad_other_shape": r"shape",
    "grad_modifies": "the gradient rule's operator sgd_mom_update 'q': it modifies its input 'mom'",
    "grad_bad_attribute": "the gradient rule's operator sum 'q': invalid axis 'junk'",
    "grad_deps": r"_backward_no_such_operator|thrown in a callback",
}


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled("hostile_parts.cpp"))


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    with pytest.raises(mx.MXNetError, match=f"(?s){name}.*({CALLS[name]})"):
        getattr(nd, name)(nd.ones(3), n=1).asnumpy()


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name):
    with pytest.raises(mx.MXNetError, match=f"(?s){name}.*({GRAPHS[name]})|{GRAPHS[name]}"):
        node = getattr(sym, name)(sym.var("a") + 1, n=1, name="node")
        exe = node.simple_bind(mx.cpu(), a=(3,), grad_req="null")
        exe.forward()[0].asnumpy()


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    x = nd.ones(3)
    x.attach_grad()
    with pytest.raises(mx.MXNetError, match=f"(?s){name}.*({GRADIENTS[name]})"):
        with autograd.record():
            y = getattr(nd, name)(x, n=1)
        y.backward()
        x.grad.asnumpy()
    assert x.asnumpy().tolist() == [1, 1, 1]
    with pytest.raises(mx.MXNetError, match=f"(?s){name} 'node'.*({GRADIENTS[name]})"):
        node = getattr(sym, name)(sym.var("a"), n=1, name="node")
        exe = node.simple_bind(mx.cpu(), a=(3,))
        exe.forward(is_train=True)
        exe.backward(nd.ones(3))
        exe.grad_arrays[0].asnumpy()


def test_destroyers_that_throw_are_of_no_consequence():
    for i in range(5):
        assert nd.fine_destroyers(nd.ones(3), n=i).asnumpy().tolist() == [1, 1, 1]
    node = sym.fine_destroyers(sym.var("a"), n=1)
    exe = node.simple_bind(mx.cpu(), a=(3,), grad_req="null")
    assert exe.forward(a=nd.ones(3))[0].asnumpy().tolist() == [1, 1, 1]
    del exe, node
    gc.collect()


def test_a_library_may_be_deleted_once_it_is_loaded(tmp_path):
    """What is first used of it after that comes from memory: kernels, gradients, and its name."""
    code = f"""
        import os, shutil
        import numpy as np
        import rsnet as mx
        from plugins import compiled
        path = {str(tmp_path / "libgone.so")!r}
        shutil.copy(compiled("scale.c"), path)
        mx.load_library(path)
        os.remove(path)
        x = mx.nd.arange(5000)
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.c_scale(x, by=3)
        y.backward()
        print(float(y[2].asscalar()), float(x.grad[4999].asscalar()))
        print("libgone.so" in mx.sym.c_scale(mx.sym.var("a")).tojson())
        try:
            mx.load_library(path)
        except OSError as error:
            print("No such file" in str(error))
        print(mx.load_library(compiled("scale.c")))
    """
    expected = ["6.0 3.0", "True", "True", "['c_scale', 'c_scaled']"]
    assert printed(code).splitlines() == expected
