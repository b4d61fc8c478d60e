"""Definitions of user operators: argument lists, attributes of 14 kinds, confs, conditions of
kernels.

Everything here is data that can be printed and compared; ``user_op.py`` gives it to the core.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._door import MOST_OPERANDS, TYPES, Facts
from .base import MXNetError
from .context import Context

# Arguments --------------------------------------------------------------------------------------


class Arg(NamedTuple):
    """An input or output that stands for ``count`` (or at least so many) arrays."""

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
        if n == 0 and self.optional:
            return
        if n == self.count or (self.at_least and n > self.count):
            return
        bound = "at least " if self.at_least else ""
        absent = " or none" if self.optional else ""
        raise MXNetError(
            f"{op}: argument '{self.name}' has {n} arrays, expected {bound}{self.count}{absent}"
        )


_ARG = re.compile(r"(\w+)(?:\*(\d+)(\+?))?(\??)\Z")


def parse_args(op: str, what: str, text: str | Sequence[str]) -> tuple[Arg, ...]:
    """``"x, w?, more*2+"`` as arguments; see ``define``."""
    if isinstance(text, str):
        items = text.split(",") if text.strip() else []
    elif isinstance(text, Sequence) and all(isinstance(item, str) for item in text):
        items = list(text)
    else:
        raise MXNetError(f"{op}: {what}s are {text!r}, expected a text or a list of texts")
    return tuple(_arg(op, what, item.strip()) for item in items)


def _arg(op: str, what: str, item: str) -> Arg:
    found = _ARG.match(item)
    if found is None or not found[1].isidentifier():
        raise MXNetError(
            f"{op}: {what} '{item}' is not of the form name, name*5, name*2+, name?, name*5? or "
            "name*2+?, where name is letters, digits and _ and does not begin with a digit"
        )
    name, digits, plus, optional = found.groups()
    # Counting digits first: int() refuses a text of too many of them.
    count = int(digits or 1) if len(digits or "") <= len(str(MOST_OPERANDS)) else MOST_OPERANDS + 1
    if not 0 < count <= MOST_OPERANDS:
        raise MXNetError(
            f"{op}: {what} '{item}' stands for {digits} arrays, expected 1 to {MOST_OPERANDS}"
        )
    return Arg(name, count, bool(plus), bool(optional))


# Attributes -------------------------------------------------------------------------------------

_INT = (int, np.integer)
_KINDS: dict[str, str] = {
    "int32": "int32", "int64": "int64", "bool": "bool", "float": "float", "double": "double",
    "string": "string", "shape": "shape", "data_type": "dtype", "list_int32": "int32s",
    "list_int64": "shape", "list_float": "floats", "list_data_type": "dtypes",
    "list_shape": "shapes", "list_string": "strings",
}  # fmt: skip
_TYPES_OF_KINDS: dict[Any, str] = {
    float: "float", int: "int64", bool: "bool", str: "string", tuple: "shape",
    np.dtype: "data_type",
}  # fmt: skip
_MISSING: Any = object()
_LIMITS = {"int32": 2**31, "int64": 2**63, "list_int32": 2**31, "list_int64": 2**63}


class Attr:
    """An attribute of a user operator.

    Parameters
    ----------
    kind : type or str
        A Python type or one of the 14 kinds: int32, int64, bool, float, double, string, shape,
        data_type, list_int32, list_int64, list_float, list_data_type, list_shape, list_string.
    default : optional
        Without it the attribute must be set.
    check : callable, optional
        ``check(value)`` refuses a value by returning False or a text, or by raising. It is tried on
        the default at once.
    """

    def __init__(
        self,
        kind: Any,
        default: Any = _MISSING,
        check: Callable[[Any], Any] | None = None,
        *,
        doc: str = "",
    ) -> None:
        name = _TYPES_OF_KINDS.get(kind) if not isinstance(kind, str) else kind
        if name not in _KINDS:
            raise MXNetError(f"Attr: unknown kind {kind!r}, valid are {', '.join(_KINDS)}")
        self.kind: str = name
        self.check = check
        self.doc = doc
        self.required = default is _MISSING
        self.default = None if self.required else self.normal("Attr", "default", default)

    def normal(self, op: str, name: str, value: Any) -> Any:
        """``value`` in the kind's normal form; an error if it is of another kind."""
        kind = self.kind
        if kind.startswith("list_"):
            if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple, np.ndarray)):
                raise self._wrong(op, name, value)
            return tuple(self._item(op, name, kind[5:], v, value) for v in value)
        return self._item(op, name, kind, value, value)

    def _item(self, op: str, name: str, kind: str, item: Any, whole: Any) -> Any:
        is_bool = isinstance(item, (bool, np.bool_))
        if kind in ("int32", "int64"):
            if isinstance(item, _INT) or is_bool:  # as in OneFlow, a bool is an int
                limit = _LIMITS[kind]
                if -limit <= int(item) < limit:
                    return int(item)
                raise MXNetError(f"{op}: attribute '{name}' is {item}, out of the range of {kind}")
        elif kind == "bool":
            if is_bool:
                return bool(item)
        elif kind in ("float", "double"):
            if isinstance(item, (float, np.floating)):
                return float(item)
        elif kind == "string":
            if isinstance(item, str):
                return item
        elif kind == "shape":
            if isinstance(item, (list, tuple)) and all(isinstance(d, _INT) for d in item):
                return tuple(int(d) for d in item)
        elif kind == "data_type":
            try:
                text = np.dtype(getattr(item, "numpy_name", item)).name
            except TypeError:
                text = ""
            if item is not None and text in TYPES:
                return text
        raise self._wrong(op, name, whole)

    def _wrong(self, op: str, name: str, value: Any) -> MXNetError:
        return MXNetError(f"{op}: attribute '{name}' is {value!r}, expected kind {self.kind}")

    def verify(self, op: str, name: str, value: Any) -> None:
        """Runs the check function."""
        if self.check is not None:
            refuse(op, f"attribute '{name}'", self.check(value))

    # The core's schema ---------------------------------------------------------------------------

    def spec(self, name: str) -> dict[str, Any]:
        return {
            "name": name, "kind": _KINDS[self.kind], "keys": [], "optional": False,
            "required": self.required, "default": self.default, "doc": self.doc,
            "ge": None, "le": None,
        }  # fmt: skip

    def compared(self, op: str, name: str, how: str, value: Any) -> str:
        """The text by which the core compares an attribute of this kind with ``value``.

        As in Python, equal numbers are equal whatever their types: True and 1, (1.0,) and [1].
        """
        kind, number = self.kind, isinstance(value, (*_INT, bool, float, np.number, np.bool_))
        numeric = kind in ("int32", "int64", "float", "double")
        if how not in ("==", "!=") and not (numeric and number) and kind != "string":
            raise MXNetError(
                f"{op}: a kernel condition compares attribute '{name}' of kind {kind} "
                f"by {how} with {value!r}; only numbers and strings have an order"
            )
        if numeric and number:
            return repr((value.item() if isinstance(value, np.generic) else value) + 0)
        if kind == "bool" and number and value in (0, 1):
            value = bool(value)
        if kind == "list_float" and isinstance(value, (list, tuple)):
            value = [float(v) if isinstance(v, (*_INT, bool)) else v for v in value]
        return str(self.normal(op, name, value))


