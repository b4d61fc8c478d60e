"""``Operator`` and ``OperatorProperty``; see ``docs/write_an_operator.md``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ..parameter import Parameter
from .checks import invalid, unknown
from .operands import ResourceRequest, assign
from .requests import OpReq


class Operator:
    """The computation: one object per node of an executor or recorded call, shared by forward and
    backward.

    ``ctx.is_train`` is true in training, ``ctx.run_ctx`` the device, ``ctx.requested``
    holds the resources that the property asked for. Requests are null, write or inplace, and add if
    the property :meth:`~OperatorProperty.accumulates`; ``self.assign`` honours them.
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
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

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
        raise NotImplementedError(f"{type(self).__name__} does not define backward")

    def exec_type(self) -> str:
        """``"sync"``, the only way that is supported: the operator is done when its function has
        returned. Any other answer is refused.
        """
        return "sync"

    assign = staticmethod(assign)


class Description:
    """What the forms of an operator description have in common: names and dependencies, all with
    defaults.
    """

    #: Whether backward reads the gradients of the outputs, where nothing else is declared.
    need_top_grad_ = True

    def list_arguments(self) -> list[str]:
        """Names of the arguments, in order; default ``["data"]``.

        >>> Description().list_arguments()
        ['data']
        """
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs, at least one, hidden ones last; default ``["output"]``.

        >>> Description().list_outputs()
        ['output']
        """
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of states that the operator keeps and changes, such as moving averages; default
        none. They follow the arguments in a call and have no gradients.

        >>> Description().list_auxiliary_states()
        []
        """
        return []

    def declare_backward_dependency(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any]
    ) -> list[Any]:
        """The entries that backward reads, each once; the memory of what is not listed may be used
        again before.

        Default: all of them, without ``out_grad`` where ``need_top_grad_`` is False. Entries stand
        for arrays and have no other meaning. Returning what was not given, or one twice, is an
        MXNetError.

        >>> Description().declare_backward_dependency(["dy"], ["x", "w"], ["y"])
        ['dy', 'x', 'w', 'y']
        """
        return [*(out_grad if self.need_top_grad_ else []), *in_data, *out_data]

    def accumulates(self) -> bool:
        """Whether ``forward`` and ``backward`` handle the request ``add`` themselves, as
        ``self.assign`` does; default no.

        Otherwise they write to a temporary array, which is then added.

        >>> Description().accumulates()
        False
        """
        return False

    def _float32(self, operator: str, in_type: list[Any], n_out: int) -> Any:
        """The answer of ``infer_type`` of operators that take nothing but float32."""
        for name, given in zip(self.list_arguments(), in_type):
            if given not in (None, np.float32):
                expected = "float32 (override infer_type to take others)"
                raise invalid(operator, f"dtype of '{name}'", np.dtype(given).name, expected)
        f32 = np.float32
        return [f32] * len(in_type), [f32] * n_out, [f32] * len(self.list_auxiliary_states())


class OperatorProperty(Description):
    """Describes an operator: subclass it and register the class.

    ``Param``, a :class:`rsnet.Parameter`, gives the operator typed parameters: they are in
    ``self.param``. ``argument_docs`` describes inputs, by name. Entries in the dependency and
    in-place methods are opaque: only identity matters. An exception in any method is raised by the
    call, an answer that does not fit is an MXNetError that names operator and method.

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
    #: What the arguments and auxiliary states are, by name, for ``help(nd.<name>)``.
    argument_docs: Mapping[str, str] = MappingProxyType({})
    #: The form in which forward and backward receive their operands: ``"ndarray"``; ``"numpy"``,
    #: NumPy views, for which arrays on a device are copied to the host; ``"cupy"``, on a device
    #: arrays of CuPy over its memory, with the stream of the call as CuPy's current one, and on the
    #: host NumPy views.
    views: str = "ndarray"
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
            raise unknown(self.type_string(), "parameter", next(iter(kwargs)), ())

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
            raise invalid(self.type_string(), "result of get_params", params, "a dict of strings")
        other = type(self)()
        other.init(params)
        return other

    def type_string(self) -> str:
        """The registered name; to register the class under another one is an MXNetError."""
        return self._registered_as or type(self).__name__

    def num_outputs(self) -> int:
        """Number of outputs; default: as many as ``list_outputs`` has names.

        >>> OperatorProperty().num_outputs()
        1
        """
        return len(self.list_outputs())

    def num_visible_outputs(self) -> int:
        """Number of leading outputs that the next operator receives; default: all.

        The others are kept for ``backward``, such as the mask of a dropout.

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
        raise NotImplementedError(f"{type(self).__name__} does not define infer_shape")

    def infer_type(self, in_type: list[Any]) -> Any:
        """``(in_type, out_type, aux_type)`` of NumPy types, None for unknown; default: all
        float32.

        Raises
        ------
        rsnet.MXNetError
            The default, for an argument of another type.

        Examples
        --------
        >>> import numpy as np
        >>> OperatorProperty().infer_type([None]) == ([np.float32], [np.float32], [])
        True
        """
        return self._float32(self.type_string(), in_type, self.num_outputs())

    def forward_resource(self, in_shape: list[tuple[int, ...]]) -> list[ResourceRequest]:
        """Resources that ``forward`` finds in ``ctx.requested``; default none.

        ``"temp_space"``, at most once, has ``get_space(shape, dtype)``; ``"random"`` has
        ``get_random()`` with ``uniform`` and ``normal``. A pair ``("temp_space", bytes)`` says how
        much space one call takes at most: `memory_plan` counts it, and ``get_space`` gives no more.
        Without the bytes, it gives what it is asked for, and the plan counts nothing.

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

    def forward_inplace_option(
        self, in_data: list[Any], out_data: list[Any]
    ) -> list[tuple[Any, Any]]:
        """Pairs (input, output) that may share memory; default none.

        A hint: it is taken where nothing else reads the input, and results are the same.

        >>> OperatorProperty().forward_inplace_option(["x"], ["y"])
        []
        """
        return []

    def backward_inplace_option(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any], in_grad: list[Any]
    ) -> list[tuple[Any, Any]]:
        """Pairs (declared dependency, input gradient) that may share memory: a hint, default none.

        A pair whose first entry is not a declared dependency is an MXNetError.

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
        raise NotImplementedError(f"{type(self).__name__} does not define create_operator")

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
