"""``nd.Custom`` / ``sym.Custom`` and the deprecated ``NumpyOp`` and ``NDArrayOp``.

One operator named ``Custom`` stands for all registered ``CustomOpProp`` classes; its parameter
``op_type`` chooses. A graph that names a class which is not registered can be loaded, listed and
saved; it fails where shapes are inferred.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from . import _core
from ._door import Facts, KernelSpec, fail
from ._subclassed import Node, node_definitions
from .base import MXNetError

_FLAGS = {
    "float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6,
    "bool": 7,
}  # fmt: skip


class Unregistered:
    """The payload of a ``Custom`` node whose ``op_type`` nobody has registered (yet)."""

    __slots__ = ("op_type", "given", "node")

    def __init__(self, op_type: str, given: dict[str, str]) -> None:
        self.op_type, self.given = op_type, given
        self.node: Node | None = None

    def resolved(self) -> Node:
        """The node, should the class have been registered since."""
        if self.node is None:
            self.node = _custom_node(self.op_type, self.given)
        return self.node

    facts = Facts(("data",), ("output",), 1)


def _custom_node(op_type: str, given: dict[str, str]) -> Node:
    from .operator import CustomOpProp, _custom_props

    try:
        cls = _custom_props[op_type]
    except KeyError:
        known = ", ".join(sorted(_custom_props)) or "none"
        raise MXNetError(
            f"Cannot find custom operator {op_type} (registered are: {known})"
        ) from None
    prop = cls(**given)  # type: ignore[arg-type]
    if not hasattr(prop, "need_top_grad_"):
        CustomOpProp.__init__(prop)  # a subclass that does not call super().__init__()
    node = Node(op_type, prop, property_style=False)
    _refuse_sparse(node, cls)
    return node


def _refuse_sparse(node: Node, cls: type) -> None:
    """Asks a class with storage types of its own whether dense arrays will do."""
    from .operator import CustomOpProp

    def dense(method: str, *parts: int) -> None:
        if getattr(cls, method, None) in (None, getattr(CustomOpProp, method)):
            return
        answer = getattr(node.prop, method)(*(["default"] * n for n in parts))
        listed = answer if isinstance(answer, (tuple, list)) else [answer]
        if not all(isinstance(a, (tuple, list)) and set(a) <= {"default"} for a in listed):
            raise fail(
                node.name, f"{method} returned {answer!r}: only 'default' storage is supported"
            )

    n_in, n_out, n_aux = node.n_args, node.n_out, len(node.aux)
    dense("infer_storage_type", n_in)
    dense("infer_storage_type_backward", n_out, n_in, n_out, n_in, n_aux)


def _make_custom(values: tuple[Any, ...], given: dict[str, Any]) -> Any:
    from .operator import _custom_props

    op_type = values[0]
    texts = {
        k: str(v)
        for k, v in given.items()
        if k not in ("op_type", "name") and not (k.startswith("__") and k.endswith("__"))
    }
    if op_type not in _custom_props:
        return Unregistered(op_type, texts)
    return _custom_node(op_type, texts)


def _node(payload: Any) -> Node:
    return payload if type(payload) is Node else payload.resolved()


def _state(payload: Any, ctx: Any, shapes: list[Any], types: list[Any]) -> Any:
    from .operator import checked_operator

    node = _node(payload)
    flags = [_FLAGS[t] for t in types]
    made = node.prop.create_operator(ctx, [list(s) for s in shapes], flags)
    return checked_operator(node.name, "create_operator", made)


def _run_forward(
    payload: Any, state: Any, ctx: Any, inputs: list[Any], req: list[Any], outputs: list[Any]
) -> Any:
    n = _node(payload).n_args
    return state.forward(1 if ctx.is_train else 0, req, inputs[:n], outputs, inputs[n:])


def _run_backward(
    payload: Any, state: Any, ctx: Any, inputs: list[Any], req: list[Any], outputs: list[Any]
) -> Any:
    node = _node(payload)
    out_grad, in_data, out_data, aux = node.scatter(inputs)
    n = node.n_args
    in_grad = outputs[:n]
    answer = state.backward(req[:n], out_grad, in_data, out_data, in_grad, aux)
    outputs[:n] = in_grad  # the core looks whether its arrays are still there
    return answer


def _install_custom() -> None:
    schema = _core.Schema(
        [_text_field("op_type", "Name under which the CustomOpProp class is registered.")],
        open=True,
    )
    forward, backward = node_definitions(
        "Custom",
        schema,
        _make_custom,
        _state,
        KernelSpec("forward", ("always",), 0, _run_forward, False, "out_data", "self.assign"),
        KernelSpec("backward", ("always",), 0, _run_backward, False, "in_grad", "self.assign"),
    )
    forward.doc = (
        "Applies an operator written by subclassing rsnet.operator.CustomOp.\n\n"
        "All other keyword arguments are passed to the constructor of its CustomOpProp as strings."
    )
    forward.input_docs = [("data", "NDArray-or-Symbol[]", "The arguments, in order or by name.")]
    forward.facts = lambda payload: payload.facts
    forward.infer_shape = lambda payload, i, o, exact: _node(payload).infer_shape(i, o)
    forward.infer_type = lambda payload, i, o: _node(payload).infer_type(i, o)
    forward.inplace = backward.inplace = None
    forward.resources = backward.resources = None
    forward.gradient = ("backward", backward.name, lambda p, i, o: _node(p).deps(i, o))
    facts = backward.facts
    backward.facts = lambda payload: facts(_node(payload))
    backward.install()
    forward.install()


def _text_field(name: str, doc: str, default: str | None = None) -> dict[str, Any]:
    return {
        "name": name, "kind": "string", "keys": [], "optional": False,
        "required": default is None, "default": default, "doc": doc, "ge": None, "le": None,
    }  # fmt: skip


# Deprecated forms --------------------------------------------------------------------------------


class PythonOp:
    """Base of the deprecated :class:`NumpyOp` and :class:`NDArrayOp`: an operator object that is
    called
    with symbols. Objects that were used live as long as the program."""

    _instances: dict[str, PythonOp] = {}
    _operator = ""

    def __init__(self, need_top_grad: bool = True) -> None:
        warnings.warn(
            f"{type(self).__name__}: NumpyOp and NDArrayOp are deprecated, use CustomOp",
            DeprecationWarning,
            stacklevel=2,
        )
        self.need_top_grad_ = need_top_grad

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """The symbol of this operator applied to symbols."""
        from . import symbol

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

    def list_arguments(self) -> list[str]:
        return ["data"]

    def list_outputs(self) -> list[str]:
        return ["output"]

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


class _PythonOpProp:
    """A :class:`PythonOp` seen as an operator description."""

    def __init__(self, op: PythonOp) -> None:
        self.op = op
        self.list_arguments = op.list_arguments
        self.list_outputs = op.list_outputs
        self.infer_shape = op.infer_shape

    def list_auxiliary_states(self) -> list[str]:
        return []

    def infer_type(self, in_type: list[Any]) -> Any:
        for given in in_type:
            if given not in (None, np.float32):
                raise MXNetError(f"{type(self.op).__name__}: expected float32, got {given}")
        f32 = np.float32
        return [f32] * len(in_type), [f32] * len(self.list_outputs()), []

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        return self.op.declare_backward_dependency(out_grad, in_data, out_data)


def _install_python_op(name: str, numpy: bool) -> None:
    def make(values: tuple[Any, ...], given: dict[str, Any]) -> Node:
        op = PythonOp._instances.get(values[0])
        if op is None:
            raise fail(name, f"info={values[0]!r} names no living operator object")
        return Node(type(op).__name__, _PythonOpProp(op), property_style=False)

    def forward(node: Node, state: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> Any:
        return node.prop.op.forward(ins, outs)

    def backward(node: Node, state: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> Any:
        out_grad, in_data, out_data, _ = node.scatter(ins)
        return node.prop.op.backward(out_grad, in_data, out_data, outs)

    schema = _core.Schema(
        [
            _text_field("info", "Key of the operator object."),
            _text_field("need_top_grad", "Kept for old graphs.", "True"),
        ]
    )
    first, second = node_definitions(
        name,
        schema,
        make,
        None,
        KernelSpec("forward", ("always",), 0, forward, numpy, "out_data"),
        KernelSpec("backward", ("always",), 0, backward, numpy, "in_grad"),
    )
    first.doc = "Applies a NumpyOp or NDArrayOp object (deprecated)."
    first.input_docs = [("data", "NDArray-or-Symbol[]", "The arguments.")]
    second.install()
    first.install()


_install_custom()
_install_python_op("_Native", numpy=True)
_install_python_op("_NDArray", numpy=False)
