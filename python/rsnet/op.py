"""Operators by attributes: ``register("name").set_attr("FCompute<cpu>", f)...``

An operator is a record of named attributes. :func:`register` makes or finds the record; each
attribute is a Python function of ``attrs``, whose ``attrs.parsed`` holds the operator's parameter
struct and ``attrs.dict`` its parameters as text. The operator is in ``nd`` and ``sym`` as soon as
it has what it needs (a way to compute). :func:`op` is the same in one decorator. The names of user
operators (:func:`define`, :func:`kernel`, :func:`grad`) are those of ``rsnet.user_op``.

>>> from rsnet import nd, op
>>> _ = (op.register("doc_twice").set_num_inputs(1).set_num_outputs(1)
...      .set_attr("FInferShape", op.ElemwiseShape(1, 1))
...      .set_attr("FInferType", op.ElemwiseType(1, 1))
...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
...                op.assign(outputs[0], req[0], 2 * inputs[0]))
...      .set_attr("FGradient", op.ElemwiseGradUseNone("_backward_doc_twice")))
>>> nd.doc_twice(nd.array([1, 2])).asnumpy().tolist()
[2.0, 4.0]
"""

from __future__ import annotations

from ._operators import publish
from ._operators.attributes import Entry, get, register
from ._operators.attrs import Attrs, GradNode, kVarg
from ._operators.decorator import op
from ._operators.elementwise import (
    ElemwiseGradUseIn,
    ElemwiseGradUseInOut,
    ElemwiseGradUseNone,
    ElemwiseGradUseOut,
    ElemwiseShape,
    ElemwiseType,
    shape_assign,
    shape_is_known,
    type_assign,
)
from ._operators.gradient import GradEntry
from ._operators.operands import assign
from ._operators.parallel import launch, map
from .user_op import Attr, attr, define, device, dtype, grad, kernel, kernels, ndim, why

__all__ = [
    "register", "get", "op", "assign", "Attrs", "Entry", "GradNode", "GradEntry", "kVarg",
    "shape_assign", "type_assign", "shape_is_known",
    "ElemwiseShape", "ElemwiseType",
    "ElemwiseGradUseNone", "ElemwiseGradUseIn", "ElemwiseGradUseOut", "ElemwiseGradUseInOut",
    "launch", "map",
    "define", "kernel", "grad", "Attr", "attr", "device", "dtype", "ndim", "kernels", "why",
]  # fmt: skip

publish(__name__, [globals()[name] for name in __all__])
