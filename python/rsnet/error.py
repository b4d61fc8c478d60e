"""Error classes by name: ``mx.error``.

`register` adds a user's class; functions that turn messages `Name: text` into exceptions look it
up with `find`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import (
    ERRORS,
    InternalError,
    MXIndexError,
    MXKeyError,
    MXNetError,
    MXNotImplementedError,
    MXTypeError,
    MXValueError,
)

__all__ = [
    "IndexError",
    "InternalError",
    "KeyError",
    "MXNetError",
    "NotImplementedError",
    "TypeError",
    "ValueError",
    "find",
    "register",
    "register_error",
]

ValueError = MXValueError
TypeError = MXTypeError
IndexError = MXIndexError
KeyError = MXKeyError
NotImplementedError = MXNotImplementedError

_REGISTRY: dict[str, type[BaseException]] = dict(ERRORS)


def register_error(name: Any = None, cls: Any = None) -> Callable[[Any], Any] | Any:
    """Registers an error class under a name, its own by default; a decorator if no class is given.

    Examples
    --------
    >>> @register_error
    ... class Overheated(MXNetError):
    ...     pass
    >>> find("Overheated: 95 degrees")
    Overheated('95 degrees')
    """
    if isinstance(name, type):
        name, cls = name.__name__, name

    def deco(found: Any) -> Any:
        _REGISTRY[name or found.__name__] = found
        return found

    return deco if cls is None else deco(cls)


register = register_error


def find(message: str) -> BaseException:
    """The exception that a message `Name: text` stands for; `MXNetError` if the name is unknown."""
    name, colon, text = message.partition(":")
    cls = _REGISTRY.get(name.strip().rpartition(".")[2])
    return cls(text.strip()) if colon and cls else MXNetError(message)
