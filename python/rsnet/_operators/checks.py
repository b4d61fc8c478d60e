"""Checks of what authors of operators pass in and return; every error names the operator."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .._numbers import listed_numbers
from ..base import MXNetError, MXTypeError, MXValueError, shown
from ..parameter import Parameter
from . import registry

#: NumPy's types by name; None is an unknown type.
TYPES: dict[str | None, Any] = {None: None} | {
    name: np.dtype(name).type
    for name in ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")
}

#: The most bytes that an operator may ask for: more than any machine can address.
MOST_BYTES = 2**56
#: What names are made of.
NAME = "letters, digits and _, not beginning with a digit"

#: The most inputs, and the most outputs, that the core accepts.
MOST_OPERANDS = 65_535


def fail(operator: str, message: str) -> MXNetError:
    """An error that names the operator."""
    return MXNetError(f"{operator}: {message}")


def invalid(
    operator: str, what: str, value: Any, expected: object, error: type[Exception] = MXNetError
) -> Exception:
    """An error for a value that is not what is ``expected``; it names the operator."""
    return error(f"{operator}: invalid {what} {shown(value)}: expected {expected}")


def wrong(operator: str, function: str, answer: Any, expected: str) -> Exception:
    """An error for what an author's function returned."""
    return invalid(operator, f"result of {function}", answer, expected)


def unknown(operator: str, what: str, name: Any, known: Iterable[str]) -> MXNetError:
    """An error for a name that is not declared; it proposes the nearest ones."""
    listed = list(known)
    near = registry.close(name, listed)
    hint = f"did you mean '{near[0]}'? " if near else ""
    shortened = listed if len(listed) <= 30 else [*listed[:20], f"... ({len(listed)} names)"]
    expected = f"one of: {', '.join(shortened)}" if listed else "none, as none is declared"
    return fail(operator, f"unknown {what} {shown(str(name))}: {hint}expected {expected}")


def lookup(operator: str, what: str, name: str, table: Mapping[str, Any]) -> Any:
    """``table[name]``; the error of :func:`unknown` if there is none."""
    if not isinstance(name, str) or name not in table:
        raise unknown(operator, what, name, table)
    return table[name]


def refuse_parameters(operator: str, values: Sequence[Any], given: Iterable[str]) -> None:
    """Refuses the parameters of a call of an operator that declares none, and so has no values.

    Without this they would be ignored, as by MXNet's own operators without parameters.
    """
    if values:
        return
    for key in given:
        if not key.startswith("__"):  # attributes that a graph keeps with its nodes
            raise unknown(operator, "parameter", key, ())


def is_struct(value: Any) -> bool:
    """Whether ``value`` is a class of parameters."""
    return isinstance(value, type) and issubclass(value, Parameter)


def check_struct(operator: str, what: str, value: Any) -> None:
    """Refuses what is neither a class of parameters nor None."""
    if value is not None and not is_struct(value):
        raise invalid(operator, what, value, "a subclass of rsnet.Parameter", MXTypeError)


def is_integer(value: Any, least: int, most: int = MOST_OPERANDS) -> bool:
    """Whether ``value`` is an integer, and no bool, from ``least`` to ``most``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and least <= value <= most


def function_name(where: str, name: object) -> str:
    """``name`` if there can be an ``nd.<name>``; ``where`` begins the error."""
    if not isinstance(name, str):
        raise invalid(where, "name of an operator", name, "a string", MXTypeError)
    if not name.isidentifier() or keyword.iskeyword(name):
        form = f"the name of a function: {NAME}, and not a Python keyword"
        raise invalid(where, "name of an operator", name, form, MXValueError)
    return name


def free_name(where: str, name: object) -> str:
    """As :func:`function_name`, for a new operator, which must not hide anything else
    of ``nd`` or ``sym``.
    """
    free = function_name(where, name)
    special = (free.startswith("__") and free.endswith("__")) or free == "_internal"
    hidden = "what Python keeps of a module" if special else registry.hidden_by(free)
    if hidden is not None:
        other = f"one that hides nothing but operators, and it would hide {hidden}"
        raise MXValueError(f"{where}: invalid name {shown(free)}: expected {other}")
    return free


def argument_name(where: str, name: object) -> str:
    """``name`` if an input, output or attribute can go by it. (Keywords may: ``in`` is one.)"""
    if not isinstance(name, str) or not name.isidentifier():
        raise invalid(where, "name", name, NAME, MXValueError)
    return name


def check_takes(
    operator: str, what: str, function: Any, expected: Sequence[str], hint: str = ""
) -> None:
    """Refuses a function that cannot be called with the arguments ``expected``, by position; the
    ``hint`` ends the error.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtin functions have none
        return
    try:
        signature.bind(*expected)
    except TypeError:
        listed = ", ".join(expected)
        raise fail(operator, f"{what} takes {signature}, expected ({listed}){hint}") from None


