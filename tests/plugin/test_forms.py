"""Gradients by names of arguments, sizes and inference by dtype, kernels of a GPU."""

import re
import sys

import numpy as np
import pytest
from plugins import compiled
from processes import printed

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


def test_one_operator_makes_the_gradients_of_any_number_of_inputs():
    for n in (1, 2, 5):
        arrays = [nd.array([1.0, 10.0]) for _ in range(n)]
        for array in arrays:
            array.attach_grad()
        with mx.autograd.record():
            y = nd.form_weighted(*arrays)
        y.backward(nd.array([1.0, 2.0]))
        total = n * (n + 1) / 2
        assert y.asnumpy().tolist() == [total, 10 * total]
        assert [a.grad.asnumpy().tolist() for a in arrays] == [[k, 2 * k] for k in range(1, n + 1)]
    with pytest.raises(mx.MXNetError, match=re.escape("vs. (3,)")):
        nd.form_weighted(nd.ones(3), nd.ones(2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_temporary_space_is_asked_of_the_chosen_kernel(dtype):
    x = nd.array([1, 2, 3], dtype=dtype)
    assert nd.form_tmp(x).asnumpy().tolist() == [1, 2, 3]
    exe = sym.form_tmp(sym.var("a", dtype=dtype)).simple_bind(mx.cpu(), a=(3,), grad_req="null")
    exe.arg_dict["a"][:] = x
    assert exe.forward()[0].asnumpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("form_space", {"bytes": 2**62}),
        ("form_space", {"bytes": -1}),
        ("mx_space", {"shape": (2**31, 2**28)}),
        ("mx_space", {"shape": (2**31, 2**30)}),  # 2^64 bytes
        ("mx_space", {"shape": (2**40, 2**40)}),
    ],
)
def test_absurd_temporary_space_is_an_error_of_the_node(name, given):
    mx.load_library(compiled("mxnet_more.cc"))
    x = nd.array([1, 2, 3])
    with pytest.raises(MemoryError, match=f"{name}: cannot get [0-9]+ bytes of temporary space"):
        getattr(nd, name)(x, **given).asnumpy()
    y = getattr(sym, name)(sym.var("x"), name="node", **given)
    exe = y.simple_bind(mx.cpu(), x=(3,), grad_req="null")
    with pytest.raises(MemoryError, match=f"{name} 'node': cannot get [0-9]+ bytes"):
        exe.forward()[0].asnumpy()


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what Linux counts, in KiB")
def test_temporary_space_that_is_not_used_costs_nothing():
    text = printed(
        f"""
        import resource
        import rsnet as mx
        from rsnet import nd

        def most():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        mx.load_library({str(compiled("oneflow_forms.cpp"))!r})
        mx.load_library({str(compiled("mxnet_more.cc"))!r})
        x, before = nd.array([1, 2, 3]), most()
        print(nd.form_space(x, bytes=2**30).asnumpy().tolist())
        print(nd.mx_space(x, shape=(2**14, 2**13)).asnumpy().tolist(), most() - before < 2**18)
        """
    )
    assert text.split("\n") == ["[1.0, 2.0, 3.0]", "[1.0, 2.0, 3.0] True"]


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


def test_names_of_mxnet_sources_beyond_the_tutorials():
    mx.load_library(compiled("mxnet_more.cc"))
    x = np.array([-1, 0, 0.5, 2], "float32")

    def expected(slope, size):
        return np.minimum(2 * x, slope + x / 2 - 3 * x * x) + size

    for given, want in [
        ({"size": 1}, expected(2, 1)),
        ({"size": 3, "alpha": 0}, expected(0, 3)),
        ({"slope": 5, "size": -1}, expected(5, -1)),
    ]:
        assert np.allclose(nd.mx_more(nd.array(x), **given).asnumpy(), want)
        node = sym.load_json(sym.mx_more(sym.var("x"), **given).tojson())
        exe = node.simple_bind(mx.cpu(), x=x.shape, grad_req="null")
        assert np.allclose(exe.forward(x=nd.array(x))[0].asnumpy(), want)
    with pytest.raises(mx.MXNetError, match="missing parameter 'size'"):
        nd.mx_more(nd.array(x))
    for big in (2**64 - 2, 2**63):
        with pytest.raises(mx.MXNetError, match=f"big is {big}"):
            nd.mx_more(nd.array(x), size=1, big=big).asnumpy()
    for bad in (2**64, -1, 1.5):
        with pytest.raises(mx.MXNetError, match="long \\(non-negative\\)"):
            nd.mx_more(nd.array(x), size=1, big=bad)
    assert "default=18446744073709551615" in nd.mx_more.__doc__
    with pytest.raises(mx.MXNetError, match="cannot have its attributes"):
        mx.user_op_builder("b").Op("mx_more")


