"""Extents that an inference function leaves open are unknown until a neighbour knows them."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import operator


@operator.register("extent_open")
class Open(operator.OperatorProperty):
    """An identity that does not know the first extent of its output."""

    def list_arguments(self):
        return ["data"]

    def infer_shape(self, in_shape):
        return in_shape, [(0, *in_shape[0][1:])], []

    def create_operator(self, ctx):
        return Identity()


class Identity(operator.Operator):
    def forward(self, ctx, in_data, req, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])


def attributes(name, answer):
    """The same by attributes; its inference function returns `answer`."""

    def infer_shape(attrs, ins, outs):
        outs[0] = (0, *ins[0][1:])
        return answer

    def compute(attrs, ctx, inputs, req, outputs):
        mx.op.assign(outputs[0], req[0], inputs[0])

    entry = mx.op.register(name)
    entry.set_attr("FInferShape", infer_shape).set_attr("FCompute<cpu>", compute)


attributes("extent_false", False)
attributes("extent_true", True)
OPERATORS = ["extent_open", "extent_false", "extent_true"]


@pytest.mark.parametrize("name", OPERATORS)
def test_a_neighbour_completes_an_open_extent(name):
    net = getattr(mx.sym, name)(mx.sym.Variable("x"), name="open") + mx.sym.Variable("y")
    assert net.infer_shape(x=(5, 3), y=(5, 3))[1] == [(5, 3)]
    exe = net.simple_bind(mx.cpu(), "null", x=(5, 3), y=(5, 3))
    values = np.arange(15, dtype="float32").reshape(5, 3)
    out = exe.forward(x=values, y=values)[0]
    np.testing.assert_array_equal(out.asnumpy(), 2 * values)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_extent_that_stays_open_is_an_error(name):
    net = getattr(mx.sym, name)(mx.sym.Variable("x"), name="open")
    with pytest.raises(mx.MXNetError, match=r"open.*\(\?, 3\).*cannot be inferred"):
        net.simple_bind(mx.cpu(), "null", x=(5, 3))
    with pytest.raises(mx.MXNetError, match=r"\(\?, 3\).*cannot be inferred"):
        getattr(mx.nd, name)(mx.nd.ones((5, 3)))


@pytest.mark.parametrize("name", OPERATORS)
def test_an_empty_input_makes_an_empty_output(name):
    with mx.util.np_shape(True):
        out = getattr(mx.nd, name)(mx.nd.zeros((0, 3)))
        assert out.shape == (0, 3)
