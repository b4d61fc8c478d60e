"""MXNet's form of an operator in Python: ``CustomOp``, ``CustomOpProp``, ``nd.Custom``.

One operator named ``Custom`` stands for all registered ``CustomOpProp`` classes; its parameter
``op_type`` chooses. A graph that names a class which is not registered can be loaded, listed and
saved; it fails where shapes are inferred.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from .._exceptions import add_note
from .._warnings import warn
from ..base import shown
from ..ndarray.ndarray import _DTYPE_NP_TO_MX
from ..parameter import schema_field
from . import registry
from .checks import TYPES, fail, invalid, unknown, wrong
from .definition import Facts, numbered
from .operands import assign
from .property import Description
from .property_node import Node, checked_operator, node_definitions


class CustomOp:
    """MXNet's form of an operator object, made by :meth:`CustomOpProp.create_operator`.

    There is one for every recorded call and for every node of an executor, so that what ``forward``
    keeps in ``self``, ``backward`` finds there.
    """

    def forward(
        self, is_train: int, req: list[str], in_data: list[Any], out_data: list[Any], aux: list[Any]
    ) -> None:
        """Computes ``out_data``; default: nothing.

        Parameters
        ----------
        is_train : int
            1 in training mode, else 0.
        req : list of str
            ``"null"``, ``"write"`` or ``"inplace"`` for every output: ``self.assign`` honours it.
        in_data : list of NDArray
            The arguments, read-only.
        out_data : list of NDArray
            The outputs, with the shapes and dtypes that were inferred.
        aux : list of NDArray
            The auxiliary states, to be read and written.
        """

    def backward(
        self,
        req: list[str],
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        in_grad: list[Any],
        aux: list[Any],
    ) -> None:
        """Computes ``in_grad``, the gradient of every argument; default: nothing, which leaves them
        0 and warns of it once.

        ``out_grad``, ``in_data`` and ``out_data`` are those of the forward pass as far as
        :meth:`CustomOpProp.declare_backward_dependency` lists them; using another one is an
        MXNetError. ``req`` has one request for every array of ``in_grad``.
        """

    assign = staticmethod(assign)


class CustomOpProp(Description):
    """MXNet's form of an operator description: subclass it and register the class.

    Parameters of the call arrive as strings in the constructor. The names, shapes and types of
    arguments, outputs and auxiliary states follow from the methods below; an exception in any of
    them is raised by the call.

    Parameters
    ----------
    need_top_grad : bool
        Does ``backward`` read ``out_grad``? A loss does not.

    Examples
    --------
    >>> import rsnet as mx
    >>> class Scale(mx.operator.CustomOp):
    ...     def __init__(self, factor):
    ...         self.factor = factor
    ...     def forward(self, is_train, req, in_data, out_data, aux):
    ...         self.assign(out_data[0], req[0], self.factor * in_data[0])
    ...     def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
    ...         self.assign(in_grad[0], req[0], self.factor * out_grad[0])
    >>> @mx.operator.register("doc_custom_scale")
    ... class ScaleProp(mx.operator.CustomOpProp):
    ...     def __init__(self, factor="2"):
    ...         super().__init__()
    ...         self.factor = float(factor)
    ...     def create_operator(self, ctx, in_shapes, in_dtypes):
    ...         return Scale(self.factor)
    >>> mx.nd.Custom(mx.nd.array([1, 2]), op_type="doc_custom_scale", factor=3).asnumpy()
    array([3., 6.], dtype=float32)
    >>> CustomOpProp(need_top_grad=False).declare_backward_dependency([0], [1, 2], [3])
    [1, 2, 3]
    """

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        """``(in_shape, out_shape[, aux_shape])``; default: outputs like the first argument.

        Parameters
        ----------
        in_shape : list of list of int
            One shape for every argument; an unknown one is ``[]``, an unknown extent 0.

        Returns
        -------
        tuple of lists
            Shapes of arguments (unknown ones filled in), outputs and auxiliary states. None or
            False where not enough is known. Lists of other lengths are an MXNetError.

        Examples
        --------
        >>> CustomOpProp().infer_shape([[2, 3]])
        ([[2, 3]], [[2, 3]], [])
        """
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> Any:
        """``(in_type, out_type[, aux_type])`` of NumPy types, None for unknown; default: outputs
        and auxiliary states like the first argument.

        >>> import numpy as np
        >>> CustomOpProp().infer_type([np.float32]) == ([np.float32], [np.float32], [])
        True
        """
        n_out, n_aux = len(self.list_outputs()), len(self.list_auxiliary_states())
        return in_type, [in_type[0]] * n_out, [in_type[0]] * n_aux

    def infer_storage_type(self, in_stype: list[str]) -> Any:
        """``(in_stype, out_stype, aux_stype)``. All arrays of rsnet are dense: it is asked with
        ``"default"`` for every argument, and any other answer than that is an MXNetError.

        >>> CustomOpProp().infer_storage_type(["default"])
        (['default'], ['default'], [])
        """
        n_out, n_aux = len(self.list_outputs()), len(self.list_auxiliary_states())
        return in_stype, ["default"] * n_out, ["default"] * n_aux

    def infer_storage_type_backward(
        self,
        ograd_stype: list[str],
        in_stype: list[str],
        out_stype: list[str],
        igrad_stype: list[str],
        aux_stype: list[str],
    ) -> Any:
        """As :meth:`infer_storage_type`, for the backward pass.

        >>> CustomOpProp().infer_storage_type_backward(*[["default"]] * 4, [])
        (['default'], ['default'], ['default'], ['default'], [])
        """
        return ograd_stype, in_stype, out_stype, ["default"] * len(igrad_stype), aux_stype

    def create_operator(
        self, ctx: Any, in_shapes: list[list[int]], in_dtypes: list[int]
    ) -> CustomOp:
        """The object that computes one node or recorded call; default: one that does nothing.

        Parameters
        ----------
        ctx : Context
        in_shapes : list of list of int
            Shapes of arguments and auxiliary states.
        in_dtypes : list of int
            Their dtypes by MXNet's numbers: 0 float32, 1 float64, 2 float16, 3 uint8, 4 int32,
            5 int8, 6 int64, 7 bool.

        Raises
        ------
        rsnet.MXNetError
            By the call, if what is returned has no ``forward`` and ``backward``.
        """
        return CustomOp()


# The operator ``Custom`` -----------------------------------------------------------------------


class UnregisteredNode(Node):
    """A ``Custom`` node whose ``op_type`` is not registered yet.

    It has facts only, so that graphs can be loaded, listed and saved. Whatever else is asked of it
    looks the class up again, and fills in the rest.
    """

    __slots__ = ("_given",)

    def __init__(self, op_type: str, given: dict[str, str], inputs: int, outputs: int) -> None:
        self.name, self._given = op_type, given
        self.facts = Facts(numbered("data", inputs), numbered("output", outputs), outputs)

    def __getattr__(self, name: str) -> Any:
        if name not in Node.__slots__:
            raise AttributeError(name)
        node = _described(self.name, self._given)
        before, now = ((len(f.inputs), len(f.outputs)) for f in (self.facts, node.facts))
        if before != now:
            was = f"{before[0]} inputs and {before[1]} outputs, as the graph was loaded with"
            raise invalid("Custom", f"class of op_type '{self.name}'", type(node.prop), was)
        for slot in Node.__slots__:
            setattr(self, slot, getattr(node, slot))
        return getattr(self, name)


def _described(op_type: str, given: dict[str, str]) -> Node:
    """The node of the registered class."""
    cls = registry.custom_props.get(op_type)
    if cls is None:
        if not registry.custom_props:
            none = "no operator of this name is registered (mx.operator.register)"
            raise fail("Custom", f"unknown op_type {shown(op_type)}: {none}")
        raise unknown("Custom", "op_type", op_type, sorted(registry.custom_props))
    prop = cls(**given)
    node = Node(op_type, prop, property_style=False)
    _refuse_sparse(node, cls)
    return node


def _refuse_sparse(node: Node, cls: type) -> None:
    """Checks that a class with ``infer_storage_type`` accepts dense arrays."""
    n_in, n_out, n_aux = node.n_args, node.n_out, len(node.aux)
    for method, parts in (
        ("infer_storage_type", (n_in,)),
        ("infer_storage_type_backward", (n_out, n_in, n_out, n_in, n_aux)),
    ):
        if getattr(cls, method) is getattr(CustomOpProp, method):
            continue
        answer = getattr(node.prop, method)(*(["default"] * n for n in parts))
        listed = answer if isinstance(answer, (tuple, list)) else [answer]
        dense = [isinstance(a, (tuple, list)) and all(s == "default" for s in a) for a in listed]
        if not all(dense):
            raise wrong(node.name, method, answer, "'default' storage only")


# Keys under which the reader of symbol files says how many inputs and outputs a node has.
_ARITY = ("@num_inputs", "@num_outputs")


def _make(values: tuple[Any, ...], given: dict[str, Any]) -> Node:
    op_type = values[0]
    texts = {
        k: str(v)
        for k, v in given.items()
        if k not in ("op_type", "name", *_ARITY) and not (k.startswith("__") and k.endswith("__"))
    }
    if op_type not in registry.custom_props:
        # A symbol file says how many there are; of a call nothing is known yet.
        inputs, outputs = (int(given.get(key, 1)) for key in _ARITY)
        return UnregisteredNode(op_type, texts, inputs, outputs)
    return _described(op_type, texts)


def _state(node: Node, ctx: Any, shapes: list[Any], types: list[Any]) -> Any:
    flags = [_DTYPE_NP_TO_MX[TYPES[t]] for t in types]
    made = node.prop.create_operator(ctx, [list(s) for s in shapes], flags)
    return checked_operator(node.name, made)


#: Operators without a backward whose gradients were asked for: warned of once each.
_without_backward: set[str] = set()


# These two call the user's function themselves: a frame between would cost as much as a call.


def _run_forward(
    node: Node, op: Any, is_train: int, ins: Any, aux: Any, req: Any, outs: Any
) -> None:
    try:
        answer = op.forward(is_train, req, ins, outs, aux)
    except Exception as error:
        _note(error, node, "forward")
        raise
    if answer is not None:
        raise _answered(node, "forward", answer)


def _run_backward(
    node: Node, op: Any, is_train: int, out_grad: Any, ins: Any, outs: Any, aux: Any, req: Any,
    in_grad: Any,
) -> None:  # fmt: skip
    # The class first: asking the object makes a method, which then costs as much as its call.
    if (
        getattr(type(op), "backward", None) is _NO_BACKWARD
        and getattr(op.backward, "__func__", None) is _NO_BACKWARD
    ):
        if node.name not in _without_backward:
            _without_backward.add(node.name)
            warn(f"operator '{node.name}' (Custom) has no backward: its gradients are 0")
        return
    try:
        answer = op.backward(req, out_grad, ins, outs, in_grad, aux)
    except Exception as error:
        _note(error, node, "backward")
        raise
    if answer is not None:
        raise _answered(node, "backward", answer)


_NO_BACKWARD = CustomOp.backward


def _note(error: Exception, node: Node, method: str) -> None:
    """Names the operator by its ``op_type``."""
    add_note(error, f"in {method} of operator '{node.name}' (Custom)")


def _answered(node: Node, method: str, answer: Any) -> Exception:
    operator = f"operator '{node.name}' (Custom)"
    nothing = "None: results are written to the outputs (self.assign)"
    return wrong(operator, method, answer, nothing)


_OP_TYPE = schema_field(
    "op_type", "string", doc="Name under which the CustomOpProp class is registered."
)
_forward, _backward = node_definitions(
    "Custom", _core.Schema([_OP_TYPE], open=True), _make, _run_forward, _run_backward,
    state=_state, takes_ctx=False,
)  # fmt: skip
_forward.doc = (
    "Applies an operator written by subclassing rsnet.operator.CustomOp.\n\n"
    "All other keyword arguments are passed to the constructor of its CustomOpProp as strings.\n\n"
    "Examples\n"
    "--------\n"
    ">>> class Identity(mx.operator.CustomOp):\n"
    "...     def forward(self, is_train, req, in_data, out_data, aux):\n"
    "...         self.assign(out_data[0], req[0], in_data[0])\n"
    '>>> @mx.operator.register("doc_identity")\n'
    "... class IdentityProp(mx.operator.CustomOpProp):\n"
    "...     def create_operator(self, ctx, in_shapes, in_dtypes):\n"
    "...         return Identity()\n"
    '>>> nd.Custom(nd.array([1, 2]), op_type="doc_identity")\n'
    "[1 2]"
)
_forward.input_docs = [("data", "NDArray-or-Symbol[]", "The arguments, in order or by name.")]
_backward.install()
_forward.install()
