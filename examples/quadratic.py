"""The operator a·x² + b·x + c, registered by attributes; run it for a small demonstration.

python examples/quadratic.py
"""

import rsnet
from rsnet import nd, op


class QuadraticParam(rsnet.Parameter):
    a: float = rsnet.field(0.0, doc="Coefficient of the quadratic term in the quadratic function.")
    b: float = rsnet.field(0.0, doc="Coefficient of the linear term in the quadratic function.")
    c: float = rsnet.field(0.0, doc="Constant term in the quadratic function.")


def quadratic_shape(attrs, in_shapes, out_shapes):
    """Input and output have one shape, whichever of them is known."""
    op.shape_assign(out_shapes, 0, in_shapes[0])
    op.shape_assign(in_shapes, 0, out_shapes[0])
    return op.shape_is_known(out_shapes[0])


def quadratic_forward(attrs, ctx, inputs, req, outputs):
    p, x = attrs.parsed, inputs[0]
    op.assign(outputs[0], req[0], p.a * x * x + p.b * x + p.c)


def quadratic_backward(attrs, ctx, inputs, req, outputs):
    """dL/dx = dL/dy · (2·a·x + b)"""
    p = attrs.parsed
    out_grad, x = inputs
    op.assign(outputs[0], req[0], out_grad * (2 * p.a * x + p.b))


(
    op.register("quadratic")
    .describe("Computes a·x² + b·x + c for every element x of the input.")
    .set_attr_parser(QuadraticParam)
    .set_num_inputs(1)
    .set_num_outputs(1)
    .set_attr("FListInputNames", lambda attrs: ["data"])
    .set_attr("FInferShape", quadratic_shape)
    .set_attr("FInferType", op.ElemwiseType(1, 1))
    .set_attr("FCompute<cpu>", quadratic_forward)
    .set_attr("FGradient", op.ElemwiseGradUseIn("_backward_quadratic"))
    .set_attr("FInplaceOption", lambda attrs: [(0, 0)])
    .add_argument("data", "NDArray-or-Symbol", "Input ndarray")
    .add_arguments(QuadraticParam.fields())
)
(
    op.register("_backward_quadratic")
    .set_attr_parser(QuadraticParam)
    .set_num_inputs(2)
    .set_num_outputs(1)
    .set_attr("TIsBackward", True)
    .set_attr("FCompute<cpu>", quadratic_backward)
)

if __name__ == "__main__":
    print(nd.quadratic(nd.array([[1, 2], [3, 4]]), a=1, b=2, c=3).asnumpy())