def check_exec_type(operator: str, what: str, answer: Any) -> None:
    """Refuses execution types other than ``"sync"``."""
    if answer not in ("sync", 0):
        done = "a function is done when it returns"
        later = "engine.push_async runs functions that are done later"
        raise wrong(operator, what, answer, f"'sync': {done} ({later})")


def _check_list(operator: str, what: str, value: Any, of: str, names: Sequence[str]) -> None:
    if not isinstance(value, (list, tuple)):
        raise invalid(operator, what, value, f"a list of {of}")
    if len(value) != len(names):
        expected = f"{len(names)} ({', '.join(names)})"
        raise invalid(operator, f"number of {of} in {what}", len(value), expected)


def shape_list(operator: str, what: str, value: Any, names: Sequence[str]) -> list[Any]:
    """Checks that ``value`` is one shape for each name; extents may be anything with an index.

    In the shapes on this side of the core an unknown extent is 0, and an unknown shape is ().
    """
    _check_list(operator, what, value, "shapes", names)
    shapes = []
    for name, shape in zip(names, value):
        try:
            shapes.append(() if shape is None else listed_numbers(shape))
        except TypeError:
            tuples = "a tuple of integers"
            raise invalid(operator, f"shape of '{name}' in {what}", shape, tuples) from None
        if not all(0 <= d < 2**63 for d in shapes[-1]):
            extents = "extents of 0 to 2**63 - 1"
            raise invalid(operator, f"shape of '{name}' in {what}", shape, extents)
    return shapes


def type_list(operator: str, what: str, value: Any, names: Sequence[str]) -> list[str | None]:
    """Checks that ``value`` is one element type, or None, for each name."""
    _check_list(operator, what, value, "types", names)
    texts = [dtype_name(given) for given in value]
    for name, given, text in zip(names, value, texts):
        if text is None and given is not None:
            raise invalid(operator, f"type of '{name}' in {what}", given, "a NumPy type")
    return texts


_NAMES = {t: name for name, t in TYPES.items() if name}


def dtype_name(value: Any) -> str | None:
    """The name of an element type, however it is written; ``None`` if rsnet has no such type."""
    if isinstance(value, type) and value in _NAMES:
        return _NAMES[value]  # without asking NumPy, which takes longer
    try:
        text = np.dtype(getattr(value, "numpy_name", value)).name
    except TypeError:
        return None
    return text if value is not None and text in TYPES else None


def name_list(operator: str, what: str, value: Any, *, any_text: bool = False) -> tuple[str, ...]:
    """Checks that ``value`` lists distinct names: identifiers, or any text with ``any_text``."""
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise wrong(operator, what, value, "a list of names")
    for name in value:
        if not (any_text and isinstance(name, str) and name):
            argument_name(f"{operator}: {what}", name)
    if len(set(value)) != len(value):
        raise wrong(operator, what, list(value), "every name once")
    return tuple(value)


def checked_docs(operator: str, docs: Any, names: Sequence[str]) -> Mapping[str, str]:
    """``docs``, which describe some of the ``names``; nothing for None."""
    docs = {} if docs is None else docs
    if not isinstance(docs, Mapping) or not all(isinstance(v, str) for v in docs.values()):
        raise invalid(operator, "argument_docs", docs, "a dict of strings")
    for key in docs:
        if key not in names:
            raise unknown(operator, "argument", key, names)
    return docs


def checked_bytes(operator: str, what: str, n: Any) -> int:
    """``n`` if it is a number of bytes."""
    if not is_integer(n, 0, MOST_BYTES):
        raise invalid(operator, what, n, f"bytes, 0 to {MOST_BYTES}")
    return int(n)


def resource_requests(operator: str, method: str, answer: Any) -> list[tuple[str, int]]:
    """Checks that ``answer`` lists resources, at most one of them temporary space: their kinds,
    each with the bytes that it needs. (0: the operator does not say.)
    """
    if isinstance(answer, str) or not isinstance(answer, (list, tuple)):
        raise wrong(operator, method, answer, "a list of resources")
    requests = []
    for given in answer:
        kind, size = given if isinstance(given, tuple) and len(given) == 2 else (given, 0)
        kind = str(getattr(kind, "value", kind))
        if kind not in ("temp_space", "random"):
            raise invalid(operator, f"resource in {method}", kind, "one of: temp_space, random")
        requests.append((kind, checked_bytes(operator, f"size of {kind} in {method}", size)))
    if sum(kind == "temp_space" for kind, _ in requests) > 1:
        raise wrong(operator, method, answer, "at most one temp_space")
    return requests
