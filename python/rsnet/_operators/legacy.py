"""The deprecated ``NumpyOp`` and ``NDArrayOp``."""

from __future__ import annotations

from typing import Any

from .. import _core, symbol
from .._warnings import warn
from ..parameter import schema_field
from .checks import invalid
from .definition import ANY_INPUTS
from .property import Description
from .property_node import Node, node_definitions


class PythonOp(Description):
    """Base of the deprecated :class:`NumpyOp` and :class:`NDArrayOp`.

    An operator object is called with symbols. Objects that were used live as long as the program.
    """

    _instances: dict[str, PythonOp] = {}
    _operator = ""

    def __init__(self, need_top_grad: bool = True) -> None:
        text = f"{type(self).__name__}: NumpyOp and NDArrayOp are deprecated, use CustomOp"
        warn(text, DeprecationWarning)
        self.need_top_grad_ = need_top_grad

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """The symbol of this operator applied to symbols."""
        key = hex(id(self))
        PythonOp._instances[key] = self
        return getattr(symbol, self._operator)(*args, info=key, **kwargs)

    def forward(self, in_data: list[Any], out_data: list[Any]) -> None:
        out_data[0][:] = in_data[0]

    def backward(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any], in_grad: list[Any]
    ) -> None:
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        return in_shape, [in_shape[0]]

    def infer_type(self, in_type: list[Any]) -> Any:
        return self._float32(type(self).__name__, in_type, len(self.list_outputs()))

    def need_top_grad(self) -> bool:
        return self.need_top_grad_

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        return [*(out_grad if self.need_top_grad() else []), *in_data, *out_data]


class NumpyOp(PythonOp):
    """Deprecated: an operator whose functions get float32 NumPy views of the operands."""

    _operator = "_Native"


class NDArrayOp(PythonOp):
    """Deprecated: an operator whose functions get NDArrays."""

    _operator = "_NDArray"


def _install(cls: type[PythonOp], *, views: str) -> None:
    name = cls._operator

    def make(values: tuple[Any, ...], given: dict[str, Any]) -> Node:
        op = PythonOp._instances.get(values[0])  # noqa: SLF001  a class of this file
        if op is None:
            raise invalid(name, "info", values[0], "the key of a living operator object")
        return Node(type(op).__name__, op, property_style=False)

    info = schema_field("info", "string", doc="Key of the operator object.")
    old = schema_field("need_top_grad", "string", "True", doc="Kept for old graphs.")
    forward, backward = node_definitions(
        name,
        _core.Schema([info, old]),
        make,
        lambda node, _, ctx, ins, aux, req, outs: node.prop.forward(ins, outs),
        lambda node, _, ctx, out_grad, ins, outs, aux, req, in_grad: node.prop.backward(
            out_grad, ins, outs, in_grad
        ),
        views=views,
        assign="op.assign",
    )
    forward.doc = "Applies a NumpyOp or NDArrayOp object (deprecated)."
    forward.input_docs = ANY_INPUTS
    backward.install()
    forward.install()


_install(NumpyOp, views="numpy")
_install(NDArrayOp, views="ndarray")
