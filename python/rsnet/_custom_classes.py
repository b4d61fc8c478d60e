"""MXNet's form of an operator in Python: ``CustomOp`` and ``CustomOpProp``; see ``operator.py``."""

from __future__ import annotations

from typing import Any

from ._requests import assign


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
        """Computes ``in_grad``, the gradient of every argument; default: nothing.

        ``out_grad``, ``in_data`` and ``out_data`` are those of the forward pass as far as
        :meth:`CustomOpProp.declare_backward_dependency` lists them; using another one is an
        MXNetError. ``req`` has one request for every array of ``in_grad``.
        """

    assign = staticmethod(assign)


class CustomOpProp:
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
    """

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def list_arguments(self) -> list[str]:
        """Names of the arguments, in order; default ``["data"]``.

        >>> CustomOpProp().list_arguments()
        ['data']
        """
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs, at least one; default ``["output"]``.

        >>> CustomOpProp().list_outputs()
        ['output']
        """
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of states that the operator keeps and changes, such as moving averages; default
        none. They follow the arguments in a call and have no gradients.

        >>> CustomOpProp().list_auxiliary_states()
        []
        """
        return []

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
        first = in_type[0]
        return (
            in_type,
            [first] * len(self.list_outputs()),
            [first] * len(self.list_auxiliary_states()),
        )

    def infer_storage_type(self, in_stype: list[str]) -> Any:
        """``(in_stype, out_stype, aux_stype)``. All arrays of rsnet are dense: it is asked with
        ``"default"`` for every argument, and any other answer than that is an MXNetError.

        >>> CustomOpProp().infer_storage_type(["default"])
        (['default'], ['default'], [])
        """
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
        """As :meth:`infer_storage_type`, for the backward pass.

        >>> CustomOpProp().infer_storage_type_backward(*[["default"]] * 4, [])
        (['default'], ['default'], ['default'], ['default'], [])
        """
        return ograd_stype, in_stype, out_stype, ["default"] * len(igrad_stype), aux_stype

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """What backward reads; the memory of anything else may be used again before. Default: all,
        without ``out_grad`` if the top gradient is not needed.

        The numbers stand for arrays and have no other meaning. Returning what was not given, or one
        twice, is an MXNetError.

        >>> CustomOpProp(need_top_grad=False).declare_backward_dependency([0], [1, 2], [3])
        [1, 2, 3]
        """
        return [*(out_grad if self.need_top_grad_ else []), *in_data, *out_data]

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
