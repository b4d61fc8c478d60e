"""Operators registered by attributes: the quadratic operator of the tutorial, helpers, mistakes."""

import importlib.util

import numpy as np
import pytest
from places import EXAMPLES

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op
from rsnet.test_utils import check_numeric_gradient

EXAMPLE = EXAMPLES / "quadratic.py"


@pytest.fixture(scope="module", autouse=True)
def quadratic():
    spec = importlib.util.spec_from_file_location("quadratic_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


X = np.array([[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int32", "int64", "int8", "uint8"]
)
def test_values_for_every_dtype(dtype):
    y = nd.quadratic(nd.array(X, dtype=dtype), a=1, b=2, c=3)
    assert y.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(y.asnumpy(), [[6, 11], [18, 27]])


def test_gradient_by_autograd():
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = nd.quadratic(x, a=1, b=2, c=3)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 2 * X + 2)


def test_symbol_names_binding_and_backward():
    s = mx.sym.quadratic()
    assert s.list_arguments() == ["quadratic0_data"]
    exe = s.simple_bind(ctx=mx.cpu(), quadratic0_data=(1,))
    exe.forward()
    np.testing.assert_array_equal(exe.outputs[0].asnumpy(), [0])
    t = mx.sym.quadratic(mx.sym.Variable("x"), a=3, b=4, c=5, name="q")
    exe = t.simple_bind(ctx=mx.cpu(), x=(2, 2))
    exe.arg_dict["x"][:] = X
    exe.forward(is_train=True)
    exe.backward(nd.ones((2, 2)))
    np.testing.assert_allclose(exe.outputs[0].asnumpy(), 3 * X**2 + 4 * X + 5)
    np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), 6 * X + 4)


def test_numeric_gradient():
    data = mx.sym.Variable("data")
    check_numeric_gradient(mx.sym.quadratic(data, a=1, b=2, c=3), [X.astype("float32")], atol=1e-2)


def test_mutual_inference():
    s = mx.sym.quadratic(mx.sym.Variable("x"), name="q") + mx.sym.Variable("y", shape=(2, 3))
    args, outs, _ = s.infer_shape()
    assert args == [(2, 3), (2, 3)] and outs == [(2, 3)]


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_every_request(req):
    s = mx.sym.quadratic(mx.sym.Variable("x"), a=1, b=0, c=0)
    x, g = nd.array(X), nd.ones((2, 2))
    exe = s.bind(mx.cpu(), {"x": x}, args_grad={"x": g}, grad_req=req)
    exe.forward(is_train=True)
    exe.backward(nd.ones((2, 2)))
    want = {"write": 2 * X, "add": 2 * X + 1, "null": np.ones((2, 2))}[req]
    np.testing.assert_allclose(g.asnumpy(), want)


def test_parameters_and_documentation():
    with pytest.raises(MXNetError, match="invalid a .*: expected float"):
        nd.quadratic(nd.array(X), a="x")
    with pytest.raises(MXNetError, match="unknown parameter 'd'"):
        nd.quadratic(nd.array(X), d=1)
    assert "Coefficient of the quadratic term" in nd.quadratic.__doc__
    narg, names, types = mx.operator.get_operator_arguments("quadratic")
    assert names == ["data", "a", "b", "c"] and narg == 4
    assert types[1] == "float, optional, default=0"
    assert "quadratic" in mx.operator.get_all_registered_operators()


def test_json_round_trip():
    s = mx.sym.quadratic(mx.sym.Variable("x"), a=1.5, name="q")
    t = mx.sym.load_json(s.tojson())
    assert t.list_arguments() == ["x"] and t.tojson() == s.tojson()


def test_registering_again_returns_the_entry(quadratic):
    assert op.register("quadratic") is op.get("quadratic")
    with pytest.raises(MXNetError, match="invalid plevel 10 of attribute FInferShape"):
        op.register("quadratic").set_attr("FInferShape", op.ElemwiseShape(1, 1))
    op.register("quadratic").set_attr("TMarker", 1, plevel=5)
    op.register("quadratic").set_attr("TMarker", 2, plevel=11)
    assert op.get("quadratic").attr("TMarker") == 2
    op.get("quadratic").set_attr("TMarker", 3, plevel=6)
    assert op.get("quadratic").attr("TMarker") == 2
    with pytest.raises(MXNetError, match="built in|already registered"):
        op.register("relu").set_attr("FCompute<cpu>", lambda *a: None)
    with pytest.raises(TypeError, match="expected a function"):
        op.register("quadratic").set_attr("FMutateInputs", 3)


