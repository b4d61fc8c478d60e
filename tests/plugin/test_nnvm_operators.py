"""Operators by NNVM's names: parsers of their own, hidden outputs in gradients, functors."""

import numpy as np
import pytest
from plugins import compiled
from processes import printed

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process  # the compiler is one


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled("nnvm_more.cc"))


def test_parsers_get_the_parameters_of_a_call():
    x = nd.ones(1)
    for name, default in [("no_struct", 3), ("no_dict", 3), ("no_text", None)]:
        function = getattr(nd, name)
        assert function(x, scalar=2.5).asscalar() == 2.5
        net = getattr(sym, name)(sym.var("x"), scalar=2.5)
        assert sym.load_json(net.tojson()).eval(x=x)[0].asscalar() == 2.5
        if default is not None:
            assert function(x).asscalar() == default
    with pytest.raises(mx.MXNetError, match="no_text: .*scalar"):
        nd.no_text(x)


def test_gradients_get_hidden_outputs():
    for name in ("no_all", "no_nodes"):
        x = nd.array([1, 2, 3])
        x.attach_grad()
        with mx.autograd.record():
            y = getattr(nd, name)(x)
        y.backward()
        assert x.grad.asnumpy().tolist() == [2, 4, 6]
        exe = getattr(sym, name)(sym.var("x")).bind(mx.cpu(), {"x": x}, {"x": nd.zeros(3)})
        exe.forward(is_train=True)
        exe.backward(nd.ones(3))
        assert exe.grad_dict["x"].asnumpy().tolist() == [2, 4, 6]
    x.attach_grad()
    with mx.autograd.record():
        y = nd.no_few(x)
    with pytest.raises(mx.MXNetError, match="the gradient passes 2 arrays, expected 3"):
        y.backward()
        x.grad.asnumpy()


def test_functors_keep_nan_and_integers():
    nan, zero = nd.array([np.nan]), nd.zeros(1)
    assert np.isnan(nd.no_relu(nan).asscalar())
    for pair in ((nan, zero), (zero, nan)):
        assert np.isnan(nd.no_maximum(*pair).asscalar())
        assert np.isnan(nd.no_minimum(*pair).asscalar())
    assert nd.no_maximum(zero, zero + 1).asscalar() == 1
    assert nd.no_minimum(zero, zero + 1).asscalar() == 0
    whole = [2**31 - 1, 2**24 + 1, -(2**24) - 1]
    for name in ("no_floor", "no_ceil", "no_round"):
        function = getattr(nd, name)
        assert function(nd.array(whole, dtype="int32")).asnumpy().tolist() == whole
        assert function(nd.array([1.0, -3.0])).asnumpy().tolist() == [1, -3]
    assert nd.no_floor(nd.array([1.5, -1.5])).asnumpy().tolist() == [1, -2]


def test_absurd_numbers_of_arrays_are_refused_at_once():
    """In a process of its own, which does not have the memory for that many names."""
    path = compiled("nnvm_more.cc")
    code = f"""
        import resource
        import rsnet as mx
        mx.load_library({path!r})
        mx.nd.no_many(mx.nd.ones(1))
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
        for n in (2**31 - 1, -5):
            try:
                mx.nd.no_many(mx.nd.ones(1), num_args=n)
            except mx.MXNetError as error:
                print("smaller equal" in str(error) or "invalid number of arrays" in str(error))
    """
    assert printed(code).splitlines() == ["True", "True"]


def test_switches():
    assert nd.no_switches(nd.ones((1, 1, 1))).asscalar() == 3000 + 200 + 8 + 1 + 2 + 4
    with pytest.raises(mx.MXNetError, match="no_switches: .*expected at most 5"):
        nd.no_switches(nd.ones((1,) * 6)).asnumpy()


def test_bounds_of_floats_are_in_single_precision():
    x = nd.ones(1)
    for value in (0.1, 0.9):
        assert nd.no_single(x, low=value).asscalar() == np.float32(value)
    with pytest.raises(mx.MXNetError, match="invalid low '0.09': expected 0.1 to 0.9"):
        nd.no_single(x, low=0.09)
    with pytest.raises(mx.MXNetError, match="invalid eps '0.0009': expected at least 0.001"):
        nd.no_single(x, eps=0.0009)


def test_operators_without_parameters_take_none():
    with pytest.raises(mx.MXNetError, match="no_relu: .*slope"):
        nd.no_relu(nd.ones(1), slope=3)
    with pytest.raises(mx.MXNetError, match="no_relu.*slope"):
        sym.no_relu(sym.var("x"), slope=3)
