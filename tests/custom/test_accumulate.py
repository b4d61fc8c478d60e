"""The request add reaches operators that declare it, in every form; sums are right in all."""

import itertools

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, nd, op, user_op

_count = itertools.count()
X = np.array([1, 2, 3], "float32")


def by_property(seen, accumulates):
    name = f"t_accumulate{next(_count)}"

    class Twice(mx.Operator):
        def forward(self, ctx, in_data, req, out_data, aux_states):
            self.assign(out_data[0], req[0], 2 * in_data[0])

        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
            seen.append(str(req[0]))
            self.assign(in_grad[0], req[0], 2 * out_grad[0])

    @mx.operator.register(name)
    class TwiceProperty(mx.OperatorProperty):
        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], []

        def accumulates(self):
            return accumulates

        def create_operator(self, ctx):
            return Twice()

    return getattr(mx.sym, name)


def by_custom(seen, accumulates):
    name = f"t_accumulate{next(_count)}"

    class Twice(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], 2 * in_data[0])

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            seen.append(str(req[0]))
            self.assign(in_grad[0], req[0], 2 * out_grad[0])

    @mx.operator.register(name)
    class TwiceProp(mx.operator.CustomOpProp):
        def accumulates(self):
            return accumulates

        def create_operator(self, ctx, in_shapes, in_dtypes):
            return Twice()

    return lambda x: mx.sym.Custom(x, op_type=name)


def by_attributes(seen, accumulates):
    name = f"t_accumulate{next(_count)}"

    def run(attrs, ctx, inputs, req, outputs):
        op.assign(outputs[0], req[0], 2 * inputs[0])

    def back(attrs, ctx, inputs, req, outputs):
        seen.append(str(req[0]))
        op.assign(outputs[0], req[0], 2 * inputs[0])

    (op.register(name).set_attr("FInferShape", op.ElemwiseShape(1, 1))
     .set_attr("FCompute<cpu>", run)
     .set_attr("FGradient", op.ElemwiseGradUseNone(f"_backward_{name}")))  # fmt: skip
    (op.register(f"_backward_{name}").set_attr("TIsBackward", True)
     .set_attr("TAccumulates", accumulates).set_attr("FCompute<cpu>", back))  # fmt: skip
    return getattr(mx.sym, name)


def by_kernel(seen, accumulates):
    """The gradient is an operator with a kernel of its own."""
    name, back = f"t_accumulate{next(_count)}", f"t_accumulate{next(_count)}"
    for each in (name, back):
        op.define(each, inputs="in", infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
    op.kernel(name)(lambda ctx: ctx.assign("out", 2 * ctx.inp("in")))

    @op.kernel(back, accumulates=accumulates)
    def _(ctx):
        seen.append(str(ctx.request("out")))
        ctx.assign("out", 2 * ctx.inp("in"))

    op.grad(name)(lambda ctx: ctx.bind("in", lambda: ctx.op(back, ctx.grad("out"))))
    return getattr(mx.sym, name)


FORMS = pytest.mark.parametrize("form", [by_property, by_custom, by_attributes, by_kernel])


def gradient(symbol, runs=2, req="add"):
    exe = symbol.simple_bind(mx.cpu(), x=(3,), grad_req=req)
    exe.arg_dict["x"][:] = X
    exe.grad_dict["x"][:] = 10
    for _ in range(runs):
        exe.forward(is_train=True)
        exe.backward([nd.array(X)])
    return exe.grad_dict["x"].asnumpy()


@FORMS
@pytest.mark.parametrize("accumulates", [True, False])
def test_add_reaches_operators_that_declare_it(form, accumulates):
    seen = []
    symbol = form(seen, accumulates)(mx.sym.Variable("x"))
    np.testing.assert_array_equal(gradient(symbol), 10 + 2 * 2 * X)
    assert set(seen) == ({"add"} if accumulates else {"write"})


@FORMS
def test_other_requests_stay(form):
    seen = []
    symbol = form(seen, True)(mx.sym.Variable("x"))
    np.testing.assert_array_equal(gradient(symbol, req="write"), 2 * X)
    assert "add" not in seen


@pytest.mark.parametrize("views", ["numpy", "ndarray"])
def test_decorated_functions_accumulate(views):
    name = f"t_accumulate{next(_count)}"

    @op.op(name, views=views)
    def twice(x):
        return 2 * x

    @twice.gradient
    def _(out_grads, inputs, outputs):
        return 2 * out_grads[0]

    symbol = getattr(mx.sym, name)(mx.sym.Variable("x"))
    np.testing.assert_array_equal(gradient(symbol), 10 + 2 * 2 * X)


def test_a_wrong_answer_is_refused():
    symbol = by_property([], "yes")(mx.sym.Variable("x"))
    with pytest.raises(MXNetError, match="result of accumulates 'yes': expected True or False"):
        gradient(symbol)
    assert user_op.ComputeContext.request.__doc__


@pytest.mark.parametrize("views", ["numpy", "ndarray"])
@pytest.mark.parametrize(
    "value",
    [2, 2.0, np.float64(2), [2, 2, 2], np.full(3, 2.0), np.full(3, 2), lambda: nd.full((3,), 2),
     lambda: nd.full((3,), 2, dtype="float64"), False],
)  # fmt: skip
def test_what_can_be_written_can_be_added(views, value):
    value = value() if callable(value) else value
    for req, before in (("write", 0), ("add", 1)):
        dst = np.ones(3, "float32") if views == "numpy" else nd.ones((3,))
        op.assign(dst, req, value)
        got = dst if views == "numpy" else dst.asnumpy()
        assert got.tolist() == [before + (0 if value is False else 2)] * 3


@pytest.mark.parametrize("given", [True, False])
def test_the_declaration_may_be_a_value(given):
    asked = []

    class Op(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0])

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            asked.append(str(req[0]))
            self.assign(in_grad[0], req[0], out_grad[0])

    name = f"accumulates_as_{given}"
    members = {"accumulates": given, "create_operator": lambda *args: Op()}
    mx.operator.register(name)(type("Prop", (mx.operator.CustomOpProp,), members))
    exe = mx.sym.Custom(mx.sym.Variable("x"), op_type=name).simple_bind(mx.cpu(), "add", x=(2,))
    for _ in range(2):
        exe.forward(is_train=True)
        exe.backward([mx.nd.ones(2)])
    assert exe.grad_dict["x"].asnumpy().tolist() == [2, 2]
    assert asked == ["add" if given else "write"] * 2
