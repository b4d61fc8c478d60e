"""What a user's function may do with its outputs, and what it may return."""

import itertools

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op
from rsnet.base import MXTypeError

_count = itertools.count()


def fresh():
    return f"t_results_{next(_count)}"


def decorated(function, **how):
    name = fresh()
    return name, op.op(name, views="numpy", **how)(function)


# Kinds of results ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "dtype", "got"),
    [
        (np.fft.fft, "float32", "complex128|complex64"),
        (lambda x: x * 0.5, "int32", "float64"),
        (lambda x: -1.0 * x, "uint8", "float64|float32"),
        (lambda x: x.astype("int64") - 1, "uint8", "int64"),
        (lambda x: 0.5, "int32", "float64"),
        (lambda x: -1, "uint8", "int8"),
        (lambda x: x + 1.0, "bool", "float64"),
        (lambda x: nd.array([0.5, 1, 2]), "int32", "float32"),
    ],
    ids=["complex", "fraction", "sign", "int", "float", "minus", "bool", "ndarray"],
)
def test_results_of_another_kind_are_refused(function, dtype, got):
    name, _ = decorated(function, outputs=("y",))
    says = rf"{name}: invalid dtype of output 'y' '({got})': expected {dtype} .*astype\('{dtype}'\)"
    with pytest.raises(MXTypeError, match=says):
        getattr(nd, name)(nd.array([0, 1, 2], dtype=dtype)).asnumpy()


@pytest.mark.parametrize(
    ("function", "dtype", "want"),
    [
        (lambda x: x.astype("float64") / 2, "float32", [0, 0.5, 1]),
        (lambda x: x.astype("int64") + 1, "int8", [1, 2, 3]),
        (lambda x: x > 0, "float32", [0, 1, 1]),
        (lambda x: x > 0, "uint8", [0, 1, 1]),
        (lambda x: 7, "uint8", [7, 7, 7]),
        (lambda x: [7, 8, 9], "float16", [7, 8, 9]),
        (lambda x: (x * 0.5).astype(x.dtype), "int32", [0, 0, 1]),
    ],
)
def test_results_of_the_same_kind_are_cast(function, dtype, want):
    name, _ = decorated(lambda x: (function(x),))
    y = getattr(nd, name)(nd.array([0, 1, 2], dtype=dtype))
    assert y.dtype == np.dtype(dtype) and y.asnumpy().tolist() == want


def gradient_of(name, n_in=1):
    arrays = [nd.array([1, 2]) for _ in range(n_in)]
    for x in arrays:
        x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(*arrays)
    y.backward()
    return [x.grad.asnumpy().tolist() for x in arrays]


def test_gradients_of_another_kind_are_refused():
    name, f = decorated(lambda x: 2 * x)
    f.gradient(lambda out_grads, inputs, outputs: 1j * out_grads[0])
    with pytest.raises(MXTypeError, match="dtype of gradient of input 'data' 'complex"):
        gradient_of(name)


def test_none_is_no_gradient_for_one_input_too():
    name, f = decorated(lambda x: 2 * x)
    f.gradient(lambda out_grads, inputs, outputs: None)
    assert gradient_of(name) == [[0, 0]]
    name, f = decorated(lambda x, y: x * y, inputs=("x", "y"))
    f.gradient(lambda out_grads, inputs, outputs: (None, 3 * out_grads[0]))
    assert gradient_of(name, 2) == [[0, 0], [3, 3]]


# Outputs that are replaced ------------------------------------------------------------------------


@pytest.mark.parametrize("views", ["ndarray", "numpy"])
def test_replacing_an_output_of_fcompute_is_an_error(views):
    def run(attrs, ctx, inputs, req, outputs):
        outputs[0] = 2 * inputs[0]

    name = fresh()
    op.register(name).set_attr("FInferShape", op.ElemwiseShape(1, 1)).set_attr(
        "FCompute<cpu>", run, views=views
    )
    says = rf"'{name}': .*outputs\[0\].*write outputs\[0\]\[:\] = value or op.assign\(outputs\[0\]"
    with pytest.raises(MXNetError, match=says):
        getattr(nd, name)(nd.ones((2,))).asnumpy()


def custom(forward, backward, aux=()):
    class Custom(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            forward(out_data, in_data)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            backward(in_grad, out_grad)

    class Prop(mx.operator.CustomOpProp):
        def list_auxiliary_states(self):
            return list(aux)

        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], [in_shape[0]] * len(aux)

        def create_operator(self, ctx, shapes, dtypes):
            return Custom()

    name = fresh()
    mx.operator.register(name)(Prop)
    return name


def replace(targets, sources):
    targets[0] = 2 * sources[0]


def fill(targets, sources):
    targets[0][:] = 2 * sources[0]


def through_a_view(targets, sources):
    targets[0] = targets[0].reshape((1, 2))
    targets[0][:] = 2 * sources[0].reshape((1, 2))


def in_place(targets, sources):
    targets[0][:] = sources[0]
    targets[0] *= 2


@pytest.mark.parametrize("aux", [(), ("mean",)], ids=["plain", "aux"])
@pytest.mark.parametrize("which", ["out_data", "in_grad"])
def test_replacing_an_operand_of_a_custom_operator_is_an_error(which, aux):
    parts = (replace, fill) if which == "out_data" else (fill, replace)
    name = custom(*parts, aux)
    x = nd.array([1, 2])
    x.attach_grad()
    states = [nd.zeros((2,)) for _ in aux]
    says = rf"replaced {which}\[0\].*write {which}\[0\]\[:\] = value or self.assign\({which}\[0\]"
    with pytest.raises(MXNetError, match=says):
        with autograd.record():
            y = nd.Custom(x, *states, op_type=name)
        y.backward()
        x.grad.asnumpy()


@pytest.mark.parametrize("part", [fill, through_a_view, in_place])
def test_lists_may_hold_views_of_the_operands(part):
    name = custom(part, part)
    x = nd.array([1, 2])
    x.attach_grad()
    with autograd.record():
        y = nd.Custom(x, op_type=name)
    y.backward()
    assert y.asnumpy().tolist() == [2, 4] and x.grad.asnumpy().tolist() == [2, 2]


def test_an_output_that_nobody_wants_may_be_anything():
    def backward(in_grad, out_grad):
        in_grad[0] = None

    x, w = nd.array([1, 2]), nd.array([3, 4])
    name = custom(fill, backward)
    w.attach_grad()
    with autograd.record():
        y = nd.Custom(x, op_type=name) * w
    y.backward()
    assert w.grad.asnumpy().tolist() == [2, 4]
