"""Operators by subclassing.

:class:`OperatorProperty` describes an operator (arguments, shapes, parameters, dependencies) and
makes :class:`Operator` objects that compute; ``@register("name")`` gives ``nd.name`` and
``sym.name``. :class:`CustomOp` and :class:`CustomOpProp` are the forms that MXNet programs know,
called by ``nd.Custom(..., op_type="name")``. See ``docs/write_an_operator.md``.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _core
from ._door import TYPES, Definition, KernelSpec, check_exec_type, fail
from ._subclassed import Node, node_definitions
from .base import MXNetError, MXValueError
from .parameter import Parameter

__all__ = [
    "OpReq",
    "ResourceRequest",
    "Operator",
    "OperatorProperty",
    "CustomOp",
    "CustomOpProp",
    "NumpyOp",
    "NDArrayOp",
    "PythonOp",
    "register",
    "get_all_registered_operators",
    "get_all_registered_operators_grouped",
    "get_operator_arguments",
]

C = TypeVar("C", bound=type)


class OpReq(str, enum.Enum):
    """What an operator is asked to do with an output; equal to its text, ``int(req)`` is 0 to 3."""

    null = "null"
    write = "write"
    inplace = "inplace"
    add = "add"

    def __int__(self) -> int:
        return _REQ_NUMBERS[self._value_]

    __index__ = __int__
    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]


_REQ_NUMBERS = {"null": 0, "write": 1, "inplace": 2, "add": 3}


class ResourceRequest(str, enum.Enum):
    """A resource that an operator asks for: scratch memory or random numbers."""

    temp_space = "temp_space"
    random = "random"


def assign(dst: Any, req: str | int, src: Any) -> None:
    """Stores ``src`` in ``dst`` as the request says: null nothing, write and inplace overwrite, add
    adds.

    Raises
    ------
    rsnet.MXNetError
        For any other request.
    """
    if req == "write" or req == "inplace":
        dst[:] = src
    elif req == "null":
        return
    elif req == "add":
        dst[:] += src
    elif isinstance(req, int) and 0 <= req < 4:
        assign(dst, tuple(_REQ_NUMBERS)[req], src)
    else:
        raise MXNetError(f"assign: unknown request {req!r}, valid are {list(_REQ_NUMBERS)}")


class Operator:
    """What computes: one object per node of an executor or recorded call, shared by forward and
    backward.

    ``ctx.is_train`` tells training from inference, ``ctx.run_ctx`` the device, ``ctx.requested``
    holds the resources that the property asked for. Requests are null, write or inplace;
    ``self.assign`` honours them.
    """

    def forward(
        self,
        ctx: Any,
        in_data: list[Any],
        req: list[OpReq],
        out_data: list[Any],
        aux_states: list[Any],
    ) -> None:
        """Computes ``out_data`` from ``in_data``."""
        raise NotImplementedError(f"{type(self).__name__}.forward is not implemented")

    def backward(
        self,
        ctx: Any,
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        req: list[OpReq],
        in_grad: list[Any],
        aux_states: list[Any],
    ) -> None:
        """Computes ``in_grad``; only the declared dependencies may be read."""
        raise NotImplementedError(f"{type(self).__name__}.backward is not implemented")

    def exec_type(self) -> str:
        """``"sync"``, the only way that is supported: the operator is done when its function has
        returned. Any other answer is refused.
        """
        return "sync"

    assign = staticmethod(assign)


class OperatorProperty:
    """Describes an operator: subclass it and register the class.

    ``Param``, a :class:`rsnet.Parameter`, gives the operator typed parameters: they are in
    ``self.param``. Entries in the dependency and in-place methods are opaque: only identity
    matters.
    """

    Param: type[Parameter] | None = None
    #: Name of the parameter that counts the inputs, for operators with any number of them.
    key_var_num_args: str | None = None
    param: Any = None
    _registered_as = ""

    def init(self, kwargs: dict[str, str]) -> None:
        """Takes the parameters as text; called before anything else."""
        if self.Param is not None:
            self.param = self.Param.parse(kwargs)
        elif kwargs:
            raise MXNetError(
                f"Cannot find argument '{next(iter(kwargs))}': "
                f"operator {self.type_string()} has no parameters"
            )

    def get_params(self) -> dict[str, str]:
        """All parameters as text; ``init`` makes an equal operator from them."""
        return {} if self.param is None else self.param.as_strings()

    def copy(self) -> OperatorProperty:
        """An equal, independent property."""
        params = self.get_params()
        if not isinstance(params, dict):
            raise fail(
                self.type_string(), f"get_params returned {params!r}, expected a dict of texts"
            )
        other = type(self)()
        other.init(params)
        return other

    def type_string(self) -> str:
        """The registered name."""
        return self._registered_as or type(self).__name__

    def list_arguments(self) -> list[str]:
        return ["data"]

    def list_outputs(self) -> list[str]:
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        return []

    def num_outputs(self) -> int:
        return len(self.list_outputs())

    def num_visible_outputs(self) -> int:
        """So many first outputs are seen by the next operator."""
        return self.num_outputs()

    def infer_shape(self, in_shape: list[tuple[int, ...]]) -> Any:
        """``(in_shape, out_shape, aux_shape)``; unknown extents are 0, an unknown shape is ().

        May fill in inputs. None, False or a partial answer when not enough is known; raise on
        conflict.
        """
        raise NotImplementedError(f"{type(self).__name__}.infer_shape is not implemented")

    def infer_type(self, in_type: list[Any]) -> Any:
        """``(in_type, out_type, aux_type)`` of NumPy types, None for unknown; default: all
        float32.
        """
        for name, given in zip(self.list_arguments(), in_type):
            if given not in (None, np.float32):
                raise fail(
                    self.type_string(),
                    f"unsupported data type {np.dtype(given).name} of '{name}', expected float32 "
                    "(override infer_type to take others)",
                )
        f32 = np.float32
        return (
            [f32] * len(in_type),
            [f32] * self.num_outputs(),
            [f32] * len(self.list_auxiliary_states()),
        )

    def forward_resource(self, in_shape: list[tuple[int, ...]]) -> list[ResourceRequest]:
        return []

    def backward_resource(self, in_shape: list[tuple[int, ...]]) -> list[ResourceRequest]:
        return []

    def declare_backward_dependency(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any]
    ) -> list[Any]:
        """The entries that backward reads; what is not listed may be freed early. Default: all."""
        return [*out_grad, *in_data, *out_data]

    def forward_inplace_option(
        self, in_data: list[Any], out_data: list[Any]
    ) -> list[tuple[Any, Any]]:
        """Pairs (input, output) that may share memory: a hint."""
        return []

    def backward_inplace_option(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any], in_grad: list[Any]
    ) -> list[tuple[Any, Any]]:
        """Pairs (declared dependency, input gradient) that may share memory: a hint."""
        return []

    def create_operator(self, ctx: Any) -> Operator:
        raise NotImplementedError(f"{type(self).__name__}.create_operator is not implemented")

    def create_operator_ex(
        self, ctx: Any, in_shapes: list[tuple[int, ...]], in_types: list[Any]
    ) -> Operator:
        """As ``create_operator``, where shapes or types choose the implementation."""
        return self.create_operator(ctx)


class CustomOp:
    """MXNet's form of an operator object; see :class:`CustomOpProp`."""

    def forward(
        self, is_train: int, req: list[str], in_data: list[Any], out_data: list[Any], aux: list[Any]
    ) -> None:
        """Computes ``out_data``; default: nothing."""

    def backward(
        self,
        req: list[str],
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        in_grad: list[Any],
        aux: list[Any],
    ) -> None:
        """Computes ``in_grad``; default: nothing."""

    assign = staticmethod(assign)