def test_random_numbers_in_expressions():
    mx.load_library(compiled("mxnet_more.cc"))
    x = nd.array(np.full((100, 200), 0.25))
    mx.random.seed(1)
    drawn = [nd.mx_noise(x).asnumpy() for _ in range(2)]
    assert set(np.unique(drawn[0])) == {0, 1}
    assert abs(drawn[0].mean() - 0.25) < 0.02
    assert (drawn[0] != drawn[1]).any()
    mx.random.seed(1)
    assert (nd.mx_noise(x).asnumpy() == drawn[0]).all()
    normal = nd.mx_noise(x, gaussian=True).asnumpy()
    assert abs(normal.mean()) < 0.05
    assert abs(normal.std() - 1) < 0.05


def test_places_of_elements_and_nodes_of_gradients():
    mx.load_library(compiled("mxnet_more.cc"))
    a = np.arange(1, 13).reshape(3, 1, 4)
    b = np.arange(1, 11).reshape(1, 5, 2)[:, :, :1]
    for dtype in ("float32", "int64", "uint8"):
        y = nd.mx_product(nd.array(a, dtype=dtype), nd.array(b, dtype=dtype))
        assert (y.asnumpy() == a * b).all()
    x = nd.ones((1, 2, 3))
    x.attach_grad()
    with mx.autograd.record():
        y = nd.mx_product(x, nd.ones((1, 2, 3)))
    y.backward()
    assert (x.grad.asnumpy() == 2).all()


@pytest.mark.parametrize(
    ("dtype", "tol"), [("float16", 2e-3), ("float32", 1e-6), ("float64", 1e-15)]
)
def test_softmax_is_as_precise_as_its_dtype(dtype, tol):
    mx.load_library(compiled("mxnet_more.cc"))
    x = np.random.RandomState(0).randn(4, 7).astype(dtype)
    e = np.exp(x.astype("float64"))
    got = nd.mx_rows_softmax(nd.array(x, dtype=dtype)).asnumpy()
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=tol)


def test_a_librarys_own_operator_comes_before_a_built_in_one_of_gradients():
    x = nd.array([1.0, 2.0])
    x.attach_grad()
    with mx.autograd.record():
        y = nd.scalar_add(x, by=3)
    y.backward()
    assert y.asnumpy().tolist() == [3, 6] and x.grad.asnumpy().tolist() == [3, 3]


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("input", "invalid input 'x' of scalar_mul: expected one of: in"),
        ("attribute", "invalid attribute 'factor' of scalar_mul: expected one of: has_int_operand"),
        ("operand", "a scalar operator of a gradient has no operand: expected has_int_operand"),
    ],
)
def test_what_a_built_in_operator_of_gradients_does_not_know_is_an_error(mode, text):
    x = nd.ones(2)
    x.attach_grad()
    with mx.autograd.record():
        y = nd.form_misuse(x, mode=mode)
    with pytest.raises(mx.MXNetError, match=f"form_misuse.*{text}"):
        y.backward()


@pytest.mark.parametrize("size", [100, 8192, 8193, 100_000])
@pytest.mark.parametrize("name", ["mx_refusing", "scalar_add"])
def test_the_class_of_an_error_does_not_depend_on_the_size(name, size):
    mx.load_library(compiled("mxnet_more.cc"))
    with pytest.raises(NotImplementedError, match=f"{name}: an element is below 0"):
        getattr(nd, name)(-nd.ones(size)).asnumpy()


def test_requests_that_depend_on_parameters_draw_numbers_of_their_own():
    mx.load_library(compiled("mxnet_more.cc"))
    first, second = (y.asnumpy() for y in nd.mx_draws(nd.ones(4), kinds=2))
    assert (first != second).all()
    x = sym.var("x")
    twice = [sym.mx_draws(x, kinds=1)[0] for _ in range(2)]
    exe = (twice[0] - twice[1]).simple_bind(mx.cpu(), x=(4,), grad_req="null")
    assert exe.forward()[0].asnumpy().all()
    assert not nd.mx_draws(nd.ones(4))[0].asnumpy().any()


def test_an_extent_of_an_attribute_may_be_negative():
    net = sym.no_reshape(sym.var("x"), shape=(2, -1))
    assert net.infer_shape(x=(3, 4))[1] == [(2, 6)]
    with pytest.raises(mx.MXNetError, match="no_reshape"):
        sym.no_reshape(sym.var("x"), shape=(5, -1)).infer_shape(x=(3, 4))


def test_outputs_that_are_like_the_inputs_in_their_places():
    net = sym.no_pairs(sym.var("a"), sym.var("b"))
    assert net.infer_shape(a=(2,), b=(3, 4))[1] == [(2,), (3, 4)]
    assert net.infer_type(a="float64", b="int32")[1] == [np.float64, np.int32]
