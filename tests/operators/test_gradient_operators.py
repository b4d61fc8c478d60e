"""Gradients that name another operator: it parses the node's parameters for itself, in whatever way
the gradient is taken.
"""

import itertools

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op

_count = itertools.count()
X = np.array([1, 2, 3], "float32")


class Scaled(mx.Parameter):
    """Parameters of the operators under test."""

    scalar: float = mx.field(1.0, doc="Factor.")
    a_min: float = mx.field(0.0, doc="Least value.")
    a_max: float = mx.field(5.0, doc="Greatest value.")
    dtype: str = mx.field("float32", doc="Type.")
    wrong: int = mx.field(0, doc="What no built-in operator knows.")


def scale(attrs, ctx, inputs, req, outputs):
    op.assign(outputs[0], req[0], inputs[0] * attrs.parsed.scalar)


def differentiated_by(gradient, n_in=1):
    """The name of a new operator with that gradient."""
    name = f"t_gradop_{next(_count)}"
    op.register(name).set_attr_parser(Scaled).set_num_inputs(n_in).set_attr(
        "FInferShape", op.ElemwiseShape(n_in, 1)
    ).set_attr("FInferType", op.ElemwiseType(n_in, 1)).set_attr("FCompute<cpu>", scale).set_attr(
        "FGradient", gradient
    )
    return name


def by_tape(name, n_in, **params):
    arrays = [nd.array(X) for _ in range(n_in)]
    for x in arrays:
        x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(*arrays, **params)
    y.backward()
    return arrays[0].grad.asnumpy().tolist()


def by_graph(name, n_in, **params):
    s = getattr(mx.sym, name)(*(mx.sym.Variable(f"x{i}") for i in range(n_in)), **params)
    exe = s.simple_bind(mx.cpu(), **{f"x{i}": X.shape for i in range(n_in)})
    for array in exe.arg_arrays:
        array[:] = X
    exe.forward(is_train=True)
    exe.backward([nd.ones(X.shape)])
    return exe.grad_arrays[0].asnumpy().tolist()


WAYS = pytest.mark.parametrize("gradient_of", [by_tape, by_graph])


@WAYS
@pytest.mark.parametrize(
    ("gradient", "params", "want"),
    [
        (op.ElemwiseGradUseNone("_mul_scalar"), {"scalar": 3}, [3, 3, 3]),
        (op.ElemwiseGradUseNone("clip"), {"a_min": 0, "a_max": 0.5}, [0.5, 0.5, 0.5]),
        (op.ElemwiseGradUseNone("Cast"), {"dtype": "float32"}, [1, 1, 1]),
        (op.ElemwiseGradUseNone("negative"), {"scalar": 3}, [-1, -1, -1]),
        (op.ElemwiseGradUseIn("elemwise_mul"), {}, [1, 2, 3]),
        (op.ElemwiseGradUseInOut("add_n"), {}, [3, 5, 7]),
        (op.ElemwiseGradUseIn("_backward_clip"), {"a_min": 0, "a_max": 2.5}, [1, 1, 0]),
        (lambda node, g: node.backward("_mul_scalar", g), {"scalar": 3}, [3, 3, 3]),
        (lambda node, g: [node.op("add_n", *g, *g, *g)], {}, [3, 3, 3]),
    ],
    ids=["_mul_scalar", "clip", "Cast", "negative", "elemwise_mul", "add_n", "backward", "rule",
        "op"],
)  # fmt: skip
def test_operators_with_parameters_of_their_own(gradient_of, gradient, params, want):
    assert gradient_of(differentiated_by(gradient), 1, **params) == want


@WAYS
def test_another_operator_from_python(gradient_of):
    class Factor(mx.Parameter):
        scalar: int = mx.field(doc="Factor.")

    def run(attrs, ctx, inputs, req, outputs):
        assert isinstance(attrs.parsed, Factor)
        op.assign(outputs[0], req[0], inputs[0] * attrs.parsed.scalar)

    name = f"t_gradop_{next(_count)}"
    registered = op.register(name).set_attr_parser(Factor)
    registered.set_attr("FInferShape", op.ElemwiseShape(1, 1)).set_attr("FCompute<cpu>", run)
    assert gradient_of(differentiated_by(op.ElemwiseGradUseNone(name)), 1, scalar=4) == [4, 4, 4]


@WAYS
@pytest.mark.parametrize(
    ("gradient", "n_in", "params", "says"),
    [
        (op.ElemwiseGradUseNone("clip"), 1, {}, "missing parameter 'a_min'"),
        (op.ElemwiseGradUseNone("clip"), 1, {"wrong": 1}, "unknown parameter 'wrong'"),
        (op.ElemwiseGradUseIn("_mul_scalar"), 1, {"scalar": 1},
         "1 inputs and 1 outputs, expected 2"),
        (op.ElemwiseGradUseNone("_mul_scalar"), 2, {"scalar": 1}, "and 2 outputs, one for each"),
    ],
    ids=["missing", "unknown", "inputs", "outputs"],
)  # fmt: skip
def test_what_does_not_fit_is_said(gradient_of, gradient, n_in, params, says):
    name = differentiated_by(gradient, n_in)
    with pytest.raises(MXNetError, match="(?s)named as the gradient of 't_gradop_.*" + says):
        gradient_of(name, n_in, **params)


@WAYS
def test_a_gradient_of_another_shape_is_refused(gradient_of):
    name = differentiated_by(op.ElemwiseGradUseNone("sum"))
    with pytest.raises(MXNetError, match="expected"):
        gradient_of(name, 1)
