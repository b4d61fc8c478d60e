"""An extent of 0 in the answer of an inference function is unknown until something decides it."""

import itertools

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, nd, op

_count = itertools.count()


def by_attributes(shape, answer):
    name = f"t_extent{next(_count)}"

    def infer(attrs, ins, outs):
        outs[0] = shape(ins[0])
        return answer

    def run(attrs, ctx, inputs, req, outputs):
        outputs[0][:] = 7

    op.register(name).set_attr("FInferShape", infer).set_attr("FCompute<cpu>", run)
    return name


def by_property(shape, answer):
    name = f"t_extent{next(_count)}"

    class Fill(mx.Operator):
        def forward(self, ctx, in_data, req, out_data, aux_states):
            self.assign(out_data[0], req[0], 7)

        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
            self.assign(in_grad[0], req[0], 0)

    @mx.operator.register(name)
    class FillProperty(mx.OperatorProperty):
        def infer_shape(self, in_shape):
            return in_shape, [shape(in_shape[0])], []

        def create_operator(self, ctx):
            return Fill()

    return name


FORMS = pytest.mark.parametrize(
    ("form", "answer"), [(by_attributes, False), (by_attributes, None), (by_property, None)]
)


@FORMS
def test_a_neighbour_decides_it(form, answer):
    name = form(lambda s: (0, *s[1:]), answer)
    x, y = mx.sym.Variable("x"), mx.sym.Variable("y")
    symbol = mx.sym.elemwise_add(getattr(mx.sym, name)(x), y)
    assert symbol.infer_shape(x=(2, 3), y=(5, 3))[1] == [(5, 3)]
    exe = symbol.simple_bind(mx.cpu(), grad_req="null", x=(2, 3), y=(5, 3))
    assert exe.forward()[0].asnumpy().tolist() == np.full((5, 3), 7).tolist()


@FORMS
def test_nothing_decides_it(form, answer):
    name = form(lambda s: (0, *s[1:]), answer)
    symbol = getattr(mx.sym, name)(mx.sym.Variable("x"))
    with pytest.raises(MXNetError):
        symbol.simple_bind(mx.cpu(), grad_req="null", x=(2, 3))
    with pytest.raises(MXNetError):
        getattr(nd, name)(nd.ones((2, 3))).wait_to_read()


@FORMS
def test_empty_inputs_make_empty_outputs(form, answer):
    name = form(lambda s: s, answer)
    assert getattr(nd, name)(nd.array(np.ones((0, 3)))).shape == (0, 3)


@pytest.mark.parametrize("answer", [True, False, None])
def test_an_extent_of_0_is_unknown_whatever_the_function_returns(answer):
    name = by_attributes(lambda s: (0, *s[1:]), answer)
    with pytest.raises(mx.MXNetError, match=r"\(\?, 3\).*cannot be inferred"):
        getattr(nd, name)(nd.ones((2, 3)))


@pytest.mark.parametrize("answer", [None, False])
def test_no_answer_is_unknown(answer):
    name = f"t_extent{next(_count)}"

    @mx.operator.register(name)
    class Nothing(mx.OperatorProperty):
        def infer_shape(self, in_shape):
            return answer

    symbol = getattr(mx.sym, name)(mx.sym.Variable("x"))
    assert symbol.infer_shape_partial(x=(2,))[1] in ([()], [None])
    with pytest.raises(MXNetError):
        getattr(nd, name)(nd.ones((2,)))
