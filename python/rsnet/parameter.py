"""Typed, documented operator parameters.

A subclass of :class:`Parameter` lists its fields as annotations; the core parses, checks and
documents them (one set of rules and error texts for built-in and user operators). The same struct
serves all three ways of adding an operator.

>>> import rsnet
>>> class ScaleParam(rsnet.Parameter):
...     factor: float = rsnet.field(1.0, doc="What to multiply by.", ge=0)
...     times: rsnet.uint32 = rsnet.field(doc="How often.")
>>> ScaleParam(times="3").times
3
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from typing import Annotated, Any, Union

import numpy as np

from . import _core
from .base import shown

__all__ = [
    "Parameter",
    "field",
    "Shape",
    "Tuple",
    "OptionalTuple",
    "FloatTuple",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "double",
    "DType",
]


class _Kind(str):
    """The name of the core's type behind an annotation such as ``rsnet.uint32``."""


int32 = Annotated[int, _Kind("int32")]
uint32 = Annotated[int, _Kind("uint32")]
int64 = Annotated[int, _Kind("int64")]
uint64 = Annotated[int, _Kind("uint64")]
double = Annotated[float, _Kind("double")]
#: Extents: a tuple of integers. Text such as ``"(1, 2)"`` and a bare integer are taken too.
Shape = Annotated[tuple[int, ...], _Kind("shape")]
Tuple = Shape
#: A tuple of integers, any of which may be None.
OptionalTuple = Annotated[tuple[int | None, ...], _Kind("optional_ints")]
FloatTuple = Annotated[tuple[float, ...], _Kind("floats")]
#: The name of an element type, such as ``"float32"``.
DType = Annotated[str, _Kind("dtype")]

_PLAIN = {bool: "bool", int: "int32", float: "float", str: "string", np.dtype: "dtype"}
#: The types that a field may have, for errors.
_TYPES = (
    "bool, int, float, str, numpy.dtype, tuple[int, ...], tuple[float, ...], one of "
    f"rsnet.parameter ({', '.join(__all__[2:])}), a Literal, an enum.Enum, or one of these | None"
)
#: The kinds whose values may have a least and a greatest one.
_ORDERED = ("int32", "uint32", "int64", "uint64", "float", "double")
#: Stands for no default.
MISSING: Any = object()


class _Field:
    """What :func:`field` returns: the default, documentation and range of one parameter."""

    def __init__(
        self, default: Any, doc: str = "", ge: float | None = None, le: float | None = None
    ) -> None:
        self.default, self.doc, self.ge, self.le = default, doc, ge, le


def field(
    default: Any = MISSING, *, doc: str = "", ge: float | None = None, le: float | None = None
) -> Any:
    """One parameter of a :class:`Parameter` struct.

    Parameters
    ----------
    default : optional
        The value when none is given; without it the parameter is required.
    doc : str
        A sentence for the documentation.
    ge, le : float, optional
        Least and greatest value allowed, both inclusive.
    """
    return _Field(default, doc, ge, le)


def schema_field(
    name: str,
    kind: str,
    default: Any = MISSING,
    *,
    keys: list[str] | None = None,
    optional: bool = False,
    doc: str = "",
    ge: float | None = None,
    le: float | None = None,
) -> dict[str, Any]:
    """A parameter as the core's ``Schema`` takes it; without a default it is required."""
    required = default is MISSING
    return {
        "name": name, "kind": kind, "keys": keys or [], "optional": optional, "required": required,
        "default": None if required else _plain(default), "doc": doc, "ge": ge, "le": le,
    }  # fmt: skip


def _unoptional(hint: Any) -> tuple[Any, bool]:
    """The type inside ``T | None`` and whether None was allowed."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(inner) == 1 and len(inner) < len(typing.get_args(hint)):
            return inner[0], True
    return hint, False


def _kind(hint: Any) -> tuple[str, list[str], Any]:
    """The core's type of an annotation, the keys of an enum, and the Python enum it stands for."""
    if typing.get_origin(hint) is Annotated:
        for note in hint.__metadata__:
            if isinstance(note, _Kind):
                return str(note), [], None
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is typing.Literal:
        return "enum", [str(k) for k in typing.get_args(hint)], None
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "enum", [_enum_key(member) for member in hint], hint
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        kinds = {int: "shape", float: "floats"}
        if inner in kinds:
            return kinds[inner], [], None
    try:
        return _PLAIN[hint], [], None
    except (KeyError, TypeError):
        raise TypeError(f"invalid type {shown(hint)} of a parameter: expected {_TYPES}") from None


