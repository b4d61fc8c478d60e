"""Arithmetic and comparison of arrays and numbers as functions."""

from __future__ import annotations

import operator as _operator
from collections.abc import Callable
from typing import Any

from .. import _core
from .._core import NDArray
from ._register import _internal, op

__all__ = [
    "add",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "lesser",
    "lesser_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "not_equal",
    "power",
    "subtract",
    "true_divide",
]


def _check(function: str, *operands: Any) -> None:
    for x in operands:
        if not isinstance(x, NDArray):
            try:
                float(x)
            except (TypeError, ValueError):
                raise TypeError(
                    f"{function}: invalid operand of type {type(x).__name__}: expected an NDArray "
                    "or a number (mx.nd.array makes an NDArray)"
                ) from None


def _documented(binary: Any, name: str, doc: str, example: str) -> Any:
    """Names a function; `example` is what it makes of 0, 2, 3 and 2."""
    binary.__name__ = binary.__qualname__ = name
    binary.__doc__ = f"""{doc} with broadcasting; two numbers give a number.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.{name}(nd.array([0, 2, 3]), 2).asnumpy()
    array([{example}], dtype=float32)
    """
    return binary


def _by_operator(name: str, function: Callable[..., Any], doc: str, example: str) -> Any:
    def binary(lhs: Any, rhs: Any) -> Any:
        _check(name, lhs, rhs)
        return function(lhs, rhs)

    return _documented(binary, name, doc, example)


def _by_name(name: str, function: Callable[..., Any], doc: str, example: str) -> Any:
    _, broadcast, right, left = _core.binary_operators(symbol=False)[name]

    def binary(lhs: Any, rhs: Any) -> Any:
        _check(name, lhs, rhs)
        if isinstance(lhs, NDArray) and isinstance(rhs, NDArray):
            return getattr(op, broadcast)(lhs, rhs)
        if isinstance(lhs, NDArray):
            return getattr(_internal, right)(lhs, scalar=float(rhs))
        if isinstance(rhs, NDArray):
            return getattr(_internal, left)(rhs, scalar=float(lhs))
        return function(lhs, rhs)

    return _documented(binary, name, doc, example)


add = _by_operator("add", _operator.add, "Sum", "2., 4., 5.")
subtract = _by_operator("subtract", _operator.sub, "Difference", "-2.,  0.,  1.")
multiply = _by_operator("multiply", _operator.mul, "Product", "0., 4., 6.")
divide = _by_operator("divide", _operator.truediv, "Quotient", "0. , 1. , 1.5")
true_divide = _by_operator("true_divide", _operator.truediv, "Quotient", "0. , 1. , 1.5")
modulo = _by_operator("modulo", _operator.mod, "Remainder", "0., 0., 1.")


def power(base: Any, exp: Any) -> Any:
    """Power with broadcasting; two numbers give a number.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.power(nd.array([1, 2, 3]), 2).asnumpy()
    array([1., 4., 9.], dtype=float32)
    """
    _check("power", base, exp)
    return base**exp


equal = _by_operator("equal", _operator.eq, "1 where equal, else 0,", "0., 1., 0.")
not_equal = _by_operator("not_equal", _operator.ne, "1 where different, else 0,", "1., 0., 1.")
greater = _by_operator("greater", _operator.gt, "1 where greater, else 0,", "0., 0., 1.")
greater_equal = _by_operator(
    "greater_equal", _operator.ge, "1 where not less, else 0,", "0., 1., 1."
)
lesser = _by_operator("lesser", _operator.lt, "1 where less, else 0,", "1., 0., 0.")
lesser_equal = _by_operator(
    "lesser_equal", _operator.le, "1 where not greater, else 0,", "1., 1., 0."
)
maximum = _by_name("maximum", max, "The greater value", "2., 2., 3.")
minimum = _by_name("minimum", min, "The lesser value", "0., 2., 2.")


def _truth(function: Callable[..., Any]) -> Any:
    return lambda a, b: float(function(bool(a), bool(b)))


logical_and = _by_name(
    "logical_and",
    _truth(_operator.and_),
    "1 where both are true, else 0,",
    "0., 1., 1.",
)
logical_or = _by_name(
    "logical_or",
    _truth(_operator.or_),
    "1 where one is true, else 0,",
    "1., 1., 1.",
)
logical_xor = _by_name(
    "logical_xor",
    _truth(_operator.xor),
    "1 where exactly one is true, else 0,",
    "1., 0., 0.",
)
