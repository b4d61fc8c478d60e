"""Attributes of user operators: OneFlow's 14 kinds, and uint64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...parameter import MISSING, schema_field
from ..checks import dtype_name, fail, invalid, unknown

_INT = (int, np.integer)
_KINDS: dict[str, str] = {
    "int32": "int32", "int64": "int64", "bool": "bool", "float": "float", "double": "double",
    "string": "string", "shape": "shape", "data_type": "dtype", "list_int32": "int32s",
    "list_int64": "shape", "list_float": "floats", "list_data_type": "dtypes",
    "list_shape": "shapes", "list_string": "strings", "uint64": "uint64",
}  # fmt: skip
_TYPES_OF_KINDS: dict[Any, str] = {
    float: "float", int: "int64", bool: "bool", str: "string", tuple: "shape",
    np.dtype: "data_type",
}  # fmt: skip
#: The least and the greatest value.
_LIMITS = {
    "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1),
}  # fmt: skip


def _extents(value: Any) -> tuple[int, ...] | None:
    return tuple(map(int, value)) if all(isinstance(d, _INT) for d in value) else None


#: The types that a kind takes, and the function that makes the normal form, or None, of a value.
_ITEMS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    **dict.fromkeys(("int32", "int64", "uint64"), ((*_INT, np.bool_), int)),  # a bool is one, too
    **dict.fromkeys(("float", "double"), ((float, np.floating), float)),
    "bool": ((bool, np.bool_), bool),
    "string": (str, str),
    "shape": ((list, tuple), _extents),
    "data_type": (object, dtype_name),
}


class Attr:
    """An attribute of a user operator.

    Parameters
    ----------
    kind : type or str
        A Python type or one of the kinds: int32, int64, uint64, bool, float, double, string,
        shape, data_type, list_int32, list_int64, list_float, list_data_type, list_shape,
        list_string. ``int`` is int64, which errors and documentation call ``long``, as MXNet does.
    default : optional
        Without it the attribute must be set.
    check : callable, optional
        ``check(value)`` refuses a value by returning False or a text, or by raising. It is tried on
        the default at once.
    """

    def __init__(
        self, kind: Any, default: Any = MISSING, check: Callable[[Any], Any] | None = None, *,
        doc: str = "",
    ) -> None:  # fmt: skip
        name = _TYPES_OF_KINDS.get(kind) if not isinstance(kind, str) else kind
        if name not in _KINDS:
            raise unknown("Attr", "kind", kind, _KINDS)
        self.kind: str = name
        self.check = check
        self.doc = doc
        self.required = default is MISSING
        self.default = None if self.required else self.normal("Attr", "default", default)

    def normal(self, op: str, name: str, value: Any) -> Any:
        """``value`` in the kind's normal form; an error if it is of another kind."""
        kind = self.kind
        if kind.startswith("list_"):
            if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple, np.ndarray)):
                raise invalid(op, f"attribute '{name}'", value, f"kind {kind}")
            return tuple(self._item(op, name, kind[5:], v, value) for v in value)
        return self._item(op, name, kind, value, value)

    def _item(self, op: str, name: str, kind: str, item: Any, whole: Any) -> Any:
        types, normal = _ITEMS[kind]
        value = normal(item) if isinstance(item, types) else None
        if value is None:
            raise invalid(op, f"attribute '{name}'", whole, f"kind {self.kind}")
        limits = _LIMITS.get(kind)
        if limits is not None and not limits[0] <= value <= limits[1]:
            raise invalid(op, f"attribute '{name}'", item, f"a value within {kind}")
        return value

    def verify(self, op: str, name: str, value: Any) -> None:
        """Runs the check function."""
        if self.check is not None:
            refuse(op, f"attribute '{name}'", value, self.check(value))

    # The core's schema ---------------------------------------------------------------------------

    def spec(self, name: str) -> dict[str, Any]:
        default = MISSING if self.required else self.default
        return schema_field(name, _KINDS[self.kind], default, doc=self.doc)

    def compared(self, op: str, name: str, how: str, value: Any) -> str:
        """The text by which the core compares an attribute of this kind with ``value``.

        As in Python, equal numbers are equal whatever their types: True and 1, (1.0,) and [1].
        """
        kind, number = self.kind, isinstance(value, (*_INT, bool, float, np.number, np.bool_))
        numeric = kind in (*_LIMITS, "float", "double")
        if how not in ("==", "!=") and not (numeric and number) and kind != "string":
            what = f"operand of {how} for attribute '{name}' in a kernel condition"
            ordered = "only numbers and strings have an order"
            raise invalid(op, what, value, f"a number for an attribute that is one: {ordered}")
        if numeric and number:
            return repr((value.item() if isinstance(value, np.generic) else value) + 0)
        if kind == "bool" and number and value in (0, 1):
            value = bool(value)
        if kind == "list_float" and isinstance(value, (list, tuple)):
            value = [float(v) if isinstance(v, (*_INT, bool)) else v for v in value]
        return str(self.normal(op, name, value))


def refuse(op: str, what: str, value: Any, answer: Any) -> None:
    """Turns the answer of a check function into an error if it refuses the value."""
    if answer is None or answer is True:
        return
    if isinstance(answer, str):
        raise fail(op, answer)
    if not answer:
        raise invalid(op, what, value, "what the check= accepts")
