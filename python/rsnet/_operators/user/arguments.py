"""What user operators are described by: arguments, in the language of ``inputs=`` and ``outputs=``,
attributes, of OneFlow's 14 kinds and uint64, and confs, the description of one use as data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base import MXTypeError
from ...parameter import MISSING, schema_field
from ..checks import MOST_OPERANDS, NAME, dtype_name, fail, invalid, is_integer, lookup, unknown
from ..definition import Facts


class Arg(NamedTuple):
    """An input or output that stands for ``count``, or at least ``count``, arrays."""

    name: str
    count: int = 1  # type: ignore[assignment]
    at_least: bool = False
    optional: bool = False

    @property
    def single(self) -> bool:
        """At most one array: it goes by the argument's own name."""
        return self.count == 1 and not self.at_least

    @property
    def fixed(self) -> bool:
        return not self.at_least and not self.optional

    def tensor(self, i: int) -> str:
        return self.name if self.single else f"{self.name}_{i}"

    def check(self, op: str, n: int) -> None:
        fits = n == self.count or (n > self.count if self.at_least else False)
        if not fits and not (n == 0 and self.optional):
            bound = "at least " if self.at_least else ""
            absent = " or none" if self.optional else ""
            what = f"number of arrays of argument '{self.name}'"
            raise invalid(op, what, n, f"{bound}{self.count}{absent}")


_ARG = re.compile(r"(\w+)(?:\*(\d+)(\+?))?(\??)\Z")


def parse_args(op: str, what: str, text: str | Sequence[str]) -> tuple[Arg, ...]:
    """``"x, w?, more*2+"`` as arguments; see ``define``."""
    if isinstance(text, str):
        items = text.split(",") if text.strip() else []
    elif isinstance(text, Sequence) and all(isinstance(item, str) for item in text):
        items = list(text)
    else:
        raise invalid(op, f"{what}s", text, "a string or a list of strings")
    if what == "output" and not items:
        raise fail(op, "invalid outputs: expected one at least")
    return tuple(_arg(op, what, item.strip()) for item in items)


def _arg(op: str, what: str, item: str) -> Arg:
    found = _ARG.match(item)
    if found is None or not found[1].isidentifier():
        forms = f"name, name*5, name*2+, name?, name*5? or name*2+?, where name is {NAME}"
        raise invalid(op, what, item, forms)
    name, digits, plus, optional = found.groups()
    # Counting digits first: int() refuses a text of too many of them.
    count = int(digits or 1) if len(digits or "") <= len(str(MOST_OPERANDS)) else MOST_OPERANDS + 1
    if not 0 < count <= MOST_OPERANDS:
        raise invalid(op, f"number of arrays of {what}", item, f"1 to {MOST_OPERANDS}")
    return Arg(name, count, bool(plus), bool(optional))


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
        ``check(value)`` refuses a value by returning False or a text, or by raising. ``define``
        tries it on the default.
    """

    def __init__(
        self,
        kind: Any,
        default: Any = MISSING,
        check: Callable[[Any], Any] | None = None,
        *,
        doc: str = "",
    ) -> None:
        self.kind: str = _TYPES_OF_KINDS.get(kind, str(kind)) if isinstance(kind, type) else kind
        lookup("Attr", "kind", self.kind, _KINDS)
        if check is not None and not callable(check):
            raise invalid("Attr", "check", check, "a function", MXTypeError)
        self.check = check
        self.doc = doc
        self.required = default is MISSING
        self.default = None if self.required else self.normal("Attr", "default", default)

    def normal(self, op: str, name: str, value: Any) -> Any:
        """``value`` in the kind's normal form; an error if it is of another kind."""
        kind = self.kind
        if kind.startswith("list_"):
            if not isinstance(value, (list, tuple, np.ndarray)):
                raise invalid(op, f"attribute '{name}'", value, kind)
            return tuple(self._item(op, name, kind[5:], v, value) for v in value)
        return self._item(op, name, kind, value, value)

    def _item(self, op: str, name: str, kind: str, item: Any, whole: Any) -> Any:
        types, normal = _ITEMS[kind]
        value = normal(item) if isinstance(item, types) else None
        if value is None:
            raise invalid(op, f"attribute '{name}'", whole, self.kind)
        limits = _LIMITS.get(kind)
        if limits is not None and not limits[0] <= value <= limits[1]:
            raise invalid(op, f"attribute '{name}'", item, f"a value within {kind}")
        return value

    def verify(self, op: str, name: str, value: Any) -> None:
        """Runs the check function."""
        if self.check is not None:
            accepted = "a value that its check accepts" + (f" ({self.doc})" if self.doc else "")
            refuse(op, f"attribute '{name}'", value, self.check(value), accepted)

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


def refuse(op: str, what: str, value: Any, answer: Any, accepted: str) -> None:
    """Turns the answer of a check function into an error if it refuses the value."""
    if answer is None or answer is True:
        return
    if isinstance(answer, str):
        raise fail(op, answer)
    if not answer:
        raise invalid(op, what, value, accepted)


class Conf:
    """One use of a user operator: how many arrays each argument has, and all attributes."""

    __slots__ = ("definition", "counts", "attrs", "facts", "starts")

    def __init__(self, definition: Any, counts: dict[str, int], attrs: dict[str, Any]) -> None:
        self.definition, self.counts, self.attrs = definition, counts, attrs
        self.starts: dict[str, int] = {}
        ins, outs = self._arrays(definition.inputs), self._arrays(definition.outputs)
        self.facts = Facts(ins, outs, len(outs))

    def _arrays(self, args: Sequence[Arg]) -> tuple[str, ...]:
        """The names of all arrays of arguments; notes where those of each begin."""
        names: list[str] = []
        for arg in args:
            self.starts[arg.name] = len(names)
            names += [arg.tensor(i) for i in range(self.counts[arg.name])]
        return tuple(names)

    def input(self, arg: str, i: int = 0) -> int:
        """Where array ``i`` of an input argument stands among all inputs."""
        return self._position("input", self.definition.inputs, arg, i)

    def output(self, arg: str, i: int = 0) -> int:
        """As :meth:`input`, among all outputs."""
        return self._position("output", self.definition.outputs, arg, i)

    def _position(self, what: str, args: Sequence[Arg], arg: str, i: int) -> int:
        if not isinstance(arg, str) or not any(a.name == arg for a in args):
            raise unknown(self.definition.name, what, arg, [a.name for a in args])
        n = self.counts[arg]
        if not is_integer(i, 0, n - 1):
            there = f"0 to {n - 1}" if n else "none, it is absent"
            raise invalid(self.definition.name, f"index of argument '{arg}'", i, there)
        return self.starts[arg] + i

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        lookup(self.definition.name, "attribute", name, self.definition.attrs)
        return self.attrs[name]


class NotGiven(BaseException):
    """Ends a check of the defaults that reads an attribute which has none."""


class Defaults(dict[str, Any]):
    """The attributes of a conf before any is given."""

    def __missing__(self, key: str) -> Any:
        raise NotGiven(key)
