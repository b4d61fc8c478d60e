"""Arithmetic, comparisons and fluent methods of `Symbol`, added to the class from tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._binary_methods import binary_methods
from ..base import NotImplementedForSymbol
from .symbol import Symbol

_NUMBERS = (int, float, bool, np.number, np.bool_)


def _binary(method: str, op: str, scalar_op: str) -> None:
    """Adds one arithmetic or comparison method: element-wise with a symbol or a number."""

    def run(self: Symbol, other: Any) -> Symbol:
        if isinstance(other, Symbol):
            return _apply(op, [self, other])
        if isinstance(other, _NUMBERS):
            return _apply(scalar_op, [self], scalar=other)
        raise TypeError(
            f"type {type(other).__name__} not supported by Symbol.{method}: expected a Symbol or a "
            "number"
        )

    run.__name__ = run.__qualname__ = method
    setattr(Symbol, method, run)


def _apply(op: str, inputs: list[Symbol], **params: Any) -> Symbol:
    from .register import create

    return create(op, op.lower(), inputs, {}, params)


for _row in binary_methods(symbol=True):
    _binary(_row.name, _row.same, _row.scalar)


def _refuse(method: str) -> None:
    """Adds a method of arrays that symbols cannot have."""

    def run(self: Symbol, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedForSymbol(run, method)

    run.__name__ = run.__qualname__ = method
    setattr(Symbol, method, run)


for _method in [
    "__iadd__", "__isub__", "__imul__", "__itruediv__", "__imod__", "__ipow__",
    "wait_to_read", "asnumpy", "asscalar", "copy", "as_in_context", "detach", "backward",
]:  # fmt: skip
    _refuse(_method)

#: Functions that are methods as well.
FLUENT = """abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort
broadcast_axes broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space diag exp
expm1 fix flatten flip floor log log10 log1p log2 log_softmax max mean min nanprod
nansum norm one_hot ones_like pad pick prod radians rcbrt reciprocal relu repeat reshape_like rint
round rsqrt shape_array sigmoid sign sin sinh size_array slice slice_axis slice_like softmax
softmin sort space_to_depth split split_v2 sqrt square sum swapaxes take tan tanh tile topk
transpose trunc zeros_like""".split()


def _call(op: str, *args: Any, **kwargs: Any) -> Symbol:
    """Calls the function of an operator."""
    from .register import function

    return function(op)(*args, **kwargs)


def _reshape(self: Symbol, *shape: Any, **kwargs: Any) -> Symbol:
    """`sym.reshape` of this symbol; the shape as a tuple or as several integers."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    return _call("Reshape", self, **({"shape": shape} if shape else {}), **kwargs)


def _astype(self: Symbol, dtype: Any, **kwargs: Any) -> Symbol:
    """`sym.cast` of this symbol."""
    return _call("Cast", self, dtype=dtype, **kwargs)


def _expand_dims(self: Symbol, axis: int, inplace: bool = False, **kwargs: Any) -> Symbol:
    """`sym.expand_dims` of this symbol; `inplace` matters for arrays only."""
    return _call("expand_dims", self, axis=axis, **kwargs)


def _squeeze(self: Symbol, axis: Any = None, inplace: bool = False, **kwargs: Any) -> Symbol:
    """`sym.squeeze` of this symbol; `inplace` matters for arrays only."""
    return _call("squeeze", self, **({} if axis is None else {"axis": axis}), **kwargs)


for _method, _written in {
    "astype": _astype,
    "expand_dims": _expand_dims,
    "reshape": _reshape,
    "squeeze": _squeeze,
}.items():
    setattr(Symbol, _method, _written)