def refuse(op: str, what: str, answer: Any) -> None:
    """Turns the answer of a check function into an error if it refuses."""
    if answer is None or answer is True:
        return
    if isinstance(answer, str):
        raise MXNetError(f"{op}: {answer}")
    if not answer:
        raise MXNetError(f"{op}: the check of {what} failed")


class _NotGiven(BaseException):
    """Ends a check of a conf that asks for an attribute without default, while there is no value."""


class Defaults(dict):
    """The attributes of a conf before anybody has given any."""

    def __missing__(self, key: str) -> Any:
        raise _NotGiven(key)


def check_as_far_as(check: Callable[[Any], Any], conf: Conf) -> Any:
    """The answer of a check function on defaults; None if it needs an attribute that has none."""
    try:
        return check(conf)
    except _NotGiven:
        return None


# Confs ------------------------------------------------------------------------------------------


class Conf:
    """One use of a user operator: how many arrays each argument has, and all attributes."""

    __slots__ = ("definition", "counts", "attrs", "facts", "starts")

    def __init__(self, definition: Any, counts: dict[str, int], attrs: dict[str, Any]) -> None:
        self.definition = definition
        self.counts = counts
        self.attrs = attrs
        d = definition
        names = {}
        self.starts: dict[str, int] = {}
        for args in (d.inputs, d.outputs):
            listed: list[str] = []
            for arg in args:
                self.starts[arg.name] = len(listed)
                listed += [arg.tensor(i) for i in range(counts[arg.name])]
            names[args is d.outputs] = tuple(listed)
        self.facts = Facts(names[False], names[True], len(names[True]))

    def position(self, arg: str, i: int, args: Sequence[Arg]) -> int:
        """Where array ``i`` of argument ``arg`` stands among all inputs or outputs."""
        if not any(a.name == arg for a in args):
            known = ", ".join(a.name for a in args)
            raise MXNetError(f"{self.definition.name}: no argument '{arg}' here, there is {known}")
        n = self.counts[arg]
        if not 0 <= i < n:
            raise MXNetError(
                f"{self.definition.name}: argument '{arg}' has {n} arrays, no number {i}"
            )
        return self.starts[arg] + i

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        if name not in self.definition.attrs:
            known = ", ".join(self.definition.attrs) or "none"
            raise MXNetError(f"{self.definition.name}: no attribute '{name}', there is {known}")
        return self.attrs[name]


# Conditions -------------------------------------------------------------------------------------


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
        raise TypeError("combine kernel conditions with & | ~, not with and, or, not")

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
        raise TypeError(f"expected a kernel condition, got {value!r}")
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
                raise TypeError("dtypes compare with == and != only, or is_in")
            found = self.is_in(other)
            return found if how == "==" else ~found
        if self.kind == "rank" and not isinstance(other, _INT):
            raise MXNetError(
                f"ndim of '{self.subject[0]}' is compared with {other!r}, not a number"
            )
        return Condition(self.kind, self.subject, how, other)

    def _type(self, value: Any) -> str:
        try:
            name = np.dtype(getattr(value, "numpy_name", value)).name
        except TypeError:
            name = ""
        if name not in TYPES:
            raise MXNetError(f"dtype of '{self.subject[0]}' is compared with {value!r}, not a type")
        return name

    def is_in(self, *values: Any) -> Condition:
        """One of these."""
        if self.kind == "dtype":
            return Condition("dtype", self.subject, [self._type(v) for v in values])
        if not values:
            raise TypeError("is_in needs at least one value")
        result = self._compare("==", values[0])
        for value in values[1:]:
            result = result | self._compare("==", value)
        return result

    def __eq__(self, other: Any) -> Condition:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: Any) -> Condition:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: Any) -> Condition:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Condition:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Condition:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Condition:
        return self._compare(">=", other)


def device(name: Any) -> Condition:
    """The call runs on this kind of device: ``"cpu"``, ``"gpu"`` or a Context such as ``cpu()``."""
    kind = name.device_type if isinstance(name, Context) else name
    if kind not in Context.devstr2type:
        known = ", ".join(Context.devstr2type)
        raise MXNetError(f"device: {name!r} is no kind of device, there is {known}")
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
