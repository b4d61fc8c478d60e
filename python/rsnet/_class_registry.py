"""Classes known by name, as metrics, initializers and optimizers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from .base import shown

Maker = TypeVar("Maker")

#: Classes by lower-case name, for each base class; `rsnet.registry` shows them.
TABLES: dict[type, dict[str, Any]] = {}


def class_named(table: Mapping[str, Maker], kind: str, name: Any) -> Maker:
    """The class, or the function that makes one's instances, of this name in whatever case.

    Raises
    ------
    ValueError
        There is none.
    """
    found = table.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(sorted(table))
        raise ValueError(f"invalid {kind} {shown(name)}: expected one of: {known}")
    return found


def register_class(table: dict[str, type], aliases: tuple[Any, ...]) -> Any:
    """A class decorator that enters classes into `table` under lower-case name and `aliases`.

    Where the only alias is a class, the decorator was written bare: that class is entered.
    """
    bare = len(aliases) == 1 and isinstance(aliases[0], type)

    def deco(cls: type) -> type:
        for name in (cls.__name__, *(() if bare else aliases)):
            table[name.lower()] = cls
        return cls

    return deco(aliases[0]) if bare else deco


def register_aliases(table: dict[str, type], aliases: tuple[str, ...]) -> Any:
    """A class decorator that enters classes into `table` under `aliases` alone."""

    def deco(cls: type) -> type:
        table.update({name.lower(): cls for name in aliases})
        return cls

    return deco
