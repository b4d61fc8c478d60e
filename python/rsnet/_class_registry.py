"""Classes known by name, as metrics and initializers are."""

from __future__ import annotations

from typing import Any


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