class CustomOpProp:
    """MXNet's form of an operator description; its parameters arrive as strings in the
    constructor.
    """

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def list_arguments(self) -> list[str]:
        return ["data"]

    def list_outputs(self) -> list[str]:
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        return []

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        """``(in_shape, out_shape[, aux_shape])``; default: outputs like the first input."""
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> Any:
        """``(in_type, out_type[, aux_type])``; default: all like the first input."""
        first = in_type[0]
        return (
            in_type,
            [first] * len(self.list_outputs()),
            [first] * len(self.list_auxiliary_states()),
        )

    def infer_storage_type(self, in_stype: list[str]) -> Any:
        return (
            in_stype,
            ["default"] * len(self.list_outputs()),
            ["default"] * len(self.list_auxiliary_states()),
        )

    def infer_storage_type_backward(
        self,
        ograd_stype: list[str],
        in_stype: list[str],
        out_stype: list[str],
        igrad_stype: list[str],
        aux_stype: list[str],
    ) -> Any:
        return ograd_stype, in_stype, out_stype, ["default"] * len(igrad_stype), aux_stype

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """What backward reads; default: all, without ``out_grad`` if the top gradient is not
        needed.
        """
        return [*(out_grad if self.need_top_grad_ else []), *in_data, *out_data]

    def create_operator(
        self, ctx: Any, in_shapes: list[list[int]], in_dtypes: list[int]
    ) -> CustomOp:
        return CustomOp()


