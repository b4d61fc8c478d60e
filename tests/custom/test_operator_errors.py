"""Errors of every callback of an operator, whatever way it is written."""

import numpy as np
import pytest
from short_operators import Layer, call, custom, double

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op

_count = iter(range(10_000))


class Marked(Exception):
    """Raised by the callbacks under test."""


def boom(*args, **kwargs):
    raise Marked("from the callback")


def junk(*args, **kwargs):
    return "junk"


CUSTOM_METHODS = (
    "__init__ list_arguments list_outputs list_auxiliary_states infer_shape infer_type "
    "declare_backward_dependency create_operator"
).split()


@pytest.mark.parametrize("method", CUSTOM_METHODS)
def test_exceptions_of_a_custom_property(method):
    name = custom(double, **{method: boom})
    with pytest.raises(Marked, match="from the callback"):
        call(name).asnumpy()
    with pytest.raises(Marked):
        mx.sym.Custom(mx.sym.Variable("x"), op_type=name).simple_bind(mx.cpu(), x=(2,)).forward()


@pytest.mark.parametrize("method", [m for m in CUSTOM_METHODS if m != "__init__"])
def test_junk_from_a_custom_property(method):
    with pytest.raises(MXNetError, match="junk.*expected|infer_|has 4|create_operator"):
        call(custom(double, **{method: junk})).asnumpy()


PROPERTY_METHODS = (
    "list_arguments list_outputs list_auxiliary_states infer_shape infer_type forward_resource "
    "backward_resource declare_backward_dependency forward_inplace_option backward_inplace_option "
    "num_outputs num_visible_outputs create_operator create_operator_ex type_string get_params"
).split()


def use_property(**methods):
    """Registers a property with these methods, runs it forwards and backwards, and copies it."""
    name = f"errors_{next(_count)}"
    given = {
        "infer_shape": lambda self, shapes: (shapes, [shapes[0]], []),
        "create_operator": lambda self, ctx: Layer(),
    }
    cls = type("Property", (mx.OperatorProperty,), given | methods)
    mx.operator.register(name)(cls)
    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(x)
    y.backward()
    assert y.asnumpy().tolist() == x.grad.asnumpy().tolist() == [2, 2]
    assert cls().copy().list_arguments() == ["data"]


def test_a_property_without_errors():
    use_property()


@pytest.mark.parametrize("method", PROPERTY_METHODS)
def test_exceptions_of_an_operator_property(method):
    with pytest.raises(Marked, match="from the callback"):
        use_property(**{method: boom})


@pytest.mark.parametrize("method", PROPERTY_METHODS)
def test_junk_from_an_operator_property(method):
    with pytest.raises(MXNetError, match="junk|infer_|has 4"):
        use_property(**{method: junk})


def by_attributes(**attributes):
    name = f"contract_{next(_count)}"
    entry = op.register(name).set_num_inputs(1).set_num_outputs(1)
    given = {
        "FInferShape": op.ElemwiseShape(1, 1),
        "FInferType": op.ElemwiseType(1, 1),
        "FCompute<cpu>": lambda attrs, ctx, ins, req, outs: op.assign(outs[0], req[0], 2 * ins[0]),
    }
    for key, value in (given | attributes).items():
        entry.set_attr(key, value)
    return getattr(nd, name)


ATTRIBUTES = (
    "FListInputNames FListOutputNames FNumVisibleOutputs FInferShape FInferType FCompute<cpu> "
    "FInplaceOption FIgnoreInputs FMutateInputs FResourceRequest"
).split()


@pytest.mark.parametrize("attribute", [*ATTRIBUTES, "FCreateOpState"])
def test_exceptions_of_attributes(attribute):
    with pytest.raises(Marked, match="from the callback"):
        by_attributes(**{attribute: boom})(nd.ones((2,))).asnumpy()


@pytest.mark.parametrize("attribute", ATTRIBUTES)
@pytest.mark.parametrize("answer", ["junk", None, 7])
def test_wrong_answers_of_attributes(attribute, answer):
    if attribute == "FCompute<cpu>" and answer is None:
        pytest.skip("that is the right answer")
    with pytest.raises(
        (MXNetError, TypeError), match="invalid result of|cannot be inferred|function returned"
    ):
        by_attributes(**{attribute: lambda *args: answer})(nd.ones((2,))).asnumpy()


