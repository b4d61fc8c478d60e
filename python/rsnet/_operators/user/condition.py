"""Conditions of kernels, as data that can be printed and compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod, reduce
from typing import Any

import numpy as np

from ...context import Context
from ..checks import dtype_name, invalid, lookup

#: What errors name.
_WHERE = "kernel condition"


class Condition:
    """A condition under which a kernel applies, as data: combine with ``&``, ``|`` and ``~``."""

    __slots__ = ("data",)

    def __init__(self, *data: Any) -> None:
        self.data = data

    def __and__(self, other: Condition) -> Condition:
        return Condition("and", self, _condition(other))

    def __or__(self, other: Condition) -> Condition:
        return Condition("or", self, _condition(other))

    def __invert__(self) -> Condition:
        return Condition("not", self)

    def __bool__(self) -> bool:
        raise TypeError("invalid and, or, not of kernel conditions: expected & | ~")

    def __repr__(self) -> str:
        kind, *parts = self.data
        if kind in ("and", "or"):
            return f"({parts[0]!r} {'&' if kind == 'and' else '|'} {parts[1]!r})"
        if kind == "not":
            return f"~{parts[0]!r}"
        return f"{kind}({', '.join(map(str, parts))})"

    def resolved(
        self, tensor: Callable[[str, int], str], attribute: Callable[[str, str, Any], str]
    ) -> tuple[Any, ...]:
        """The core's form, with tensors under their own names and attributes' values as text."""
        kind, *parts = self.data
        if kind in ("and", "or", "not"):
            return (kind, *(p.resolved(tensor, attribute) for p in parts))
        if kind in ("dtype", "rank"):
            (arg, i), *rest = parts
            return (kind, tensor(arg, i), *rest)
        if kind == "attr":
            name, how, value = parts
            return (kind, name, how, attribute(name, how, value))
        return self.data


def _condition(value: Any) -> Condition:
    if not isinstance(value, Condition):
        raise invalid(_WHERE, "operand", value, "a kernel condition", TypeError)
    return value


class _Getter:
    """What a condition compares: ``dtype("out") == "float32"``, ``ndim("in") <= 4`` ..."""

    __slots__ = ("kind", "subject")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: str, subject: Any) -> None:
        self.kind, self.subject = kind, subject

    def _compare(self, how: str, other: Any) -> Condition:
        if self.kind == "dtype":
            if how not in ("==", "!="):
                comparisons = "one of: ==, !=, is_in"
                raise invalid(_WHERE, "comparison of dtypes", how, comparisons, TypeError)
            return self.is_in(other) if how == "==" else ~self.is_in(other)
        if self.kind == "rank" and not isinstance(other, (int, np.integer)):
            raise invalid(_WHERE, f"operand for ndim of '{self.subject[0]}'", other, "a number")
        return Condition(self.kind, self.subject, how, other)

    def _type(self, value: Any) -> str:
        name = dtype_name(value)
        if name is None:
            raise invalid(_WHERE, f"operand for dtype of '{self.subject[0]}'", value, "a type")
        return name

    def is_in(self, *values: Any) -> Condition:
        """One of these."""
        if self.kind == "dtype":
            return Condition("dtype", self.subject, [self._type(v) for v in values])
        if not values:
            raise TypeError("is_in: expected at least one value")
        return reduce(Condition.__or__, [self._compare("==", value) for value in values])

    __eq__ = partialmethod(_compare, "==")
    __ne__ = partialmethod(_compare, "!=")
    __lt__ = partialmethod(_compare, "<")
    __le__ = partialmethod(_compare, "<=")
    __gt__ = partialmethod(_compare, ">")
    __ge__ = partialmethod(_compare, ">=")


def device(name: Any) -> Condition:
    """The call runs on this kind of device: ``"cpu"``, ``"gpu"`` or a Context such as ``cpu()``."""
    kind = name.device_type if isinstance(name, Context) else name
    lookup("device", "device type", kind, Context.devstr2type)
    return Condition("device", kind)


def dtype(arg: str, i: int = 0) -> Any:
    """The element type of an input or output: ``dtype("out").is_in("float32", "float64")``."""
    return _Getter("dtype", (arg, i))


def ndim(arg: str, i: int = 0) -> Any:
    """The number of axes of an input or output: ``ndim("in") <= 4``."""
    return _Getter("rank", (arg, i))


def attr(name: str) -> Any:
    """An attribute's value: ``attr("mode") == "fast"``."""
    return _Getter("attr", name)


ALWAYS = Condition("always")
