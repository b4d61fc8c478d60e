"""Operators by subclassing.

:class:`OperatorProperty` describes an operator (arguments, shapes, parameters, dependencies) and
makes :class:`Operator` objects that compute; ``@register("name")`` gives ``nd.name`` and
``sym.name``. :class:`CustomOp` and :class:`CustomOpProp` are the forms that MXNet programs know,
called by ``nd.Custom(..., op_type="name")``. See ``docs/write_an_operator.md``.
"""

from __future__ import annotations

from ._operators import publish
from ._operators.custom_op import CustomOp, CustomOpProp
from ._operators.legacy import NDArrayOp, NumpyOp, PythonOp
from ._operators.operands import ResourceRequest, assign
from ._operators.property import Operator, OperatorProperty
from ._operators.property_register import register
from ._operators.registry import (
    OperatorArguments,
    get_all_registered_operators,
    get_all_registered_operators_grouped,
    get_operator_arguments,
)
from ._operators.requests import OpReq

__all__ = [
    "OpReq", "ResourceRequest", "assign", "Operator", "OperatorProperty", "CustomOp",
    "CustomOpProp", "NumpyOp", "NDArrayOp", "PythonOp", "register", "get_all_registered_operators",
    "get_all_registered_operators_grouped", "get_operator_arguments", "OperatorArguments",
]  # fmt: skip

publish(__name__, [globals()[name] for name in __all__])
