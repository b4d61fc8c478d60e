"""Operators by subclassing.

:class:`OperatorProperty` describes an operator (arguments, shapes, parameters, dependencies) and
makes :class:`Operator` objects that compute; ``@register("name")`` gives ``nd.name`` and
``sym.name``. :class:`CustomOp` and :class:`CustomOpProp` are the forms that MXNet programs know,
called by ``nd.Custom(..., op_type="name")``. See ``docs/write_an_operator.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _core
from ._custom_classes import CustomOp, CustomOpProp
from ._door import TYPES, Definition, KernelSpec, check_exec_type, fail, free_name
from ._requests import OpReq, ResourceRequest, assign
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
        """Computes ``out_data`` from ``in_data``.

        Parameters
        ----------
        ctx : object
            ``is_train``, ``run_ctx`` (the device) and ``requested`` (resources).
        in_data : list of NDArray
            The arguments, read-only.
        req : list of OpReq
            null, write or inplace for every output.
        out_data : list of NDArray
            All outputs, hidden ones too, with the shapes and types that were inferred.
        aux_states : list of NDArray
            May be read and written.
        """
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
        """Computes ``in_grad``, one array for every argument, as ``req`` asks.

        Of ``out_grad`` (one for every visible output), ``in_data`` and ``out_data`` only the
        declared dependencies are there: using another one is an MXNetError.
        """
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
    matters. An exception in any method is raised by the call, an answer that does not fit is an
    MXNetError that names operator and method.

    Examples
    --------
    >>> import rsnet as mx
    >>> class Square(mx.Operator):
    ...     def forward(self, ctx, in_data, req, out_data, aux_states):
    ...         self.assign(out_data[0], req[0], in_data[0] * in_data[0])
    ...     def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
    ...         self.assign(in_grad[0], req[0], 2 * in_data[0] * out_grad[0])
    >>> @mx.operator.register("doc_square")
    ... class SquareProperty(mx.OperatorProperty):
    ...     def infer_shape(self, in_shape):
    ...         return in_shape, [in_shape[0]], []
    ...     def declare_backward_dependency(self, out_grad, in_data, out_data):
    ...         return [out_grad[0], in_data[0]]
    ...     def create_operator(self, ctx):
    ...         return Square()
    >>> mx.nd.doc_square(mx.nd.array([1, 2, 3])).asnumpy()
    array([1., 4., 9.], dtype=float32)
    """

    Param: type[Parameter] | None = None
    #: Name of the parameter that counts the inputs, for operators with any number of them.
    key_var_num_args: str | None = None
    param: Any = None
    _registered_as = ""

    def init(self, kwargs: dict[str, str]) -> None:
        """Takes the parameters as text; called before anything else. Default: ``Param`` parses them
        into ``self.param``.

        Raises
        ------
        rsnet.MXNetError
            A parameter is unknown, missing, or not of its type.
        """
        if self.Param is not None:
            self.param = self.Param.parse(kwargs)
        elif kwargs:
            raise MXNetError(
                f"Cannot find argument '{next(iter(kwargs))}': "
                f"operator {self.type_string()} has no parameters"
            )

    def get_params(self) -> dict[str, str]:
        """All parameters as text, defaults too; ``init`` makes an equal operator from them.

        >>> OperatorProperty().get_params()
        {}
        """
        return {} if self.param is None else self.param.as_strings()

    def copy(self) -> OperatorProperty:
        """An equal, independent property: one whose ``init`` has taken ``get_params()``.

        >>> prop = OperatorProperty()
        >>> prop.copy() is prop
        False
        """
        params = self.get_params()
        if not isinstance(params, dict):
            raise fail(
                self.type_string(), f"get_params returned {params!r}, expected a dict of texts"
            )
        other = type(self)()
        other.init(params)
        return other

    def type_string(self) -> str:
        """The registered name; to register the class under another one is an MXNetError."""
        return self._registered_as or type(self).__name__

    def list_arguments(self) -> list[str]:
        """Names of the arguments, in order; default ``["data"]``.

        >>> OperatorProperty().list_arguments()
        ['data']
        """
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs, at least one, hidden ones last; default ``["output"]``.

        >>> OperatorProperty().list_outputs()
        ['output']
        """
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of states that the operator keeps and changes, such as moving averages; default
        none. They follow the arguments in a call and have no gradients.

        >>> OperatorProperty().list_auxiliary_states()
        []
        """
        return []

    def num_outputs(self) -> int:
        """How many outputs there are; default: as many as ``list_outputs`` has names.

        >>> OperatorProperty().num_outputs()
        1
        """
        return len(self.list_outputs())

    def num_visible_outputs(self) -> int:
        """So many first outputs are seen by the next operator; default: all. The others are kept for
        ``backward``, such as the mask of a dropout.

        >>> OperatorProperty().num_visible_outputs()
        1
        """
        return self.num_outputs()

    def infer_shape(self, in_shape: list[tuple[int, ...]]) -> Any:
        """``(in_shape, out_shape, aux_shape)``; unknown extents are 0, an unknown shape is ().

        Parameters
        ----------
        in_shape : list of tuple of int
            One shape for every argument.

        Returns
        -------
        tuple of three lists of tuple
            Shapes of arguments (unknown ones may be filled in), outputs and auxiliary states. None,
            False or a partial answer when not enough is known.

        Raises
        ------
        Exception
            Of any type, on conflict.
        """
        raise NotImplementedError(f"{type(self).__name__}.infer_shape is not implemented")

    def infer_type(self, in_type: list[Any]) -> Any:
        """``(in_type, out_type, aux_type)`` of NumPy types, None for unknown; default: all
        float32.

        Raises
        ------
        rsnet.MXNetError
            The default, for an argument of another type.

        Examples
        --------
        >>> OperatorProperty().infer_type([None]) == ([np.float32], [np.float32], [])
        True
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
        """Resources that ``forward`` finds in ``ctx.requested``; default none.

        ``"temp_space"``, at most once, has ``get_space(shape, dtype)``; ``"random"`` has
        ``get_random()`` with ``uniform`` and ``normal``. While a graph is planned the shapes in
        ``in_shape`` are ().

        >>> OperatorProperty().forward_resource([(2, 3)])
        []
        """
        return []

    def backward_resource(self, in_shape: list[tuple[int, ...]]) -> list[ResourceRequest]:
        """As :meth:`forward_resource`, for ``backward``.

        >>> OperatorProperty().backward_resource([(2, 3)])
        []
        """
        return []

    def declare_backward_dependency(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any]
    ) -> list[Any]:
        """The entries that backward reads, each once; what is not listed may be freed early.

        Default: all of them.

        >>> OperatorProperty().declare_backward_dependency(["dy"], ["x", "w"], ["y"])
        ['dy', 'x', 'w', 'y']
        """
        return [*out_grad, *in_data, *out_data]

    def forward_inplace_option(
        self, in_data: list[Any], out_data: list[Any]
    ) -> list[tuple[Any, Any]]:
        """Pairs (input, output) that may share memory; default none.

        A hint: it is taken where nobody else reads the input, and results are the same.

        >>> OperatorProperty().forward_inplace_option(["x"], ["y"])
        []
        """
        return []

    def backward_inplace_option(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any], in_grad: list[Any]
    ) -> list[tuple[Any, Any]]:
        """Pairs (declared dependency, input gradient) that may share memory: a hint, default none.

        A pair whose first is no declared dependency is an MXNetError.

        >>> OperatorProperty().backward_inplace_option(["dy"], ["x"], ["y"], ["dx"])
        []
        """
        return []

    def create_operator(self, ctx: Any) -> Operator:
        """The object that computes one node or recorded call on device ``ctx``; to be overridden,
        unless ``create_operator_ex`` is.

        Raises
        ------
        NotImplementedError
            The default.
        rsnet.MXNetError
            By the call, if what is returned has no ``forward`` and ``backward``.
        """
        raise NotImplementedError(f"{type(self).__name__}.create_operator is not implemented")

    def create_operator_ex(
        self, ctx: Any, in_shapes: list[tuple[int, ...]], in_types: list[Any]
    ) -> Operator:
        """As ``create_operator``, where shapes or types choose the implementation.

        Parameters
        ----------
        ctx : Context
        in_shapes : list of tuple of int
            Shapes of the arguments.
        in_types : list of type
            Their NumPy types.
        """
        return self.create_operator(ctx)


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
            _register_property(free_name("register", name), cls)
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
        in_grad = outputs[:n]
        answer = state.backward(ctx, out_grad, in_data, out_data, req[:n], in_grad, aux)
        outputs[:n] = in_grad  # the core looks whether its arrays are still there
        return answer

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
        KernelSpec("forward", ("always",), 0, run_forward, False, "out_data", "self.assign"),
        KernelSpec("backward", ("always",), 0, run_backward, False, "in_grad", "self.assign"),
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
