"""Python's binary methods and the operators that compute them, for symbols and gradient rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from . import _core

_ARITHMETIC = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "mod": "modulo", "pow": "power",
}  # fmt: skip
_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal", "lt": "lesser",
    "le": "lesser_equal",
}  # fmt: skip


#: Operators of a number on the left that MXNet's methods call by another name than its functions,
#: which nodes are named after.
_LEFT_OF_METHODS = {"pow": "_rpower_scalar"}


class BinaryMethod(NamedTuple):
    """A method, such as ``__rsub__``, and its operators for operands of one shape, for operands
    that are broadcast, and for a number.
    """

    name: str
    same: str
    broadcast: str
    scalar: str


def binary_methods(*, symbol: bool) -> Iterator[BinaryMethod]:
    """All binary methods; with ``symbol`` the operators have the names that symbol files use."""
    table = _core.binary_operators(symbol=symbol)
    for name, function in (_ARITHMETIC | _COMPARISONS).items():
        same, broadcast, right, left = table[function]
        yield BinaryMethod(f"__{name}__", same, broadcast, right)
        if name in _ARITHMETIC:
            left = _LEFT_OF_METHODS.get(name, left)
            yield BinaryMethod(f"__r{name}__", same, broadcast, left)
