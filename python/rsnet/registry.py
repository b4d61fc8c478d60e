"""Registries of classes by name: functions that enter and create the subclasses of a base class."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ._class_registry import TABLES, class_named, name_and_arguments

__all__ = ["get_alias_func", "get_create_func", "get_register_func", "get_registry"]


def get_registry(base_class: type) -> dict[str, type]:
    """A copy of the table of `base_class`: classes by lower-case name."""
    return dict(TABLES.get(base_class, {}))


def get_register_func(base_class: type, nickname: str) -> Callable[..., type]:
    """A function ``register(cls, name=None)`` that enters a subclass of `base_class`.

    Registering another class under a name that is taken warns and replaces it.

    Examples
    --------
    >>> class Rule: pass
    >>> register, create = get_register_func(Rule, "rule"), get_create_func(Rule, "rule")
    >>> @register
    ... class Twice(Rule):
    ...     def __init__(self, factor=2):
    ...         self.factor = factor
    >>> create("twice").factor, create('["twice", {"factor": 3}]').factor
    (2, 3)
    """
    table = TABLES.setdefault(base_class, {})

    def register(klass: type, name: str | None = None) -> type:
        if not (isinstance(klass, type) and issubclass(klass, base_class)):
            raise TypeError(
                f"invalid {nickname} {klass!r}: expected a subclass of {base_class.__name__}"
            )
        name = (name or klass.__name__).lower()
        before = table.get(name, klass)
        if before is not klass:
            warnings.warn(
                f"{nickname} {name!r}: {klass.__module__}.{klass.__name__} replaces "
                f"{before.__module__}.{before.__name__}",
                stacklevel=2,
            )
        table[name] = klass
        return klass

    register.__doc__ = f"Enters a subclass of {base_class.__name__} as a {nickname}."
    return register


def get_alias_func(base_class: type, nickname: str) -> Callable[..., Callable[[type], type]]:
    """A function ``alias(*names)`` that decorates a class and enters it under these names."""
    register = get_register_func(base_class, nickname)

    def alias(*aliases: str) -> Callable[[type], type]:
        def enter(klass: type) -> type:
            for name in aliases:
                register(klass, name)
            return klass

        return enter

    alias.__doc__ = f"Enters a {nickname} under several names."
    return alias


def get_create_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """A function ``create(name, *args, **kwargs)`` that makes an instance.

    Instead of the name it takes an instance, which it returns, a dict of the keywords, or JSON: a
    dict, or a list of the name and the keywords.
    """
    table = TABLES.setdefault(base_class, {})

    def create(*args: Any, **kwargs: Any) -> Any:
        given, args = (args[0], args[1:]) if args else (kwargs.pop(nickname, None), ())
        if isinstance(given, base_class):
            if args or kwargs:
                raise ValueError(f"{nickname} is an instance: expected no further arguments")
            return given
        if not isinstance(given, (str, dict)):
            raise TypeError(
                f"invalid {nickname} {given!r}: expected a name or a {base_class.__name__}"
            )
        name, keywords = name_and_arguments(nickname, given)
        return class_named(table, nickname, name)(*args, **keywords | kwargs)

    create.__doc__ = f"Makes a {nickname} from its name, an instance, a dict or JSON."
    return create