def _check_field(where: str, given: _Field, kind: str) -> None:
    """Refuses what a field of this kind cannot have for its documentation and its range."""
    if not isinstance(given.doc, str):
        raise TypeError(f"{where}: invalid doc {shown(given.doc)}: expected a string")
    for name, bound in (("ge", given.ge), ("le", given.le)):
        if bound is None:
            continue
        if kind not in _ORDERED:
            raise TypeError(f"{where}: invalid {name} {shown(bound)}: expected none for {kind}")
        if not hasattr(bound, "__float__"):
            raise TypeError(f"{where}: invalid {name} {shown(bound)}: expected a number")
    if given.ge is not None and given.le is not None and not given.ge <= given.le:
        raise ValueError(f"{where}: invalid le {given.le}: expected at least ge, {given.ge}")


def _enum_key(member: enum.Enum) -> str:
    return member.value if isinstance(member.value, str) else member.name


class Parameter:
    """Base of parameter structs; see the module's example.

    Fields are annotations: ``bool``, ``int``, ``float``, ``str``, ``rsnet.uint32``,
    ``rsnet.int64``, ``rsnet.Shape``, ``Literal["a", "b"]``, an ``enum.Enum``, or any of these ``|
    None``. A field whose value is :func:`field` without a default, or that has no value, is
    required. Values may be given as text, as they stand in JSON.

    Raises
    ------
    rsnet.MXNetError
        On making an instance: a missing, unknown or ill-formed parameter, or one out of its range.
    """

    _schema: typing.ClassVar[Any] = _core.Schema([])
    _names: typing.ClassVar[tuple[str, ...]] = ()
    _defaults: typing.ClassVar[dict[str, Any]] = {}
    _enums: typing.ClassVar[tuple[tuple[str, dict[str, Any]], ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        specs: list[dict[str, Any]] = []
        enums = []
        # Annotations kept as text may name things that only the class statement's frame knows.
        frame = sys._getframe(1)
        known = {**frame.f_globals, **frame.f_locals}
        for name, hint in typing.get_type_hints(cls, None, known, include_extras=True).items():
            if name.startswith("_") or typing.get_origin(hint) is typing.ClassVar:
                continue
            given = cls._declared(name)
            try:
                inner, optional = _unoptional(hint)
                kind, keys, members = _kind(inner)
            except TypeError as error:
                raise TypeError(f"{cls.__name__}.{name}: {error}") from None
            if members is not None:
                enums.append((name, {_enum_key(m): m for m in members}))
            _check_field(f"{cls.__name__}.{name}", given, kind)
            optional = optional or given.default is None
            specs.append(schema_field(name, kind, keys=keys, optional=optional, **vars(given)))
        cls._schema = _core.Schema(specs, name=cls.__name__)
        cls._names = tuple(s["name"] for s in specs)
        for name, value in vars(cls).items():
            if isinstance(value, _Field) and name not in cls._names:
                typed = f"a type, as in {name}: float = field(...), and no leading underscore"
                raise TypeError(f"{cls.__name__}: invalid field {shown(name)}: expected {typed}")
        cls._defaults = {s["name"]: s["default"] for s in specs}
        cls._enums = tuple(enums)
        if not cls.__doc__:
            cls.__doc__ = "Parameters\n----------\n" + "\n".join(
                f"{name} : {info}\n    {doc}" for name, info, doc in cls.fields()
            )

    @classmethod
    def _declared(cls, name: str) -> _Field:
        """The class attribute of a field, whichever base declares it."""
        for base in cls.__mro__:
            if name in vars(base):
                value = vars(base)[name]
                return value if isinstance(value, _Field) else _Field(value)
            if name in vars(base).get("__annotations__", {}):
                break
        return _Field(MISSING)

    def __init__(self, **given: Any) -> None:
        given = {k: _plain(v) for k, v in given.items()}
        self._fill(self._schema.parse(given))

    def _fill(self, values: typing.Sequence[Any]) -> None:
        vars(self).update(zip(self._names, values))
        for name, members in self._enums:
            text = vars(self)[name]
            if text is not None:
                vars(self)[name] = members[text]

    @classmethod
    def from_values(cls, values: typing.Sequence[Any]) -> Parameter:
        """An instance from one value per field in normal form, as the core hands them over."""
        self = cls.__new__(cls)
        self._fill(values)
        return self

    @classmethod
    def parse(cls, given: dict[str, Any]) -> Parameter:
        """An instance from a dict of names and values or texts."""
        return cls(**given)

    @classmethod
    def fields(cls) -> list[tuple[str, str, str]]:
        """Name, type information (``int, optional, default=1``) and description of every field."""
        info: list[tuple[str, str, str]] = cls._schema.info()
        return info

    def as_dict(self) -> dict[str, Any]:
        """Every field with its value."""
        return {name: getattr(self, name) for name in self._names}

    def as_strings(self) -> dict[str, str]:
        """Every field as text, from which :meth:`parse` makes an equal struct."""
        return {k: str(_plain(v)) for k, v in self.as_dict().items()}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]  # fields can be assigned to

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.as_dict().items())
        return f"{type(self).__name__}({inside})"


def _plain(value: Any) -> Any:
    """A value as the core takes it: enum members and dtypes as their texts."""
    if isinstance(value, enum.Enum):
        return _enum_key(value)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    return value