def test_alias_include_views_and_counts():
    seen = []

    def compute(attrs, ctx, inputs, req, outputs):
        seen.append(type(inputs[0]))
        np.add(inputs[0], inputs[1], out=outputs[0])
        outputs[1][...] = inputs[0] - inputs[1]

    op.register("t_base").set_attr("FInferType", op.ElemwiseType(2, 2))
    entry = (
        op.register("t_addsub")
        .include("t_base")
        .set_num_inputs(2)
        .set_num_outputs(2)
        .set_attr("FListInputNames", lambda attrs: ["lhs", "rhs"])
        .set_attr("FListOutputNames", lambda attrs: ["sum", "difference"])
        .set_attr("FInferShape", op.ElemwiseShape(2, 2))
        .set_attr("FCompute<cpu>", compute, views="numpy")
        .add_alias("t_sumdiff")
    )
    assert "FInferType" in repr(entry)
    a, b = nd.t_sumdiff(nd.array([3.0]), nd.array([1.0]))
    assert (a.asscalar(), b.asscalar()) == (4.0, 2.0) and seen == [np.ndarray]
    s = mx.sym.t_addsub(name="n")
    assert s.list_outputs() == ["n_sum", "n_difference"]
    assert s.list_arguments() == ["n_lhs", "n_rhs"]
    with pytest.raises(MXNetError, match="invalid number of inputs 1: expected 2"):
        nd.t_addsub(nd.array([1.0]))


def test_decorator_form():
    class Power(mx.Parameter):
        n: int = mx.field(2, doc="Exponent.", ge=1)

    @op.op("t_power", param=Power)
    def power(p, x):
        """x to the n."""
        return x**p.n

    @power.gradient
    def _(p, out_grads, inputs, outputs):
        return p.n * inputs[0] ** (p.n - 1) * out_grads[0]

    x = nd.array([2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        y = nd.t_power(x, n=3)
    y.backward()
    np.testing.assert_allclose(y.asnumpy(), [8, 27])
    np.testing.assert_allclose(x.grad.asnumpy(), [12, 27])
    assert "x to the n." in nd.t_power.__doc__


def test_gradient_function_over_entries():
    def gradient(node, out_grads):
        return [out_grads[0] * node.inputs[1], out_grads[0] * node.inputs[0]]

    def compute(attrs, ctx, inputs, req, outputs):
        op.assign(outputs[0], req[0], inputs[0] * inputs[1])

    (op.register("t_product").set_num_inputs(2).set_num_outputs(1)
       .set_attr("FListInputNames", lambda attrs: ["a", "b"])
       .set_attr("FInferShape", op.ElemwiseShape(2, 1))
       .set_attr("FInferType", op.ElemwiseType(2, 1))
       .set_attr("FCompute<cpu>", compute).set_attr("FGradient", gradient))  # fmt: skip
    a, b = nd.array([2.0]), nd.array([5.0])
    a.attach_grad(), b.attach_grad()
    with autograd.record():
        y = nd.t_product(a, b)
    y.backward()
    assert (a.grad.asscalar(), b.grad.asscalar()) == (5.0, 2.0)


def test_errors_of_attribute_functions_keep_their_type():
    class Odd(Exception):
        pass

    def raises(*args):
        raise Odd("shape of t_odd")

    (op.register("t_odd").set_num_inputs(1).set_num_outputs(1)
       .set_attr("FInferShape", raises).set_attr("FInferType", op.ElemwiseType(1, 1))
       .set_attr("FCompute<cpu>", lambda *a: None))  # fmt: skip
    with pytest.raises(Odd, match="shape of t_odd"):
        nd.t_odd(nd.array([1.0]))


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [((), (2, 3), (2, 3)), ((2, 0), (0, 3), (2, 3)), ((2, 3), (), (2, 3)), ((2, 3), None, (2, 3))],
)
def test_shape_assign(old, new, want):
    shapes = [old]
    assert op.shape_assign(shapes, 0, new) is True and shapes == [want]


def test_contradictions():
    with pytest.raises(MXNetError, match=r"invalid shape \(2, 4\) of entry 0: expected \(2, 3\)"):
        op.shape_assign([(2, 3)], 0, (2, 4))
    with pytest.raises(MXNetError, match="invalid dtype 'float64' of entry 0: expected float32"):
        op.type_assign([np.float32], 0, np.float64)
    with pytest.raises(MXNetError, match="input"):
        nd.t_product(nd.ones((2,)), nd.ones((3,)))


def test_the_parameter_that_counts_inputs_may_be_an_attribute():
    entry = op.register("t_counted").set_num_inputs(lambda a: int(a["num_args"]))
    entry.set_attr("key_var_num_args", "num_args")
    entry.set_attr("FInferShape", lambda a, i, o: op.shape_assign(o, 0, i[0]))
    entry.set_attr("FCompute<cpu>", lambda a, c, i, r, o: op.assign(o[0], r[0], nd.add_n(*i)))
    x = nd.ones((1,))
    assert nd.t_counted(x, x, x).asnumpy().tolist() == [3]