@pytest.mark.parametrize("taken", ["exp", "relu", "elemwise_add", "broadcast_plus"])
def test_an_alias_takes_nobodys_name(taken):
    operator = by_attributes()
    entry = op.get(operator.__name__)
    before = getattr(nd, taken)
    with pytest.raises(MXNetError, match=f"'{taken}' is already registered"):
        entry.add_alias(taken)
    assert getattr(nd, taken) is before
    free = f"{operator.__name__}_too"
    entry.add_alias(free)  # the refused one is forgotten
    np.testing.assert_array_equal(getattr(nd, free)(nd.ones((2,))).asnumpy(), [2, 2])
    with pytest.raises(MXNetError, match=f"as an alias of '{operator.__name__}'"):
        op.get(by_attributes().__name__).add_alias(free)


@pytest.mark.parametrize("attribute", ["FListInputNames", "FInplaceOption", "FResourceRequest"])
def test_exceptions_of_a_backward_operator(attribute):
    forward = by_attributes(FInferShape=op.ElemwiseShape(1, 1)).__name__
    backward = op.register(f"_backward_{forward}").set_num_inputs(1).set_num_outputs(1)
    backward.set_attr("TIsBackward", True).set_attr(attribute, boom)
    double = op.get(forward).attr("FCompute<cpu>")
    backward.set_attr("FCompute<cpu>", double)
    op.get(forward).set_attr("FGradient", op.ElemwiseGradUseNone(f"_backward_{forward}"))
    x = nd.ones((2,))
    x.attach_grad()
    with mx.autograd.record():
        y = getattr(nd, forward)(x)
    with pytest.raises(Marked, match="from the callback"):
        y.backward()
        x.grad.asnumpy()
    s = getattr(mx.sym, forward)(mx.sym.var("x"))
    with pytest.raises(Marked, match="from the callback"):
        exe = s.simple_bind(mx.cpu(), x=(2,))
        exe.forward(is_train=True)
        exe.backward(nd.ones((2,)))
        exe.grad_arrays[0].asnumpy()


@pytest.mark.parametrize(
    ("gradient", "error", "says"),
    [
        (boom, Marked, "from the callback"),
        (lambda node, grads: [], MXNetError, "gradient rule \\[\\]: expected 1 gradients"),
        (lambda node, grads: [grads[0]] * 2, MXNetError, "gradient rule .*: expected 1 gradients"),
        (lambda node, grads: [3], MXNetError, "gradient rule 3: expected a GradEntry"),
        (lambda node, grads: [node.op("no_such", grads[0])], MXNetError, "'no_such' is not"),
        (op.ElemwiseGradUseIn("_backward_no_such"), MXNetError, "'_backward_no_such' is not"),
    ],
)
def test_wrong_gradients_of_attributes(gradient, error, says):
    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record():
        y = by_attributes(FGradient=gradient)(x)
    with pytest.raises(error, match=says):
        y.backward()


def user_op(compute=None, where=None, kernel=None, **definition):
    name = f"contract_{next(_count)}"
    given = {"inputs": "in", "outputs": "out",
             "infer": lambda ctx: ctx.out("out").like(ctx.inp("in"))}  # fmt: skip
    op.define(name, **(given | definition))
    compute = compute or (lambda ctx: ctx.out("out").__setitem__(slice(None), 2 * ctx.inp("in")))
    op.kernel(name, where=op.device("cpu") if where is None else where, **(kernel or {}))(compute)
    return name