_custom_props: dict[str, type[CustomOpProp]] = {}


def register(name: str) -> Callable[[C], C]:
    """Class decorator that registers an operator.

    A subclass of :class:`OperatorProperty` becomes ``nd.<name>`` and ``sym.<name>``; a subclass of
    :class:`CustomOpProp` is called by ``nd.Custom`` and ``sym.Custom`` with ``op_type="<name>"``.
    Registering a name again warns and replaces; graphs that are bound keep the old class. Replacing
    a built-in operator is an error.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"register: the name of an operator is a text, got {name!r}")

    def decorate(cls: C) -> C:
        if isinstance(cls, type) and issubclass(cls, CustomOpProp):
            if name in _custom_props:
                warnings.warn(
                    f"custom operator '{name}' is registered again; the new class replaces the old",
                    stacklevel=2,
                )
            _custom_props[name] = cls
        elif isinstance(cls, type) and issubclass(cls, OperatorProperty):
            _register_property(name, cls)
        else:
            raise TypeError(
                f"register('{name}'): expected a subclass of OperatorProperty or CustomOpProp, "
                f"got {cls!r}"
            )
        return cls

    return decorate


_properties: dict[str, type[OperatorProperty]] = {}


def _register_property(name: str, cls: type[OperatorProperty]) -> None:
    if cls.type_string is not OperatorProperty.type_string:
        says = cls().type_string()
        if says != name:
            raise MXNetError(f"register('{name}'): type_string of {cls.__name__} is '{says}'")
    if _core.is_builtin_operator(name):
        raise MXValueError(f"operator '{name}' is built in and cannot be replaced")
    known = name in _properties
    if known:
        warnings.warn(
            f"operator '{name}' is registered again; the new class replaces the old", stacklevel=3
        )
    forward, backward = _property_definitions(name, cls)
    backward.install(replace=known)
    forward.install(replace=known)
    _properties[name] = cls
    cls._registered_as = name


def _property_definitions(name: str, cls: type[OperatorProperty]) -> tuple[Definition, Definition]:
    params = cls.Param
    own_init = cls.init is not OperatorProperty.init
    schema = _core.Schema([], open=True) if params is None else params._schema

    def make(values: tuple[Any, ...], given: dict[str, Any]) -> Node:
        prop = cls()
        prop._registered_as = name
        if own_init or params is None:
            prop.init({k: str(v) for k, v in given.items()})
        else:
            prop.param = params.from_values(values)
        return Node(name, prop, property_style=True)

    def run_forward(
        node: Node, state: Any, ctx: Any, inputs: list[Any], req: list[Any], outputs: list[Any]
    ) -> Any:
        if node.forward_resources:
            ctx.request(node.requests("forward", [x.shape for x in inputs[: node.n_args]]))
        n = node.n_args
        return state.forward(ctx, inputs[:n], req, outputs, inputs[n:])

    def run_backward(
        node: Node, state: Any, ctx: Any, inputs: list[Any], req: list[Any], outputs: list[Any]
    ) -> Any:
        out_grad, in_data, out_data, aux = node.scatter(inputs)
        n = node.n_args
        if node.backward_resources:
            ctx.request(node.requests("backward", [x.shape for x in outputs[:n]]))
        return state.backward(ctx, out_grad, in_data, out_data, req[:n], outputs[:n], aux)

    def state(node: Node, ctx: Any, shapes: list[Any], types: list[Any]) -> Any:
        n = node.n_args
        kinds = [TYPES[t] for t in types[:n]]
        made = checked_operator(
            name, "create_operator", node.prop.create_operator_ex(ctx, shapes[:n], kinds)
        )
        if hasattr(made, "exec_type"):
            check_exec_type(name, "exec_type", made.exec_type())
        return made

    forward, backward = node_definitions(
        name,
        schema,
        make,
        state,
        KernelSpec("forward", ("always",), 0, run_forward),
        KernelSpec("backward", ("always",), 0, run_backward),
    )
    forward.doc = cls.__doc__ or ""
    forward.key_var_num_args = cls.key_var_num_args
    forward.input_docs = _documented_inputs(cls)
    return forward, backward


def checked_operator(name: str, method: str, made: Any) -> Any:
    """``made`` if it can compute."""
    if callable(getattr(made, "forward", None)) and callable(getattr(made, "backward", None)):
        return made
    raise fail(name, f"{method} returned {made!r}, expected an object with forward and backward")


def _documented_inputs(cls: type[OperatorProperty]) -> list[tuple[str, str, str]]:
    """The inputs with all parameters at their defaults (None for required ones), for the
    signature.
    """
    kind = "NDArray-or-Symbol"
    if cls.key_var_num_args:
        return [("data", kind + "[]", "The inputs.")]
    try:
        prop = cls()
        if cls.Param is not None:
            blank = cls.Param.__new__(cls.Param)
            for field in cls.Param._names:
                setattr(blank, field, cls.Param._defaults[field])
            prop.param = blank
        names = [*prop.list_arguments(), *prop.list_auxiliary_states()]
    except Exception:  # only the signature suffers: the real names come with real parameters
        names = ["data"]
    return [(n, kind, "") for n in names]


def get_all_registered_operators() -> list[str]:
    """Names of all operators, sorted, aliases and custom operators' ``op_type`` names included."""
    return sorted({*_core.operator_names(), *_custom_props})


def get_all_registered_operators_grouped() -> dict[str, list[str]]:
    """Operators with all their names, by main name."""
    return _core.operator_aliases()


def get_operator_arguments(op_name: str) -> Any:
    """Names and type information of an operator's inputs and parameters.

    Returns
    -------
    OperatorArguments
        A tuple ``(narg, names, types)``.

    Raises
    ------
    KeyError
        If no such operator is registered.
    """
    info = _core.operator_info(op_name)
    arguments = [*info["inputs"], *info["params"]]
    return OperatorArguments(len(arguments), [a[0] for a in arguments], [a[1] for a in arguments])


class OperatorArguments(tuple):
    """``(narg, names, types)`` of an operator, also by these names."""

    def __new__(cls, narg: int, names: Sequence[str], kinds: Sequence[str]) -> OperatorArguments:
        return super().__new__(cls, (narg, list(names), list(kinds)))

    narg = property(lambda self: self[0])
    names = property(lambda self: self[1])
    types = property(lambda self: self[2])


from ._custom import NDArrayOp, NumpyOp, PythonOp  # noqa: E402  (they build on the classes above)
