"""OneFlow's and MXNet's C++ names: operators, kernels, gradients, states, resources."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from plugins import compiled, compiled_text
from processes import printed

import rsnet as mx
from rsnet import autograd, nd, sym
from rsnet.test_utils import check_numeric_gradient

pytestmark = pytest.mark.process

X = np.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], np.float32)


@pytest.fixture(scope="module")
def oneflow():
    return mx.load_library(compiled("oneflow_ops.cpp"))


@pytest.fixture(scope="module")
def mxnet():
    return mx.load_library(compiled("mxnet_ops.cc"))


def gradient(f, *arrays):
    xs = [nd.array(a, dtype=a.dtype) for a in arrays]
    for x in xs:
        x.attach_grad()
    with autograd.record():
        y = f(*xs)
    y.backward()
    return y.asnumpy(), *(x.grad.asnumpy() for x in xs)


# OneFlow ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_by_dtype_and_a_gradient_of_the_older_style(oneflow, dtype):
    x = X.astype(dtype)
    y, dx = gradient(nd.of_ramp, x)
    assert np.array_equal(y, np.maximum(x, 0)) and np.array_equal(dx, (x > 0).astype(dtype))
    with pytest.raises(mx.MXNetError, match="no kernel matches on cpu for in: int32"):
        nd.of_ramp(nd.array(X, dtype="int32"))
    assert [k[1] for k in mx.op.kernels("of_ramp")][2] == (
        "(device == gpu & dtype(out) in {float32})"
    )


def test_a_gradient_of_oneflows_operators(oneflow):
    y, dx = gradient(nd.of_triple_square, X)
    assert np.allclose(y, 3 * X * X) and np.allclose(dx, 6 * X)
    node = sym.of_triple_square(sym.var("a"), name="t")
    check_numeric_gradient(node, [X], numeric_eps=1e-2, rtol=1e-2, atol=1e-2)
    exe = node.simple_bind(mx.cpu(), a=X.shape, grad_req="null")
    assert np.allclose(exe.forward(a=nd.array(X))[0].asnumpy(), 3 * X * X)


def test_variable_and_optional_arguments(oneflow):
    arrays = [nd.array(X), nd.array(X), nd.array(2 * X)]
    assert np.allclose(nd.of_total(*arrays[:2]).asnumpy(), 2 * X)
    assert np.allclose(nd.of_total(*arrays).asnumpy(), 4 * X)
    both = nd.of_total(*arrays, arg_counts=(2, 1), out_counts=(2,))
    assert [np.allclose(y.asnumpy(), 4 * X) for y in both] == [True, True]
    a, b, c = arrays
    for named in ({"in": [a, b], "extra": c}, {"in": (a, b), "extra": [c]}):
        assert np.allclose(nd.of_total(**named).asnumpy(), 4 * X)
    assert np.allclose(nd.of_total(a, b, extra=c).asnumpy(), 4 * X)
    assert np.allclose(nd.of_total(**{"in": [a, b]}, extra=None).asnumpy(), 2 * X)
    node = sym.of_total(sym.var("a"), sym.var("b"), extra=sym.var("c"), name="t")
    assert node.list_arguments() == ["a", "b", "c"]
    again = sym.load_json(node.tojson()).bind(mx.cpu(), dict(zip("abc", arrays, strict=True)))
    assert np.allclose(again.forward()[0].asnumpy(), 4 * X)
    assert "extra : NDArray, optional, by name" in nd.of_total.__doc__
    for given, text in [
        ({"arg_counts": (2, 1), "extra": c}, "both arrays by name and arg_counts"),
        ({"in": [a, b], "extra": c, "none": a}, "unexpected array 'none'"),
        ({"in": [a, b], "extra": "x"}, "expected an NDArray"),
        ({"extra": c}, "argument 'in' has 0 arrays, expected at least 2"),
    ]:
        with pytest.raises((mx.MXNetError, TypeError, AssertionError), match=text):
            nd.of_total(**given)
    with pytest.raises(
        TypeError, match="got 1 arrays without a name, expected none beside all of its inputs"
    ):
        nd.of_total(a, **{"in": [a, b], "extra": c})
    build = mx.user_op_builder("b").Op("of_total").Input("in", arrays).Output("out", 2)
    assert len(build.Build().InferAndTryRun().RemoteBlobList()) == 2
    with pytest.raises(mx.MXNetError, match="of_total: .*expected at least 2, 2 of 'in'"):
        nd.of_total(arrays[0])
    with pytest.raises(mx.MXNetError, match="of_total"):
        nd.of_total(arrays[0], nd.ones((5,)))
    shown = [str(s) for s in mx.sbp.signatures("of_total", (4,), (4,))]
    assert len(shown) == 3 and "P" in shown[1]


def test_attributes_of_every_kind(oneflow):
    defaults = {
        "a_int32": 1, "a_int64": 0, "a_bool": True, "a_float": 0.5, "a_double": 0.25,
        "a_string": "four", "a_shape": (2, 3), "a_type": "float64", "l_int32": (10, 11, 12),
        "l_int64": (5,), "l_float": (0.5, 1.5), "l_type": ("float32", "int32"),
        "l_shape": ((2, 2), (3,)), "l_string": ("it's", "two"),
    }  # fmt: skip
    base = 1 + 1 + 0.5 + 0.25 + 4 + 6 + 3 + 33 + 5 + 2 + (2 + 5) + (4 + 3) + (4 + 3)
    x = nd.ones(1)
    assert nd.of_attrs(x).asscalar() == np.float32(base + 2**40)
    assert nd.of_attrs(x, **defaults).asscalar() == base
    changed = {**defaults, "a_int32": -7, "l_float": (2.0,), "l_string": (), "a_shape": ()}
    assert nd.of_attrs(x, **changed).asscalar() == base - 8 + 0 - 7 - 5
    node = sym.of_attrs(sym.var("x"), **changed)
    again = sym.load_json(node.tojson())
    exe = again.bind(mx.cpu(), {"x": x})
    assert exe.forward()[0].asscalar() == base - 20
    with pytest.raises(mx.MXNetError, match="invalid a_int32 '3000000000': expected int"):
        nd.of_attrs(x, a_int32=3_000_000_000)


def test_checks_and_kernels_by_attribute(oneflow):
    x = nd.ones((2, 2))
    assert nd.of_layout(x, by=5).asnumpy().tolist() == [[5, 5], [5, 5]]
    assert nd.of_layout(x, data_format="channels_last").asnumpy()[0, 0] == -1
    with pytest.raises(mx.MXNetError, match="of_layout: data_format is NCHW"):
        nd.of_layout(x, data_format="NCHW")


def test_state_and_temporary_space(oneflow):
    exe = sym.of_runs(sym.var("a")).simple_bind(mx.cpu(), a=(2,), grad_req="null")
    counts = [exe.forward()[0].asnumpy()[0] for _ in range(3)]
    assert counts == [1, 2, 3]
    assert nd.of_runs(nd.ones(2)).asnumpy()[0] == 1  # another node, another state
    with pytest.raises(mx.MXNetError, match="'in' has dtype int32 and is read as float32"):
        nd.of_wrong_type(nd.ones(2, dtype="int32")).asnumpy()


def test_the_tutorials_mistakes_are_explained():
    head = (
        '#include "oneflow/core/framework/framework.h"\n'
        "namespace oneflow { static Maybe<void> Like(user_op::InferContext*) "
        "{ return Maybe<void>::Ok(); }\n"
    )
    checked = head + (
        'REGISTER_USER_OP("of_wrong_default").Input("in").Output("out")'
        '.Attr<std::string>("data_format", "NCHW").SetTensorDescInferFn(Like).SetCheckAttrFn('
        "[](const user_op::UserOpDefWrapper&, const user_op::UserOpConfWrapper& conf) "
        '-> Maybe<void> { return Error::CheckFailed() << conf.attr<std::string>("data_format"); });'
        "}"
    )
    with pytest.raises(mx.MXNetError, match="defaults of the attributes are refused: NCHW"):
        mx.load_library(compiled_text(checked))
    for text, error in [
        ('REGISTER_USER_OP("a").Input("in").Output("out").Attr<shape>("s");}', "shape"),
        (
            "struct K final : user_op::OpKernel { void Compute(user_op::KernelComputeContext*) "
            "override {} bool AlwaysComputeWhenAllOutputsEmpty() const override "
            "{ return false; } };}",
            "marked .override., but does not override",
        ),
    ]:
        with pytest.raises(mx.build.CompileError, match=error):
            compiled_text(head + text)
    kernel_only = head + 'REGISTER_USER_KERNEL("of_nobody");}'
    with pytest.raises(mx.MXNetError, match="SetCreateFn<Kernel>.. is missing"):
        mx.load_library(compiled_text(kernel_only))


# MXNet --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_polynomial(mxnet, dtype):
    x = X.astype(dtype)
    y, dx = gradient(lambda x: nd.mx_poly(x, a=2, b=3, c=1), x)
    assert y.dtype == x.dtype
    assert np.allclose(y, 2 * x * x + 3 * x + 1) and np.allclose(dx, 4 * x + 3)
    big = np.linspace(-1, 1, 50_000).astype(dtype)
    assert np.allclose(nd.mx_poly(nd.array(big, dtype=dtype), a=1, mode="negated").asnumpy(),
                       -(big * big + big), atol=1e-3)  # fmt: skip


def test_parameters_of_a_struct(mxnet):
    doc = nd.mx_poly.__doc__
    assert "The polynomial y = a x^2 + b x + c." in doc
    assert "mode : {'negated', 'plain'},optional, default='plain'" in doc
    assert "axis : int or None, optional, default=None" in doc
    for given, text in [
        ({"mode": "other"}, "invalid mode 'other': expected one of: "),
        ({"b": 11}, "invalid b '11.*': expected -10 to 10"),
        ({"a": "x"}, "invalid a 'x': expected float"),
        ({"e": 1}, "unknown parameter 'e'"),
    ]:
        with pytest.raises(mx.MXNetError, match=text):
            nd.mx_poly(nd.ones(2), **given)
    assert nd.mx_poly(nd.ones(2), axis=3, sizes=(1, 2)).shape == (2,)


def test_inference_in_both_directions(mxnet):
    y = sym.mx_poly(sym.var("a")) + sym.var("b", shape=(4, 5))
    assert y.infer_shape()[0] == [(4, 5), (4, 5)]
    assert y.infer_type(b="float64")[0] == [np.float64] * 2


@pytest.mark.parametrize("request_", ["write", "add", "null"])
def test_requests_of_an_executor(mxnet, request_):
    grad = nd.ones(X.shape)
    node = sym.mx_poly(sym.var("a"), a=1, b=0)
    exe = node.bind(mx.cpu(), {"a": nd.array(X)}, {"a": grad}, request_)
    exe.forward(is_train=True)
    exe.backward(nd.ones(X.shape))
    expected = {"write": 2 * X, "add": 2 * X + 1, "null": np.ones_like(X)}[request_]
    assert np.allclose(grad.asnumpy(), expected)


def test_random_numbers_states_and_a_gradient_of_nodes(mxnet):
    calls = nd.zeros(1)
    mx.random.seed(1)
    first = nd.mx_noisy(nd.array(X), calls).asnumpy() - X
    second = nd.mx_noisy(nd.array(X), calls).asnumpy() - X
    mx.random.seed(1)
    again = nd.mx_noisy(nd.array(X), calls).asnumpy() - X
    assert np.array_equal(first, again) and not np.array_equal(first, second)
    assert 0 <= first.min() and first.max() < 1.0001 and calls.asscalar() == 3
    _, dx, _ = gradient(nd.mx_noisy, X, np.zeros(1, np.float32))
    assert np.array_equal(dx, np.full_like(X, 3))


def test_a_class_with_a_backward_of_its_own(mxnet):
    layer = sym.MxDense(sym.var("data"), num_hidden=4, name="fc")
    assert layer.list_arguments() == ["data", "fc_weight", "fc_bias"]
    assert layer.list_auxiliary_states() == ["fc_calls"]
    bare = sym.MxDense(sym.var("data"), num_hidden=4, no_bias=True, name="fc")
    assert bare.list_arguments() == ["data", "fc_weight"]
    assert layer.infer_shape(data=(5, 2, 3))[0] == [(5, 2, 3), (4, 6), (4,)]
    rng = np.random.RandomState(0)
    x, w, b = (rng.randn(*s).astype(np.float32) for s in ((5, 3), (4, 3), (4,)))
    plain = sym.FullyConnected(sym.var("data"), num_hidden=4, name="fc")
    found = []
    for node in (layer, plain):
        exe = node.simple_bind(mx.cpu(), data=(5, 3))
        for name, value in (("data", x), ("fc_weight", w), ("fc_bias", b)):
            exe.arg_dict[name][:] = value
        exe.forward(is_train=True)
        exe.backward(nd.ones((5, 4)))
        found.append([exe.outputs[0].asnumpy(), *(g.asnumpy() for g in exe.grad_arrays)])
        if node is layer:
            assert exe.aux_dict["fc_calls"].asscalar() == 1
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(*found))
    with pytest.raises(mx.MXNetError, match="invalid num_hidden .*: expected at least 1"):
        nd.MxDense(nd.ones((2, 3)), nd.ones((4, 3)), nd.ones(4), nd.ones(1), num_hidden=0)
    with pytest.raises(mx.MXNetError, match="invalid shape .*: expected"):
        nd.MxDense(nd.ones((2, 3)), nd.ones((4, 9)), nd.ones(4), nd.ones(1), num_hidden=4)


def test_a_network_of_all_kinds_of_operators_learns(oneflow, mxnet):
    """Two plug-ins, a Python operator and built-in ones."""

    @mx.op.op("plugin_test_shift", views="numpy")
    def shift(x):
        return x + 0.5

    @shift.gradient
    def _(out_grads, inputs, outputs):
        return out_grads[0]

    calls = sym.var("calls", init=mx.init.Zero())
    net = sym.MxDense(sym.var("data"), calls=calls, num_hidden=16, name="fc1")
    net = sym.of_ramp(sym.plugin_test_shift(net))
    net = sym.FullyConnected(net, num_hidden=2, name="fc2")
    net = sym.SoftmaxOutput(sym.mx_poly(net, a=0, b=1), name="softmax")
    rng = np.random.RandomState(3)
    x = rng.randn(200, 4).astype(np.float32)
    labels = (x[:, 0] * x[:, 1] > 0).astype(np.float32)
    module = mx.mod.Module(sym.load_json(net.tojson()))
    data = mx.io.NDArrayIter(x, labels, batch_size=20)
    mx.random.seed(5)
    module.fit(data, num_epoch=30, initializer=mx.init.Xavier(),
               optimizer_params={"learning_rate": 0.3})  # fmt: skip
    assert module.score(data, "acc")[0][1] > 0.85


@pytest.fixture(scope="module")
def names():
    return mx.load_library(compiled("mxnet_names.cc"))


def test_tuples_of_every_kind(names):
    x = nd.zeros(5, dtype="float64")
    single = float(np.float32(0.1))
    assert nd.mx_tuples(x).asnumpy().tolist() == [2.1, -1, 7, 3, single]
    given = {"reals": (0.5, 0.25), "maybe": (4, None), "whole": [-(2**31), 2**31 - 1], "single": 1}
    want = [0.75, 4, -1, -1, 1]
    assert nd.mx_tuples(x, **given).asnumpy().tolist() == want
    net = sym.load_json(sym.mx_tuples(sym.var("x"), **given).tojson())
    assert net.eval(x=x)[0].asnumpy().tolist() == want
    assert nd.mx_tuples(x, reals=0.5, whole=8).asnumpy().tolist() == [0.5, -1, 7, 8, single]
    too_large = r"whole '\(2147483648,\)': .*2147483648: expected -2147483648 to 2147483647"
    with pytest.raises(mx.MXNetError, match=too_large):
        nd.mx_tuples(x, whole=2**31).wait_to_read()
    assert "single : float, optional, default=0.1\n" in nd.mx_tuples.__doc__


def test_a_rule_that_knows_no_scalars_leaves_shapes_unknown(names):
    with mx.np_shape():
        assert nd.mx_first(nd.array([3.0, 4.0])).asnumpy().tolist() == 3.0
        with pytest.raises(mx.MXNetError, match="mx_first.*shape"):
            nd.mx_first(nd.array(3.0)).wait_to_read()


def test_names_beside_those_of_the_tutorials(names):
    """Also inputs that are listed, and not described: they go by position in symbols, too."""
    assert names == ["mx_names", "mx_tuples", "mx_first"]
    x, s = nd.array([1.0, 2.0]), nd.array([0.5, 0.5])
    want = [1.5 + 5 + 30 + 1, 2.5 + 5 + 30 + 1]
    assert nd.mx_names(x, s, b=3).asnumpy().tolist() == want
    for y in (
        sym.mx_names(sym.var("x"), sym.var("s"), b=3),
        sym.mx_names(data=sym.var("x"), sum=sym.var("s"), b=3),
    ):
        exe = y.bind(mx.cpu(), {"x": x, "s": s}, {"x": nd.zeros(2), "s": nd.zeros(2)})
        assert exe.forward(is_train=True)[0].asnumpy().tolist() == want
        exe.backward(nd.array([7.0, 8.0]))
        assert [g.asnumpy().tolist() for g in exe.grad_arrays] == [[7, 8]] * 2


LISTINGS = os.environ.get("RSNET_LISTINGS")


@pytest.mark.skipif(LISTINGS is None, reason="RSNET_LISTINGS names no folder of listings")
def test_listings_compile_unchanged():
    def read(name):
        return (Path(LISTINGS) / name).read_text()

    relu = read("oneflow_myrelu_op.cpp") + read("oneflow_myrelu_cpu_kernel.cpp")
    quadratic = "#include <rsnet/mxnet.h>\nnamespace mxnet { namespace op {\n"
    quadratic += read("mxnet_quadratic.cpp") + "}}"
    head = '#include "oneflow/core/framework/framework.h"\nnamespace oneflow { namespace {\n'
    myop = head + read("oneflow_myop.cpp") + "}}"
    code = f"""
        import rsnet as mx
        print(mx.load_library({compiled_text(relu)!r}))
        print(mx.nd.myrelu(mx.nd.array([-2, -1, 0, 1, 2])).asnumpy().tolist())
        print(mx.load_library({compiled_text(quadratic)!r}))
        x = mx.nd.array([[1, 2], [3, 4]])
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.quadratic(x, a=1, b=2, c=3)
        y.backward()
        print(y.asnumpy().tolist(), x.grad.asnumpy().tolist())
        print(mx.load_library({compiled_text(myop)!r}))
    """
    assert printed(code).splitlines() == [
        "['myrelu']",
        "[0.0, 0.0, 0.0, 1.0, 2.0]",
        "['quadratic', '_backward_quadratic']",
        "[[6.0, 11.0], [18.0, 27.0]] [[4.0, 6.0], [8.0, 10.0]]",
        "['myop']",
    ]


#: A compiler of CUDA, for which nothing else is needed than its own headers.
NVCC = os.environ.get("NVCC") or shutil.which("nvcc")


@pytest.mark.slow
@pytest.mark.skipif(LISTINGS is None or NVCC is None, reason="there are no listings, or no nvcc")
@pytest.mark.parametrize("listing", ["oneflow", "mxnet"])
def test_listings_for_a_gpu_compile(listing, tmp_path):
    """Kernels of CUDA, launched on the stream of the call; nothing runs here."""
    source = tmp_path / "listing.cu"
    if listing == "oneflow":
        source.write_text((Path(LISTINGS) / "oneflow_myrelu_gpu_kernel.cu").read_text())
    else:
        quadratic = (Path(LISTINGS) / "mxnet_quadratic.cpp").read_text()
        source.write_text(f"""
            #include <rsnet/mxnet.h>
            namespace mxnet {{ namespace op {{ {quadratic}
            NNVM_REGISTER_OP(quadratic)
                .set_attr<FCompute>("FCompute<gpu>", QuadraticOpForward<gpu>);
            }} }}
        """)
    flags = [f for f in mx.sysconfig.get_compile_flags() if f != "-fPIC"]
    command = [NVCC, *flags, "-Xcompiler", "-fPIC", "-c", str(source), "-o", str(tmp_path / "x.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