@pytest.mark.parametrize(
    "parts",
    [
        {"infer": boom}, {"compute": boom}, {"kernel": {"tmp": boom}}, {"kernel": {"state": boom}},
    ],
)  # fmt: skip
def test_exceptions_of_user_operators(parts):
    with pytest.raises(Marked, match="from the callback"):
        getattr(nd, user_op(**parts))(nd.ones((2,))).asnumpy()


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"check": lambda conf: False}, "attributes {}: expected attributes that the check of"),
        ({"infer": lambda ctx: setattr(ctx.out("out"), "shape", "ab")}, "expected a tuple"),
        ({"infer": lambda ctx: ctx.out("no_such")},
         "unknown output 'no_such': expected one of: out"),
        ({"compute": lambda ctx: 3}, "returned int, expected None"),
        ({"compute": lambda ctx: ctx.inp("in", 3)},
         "invalid index of argument 'in' 3: expected 0 to 0"),
        ({"compute": lambda ctx: ctx.attr("no_such")}, "unknown attribute 'no_such'"),
        ({"compute": lambda ctx: ctx.inp("in").__setitem__(0, 1)}, "is read-only"),
        ({"compute": lambda ctx: ctx.out("out").__setitem__(slice(None), nd.ones((9,)))},
         "could not broadcast"),
        ({"where": op.dtype("out").is_in("float64")}, r"dtype\(out\) in \{float64\} \[false\]"),
        ({"where": op.dtype("no_such").is_in("float64")}, "unknown argument 'no_such'"),
        ({"kernel": {"tmp": -1}}, "invalid tmp -1: expected bytes"),
        ({"kernel": {"inplace": [("out", "no_such")]}}, "invalid inplace of kernel"),
        ({"kernel": {"inplace": 3}}, "expected pairs"),
    ],
)  # fmt: skip
def test_wrong_deeds_of_user_operators(parts, says):
    with pytest.raises((MXNetError, TypeError, ValueError), match=says):
        getattr(nd, user_op(**parts))(nd.ones((2,))).asnumpy()


@pytest.mark.parametrize(
    ("gradient", "error", "says"),
    [
        (boom, Marked, "from the callback"),
        (lambda ctx: ctx.bind("in", boom), Marked, "from the callback"),
        (
            lambda ctx: ctx.bind("no_such", lambda: ctx.grad("out")),
            MXNetError,
            "unknown input 'no_such'",
        ),
        (
            lambda ctx: ctx.bind("in", lambda: 3),
            MXNetError,
            "gradient of 'in' 3: expected a GradEntry",
        ),
        (lambda ctx: None, MXNetError, "expected a gradient of input 'in', got none"),
    ],
)
def test_wrong_gradients_of_user_operators(gradient, error, says):
    name = user_op()
    op.grad(name)(gradient)
    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(x)
    with pytest.raises(error, match=says):
        y.backward()


def test_two_kernels_that_match_are_shown():
    name = user_op()
    op.kernel(name, where=op.dtype("in").is_in("float32"))(lambda ctx: None)
    with pytest.raises(MXNetError, match="several kernels match") as caught:
        getattr(nd, name)(nd.ones((2,))).asnumpy()
    assert str(caught.value).count("[true]") == 2
    op.kernel(name, priority=10)(lambda ctx: ctx.out("out").__setitem__(slice(None), 7))
    assert getattr(nd, name)(nd.ones((2,))).asnumpy().tolist() == [7, 7]
    assert "priority 10 matches" in op.why(name, nd.ones((2,)))
    assert [k[2] for k in op.kernels(name)] == [0, 0, 10]


@pytest.mark.parametrize("answer", [None, "7"])
def test_a_function_that_returns_nothing(answer):
    name = f"errors_returns_{type(answer).__name__}"
    op.op(name)(lambda x: answer)
    with pytest.raises(MXNetError, match=f"{name}: invalid result 0 {answer!r}"):
        getattr(nd, name)(nd.ones((2,))).asnumpy()


def test_none_is_no_gradient():
    @op.op("errors_product", inputs=("a", "b"))
    def product(a, b):
        return a * b

    product.gradient(lambda grads, ins, outs: (grads[0] * ins[1], None))
    a, b = nd.array([2.0, 3.0]), nd.array([5.0, 7.0])
    a.attach_grad(), b.attach_grad()
    with mx.autograd.record():
        y = nd.errors_product(a, b)
    y.backward()
    assert (a.grad.asnumpy().tolist(), b.grad.asnumpy().tolist()) == ([5, 7], [0, 0])
