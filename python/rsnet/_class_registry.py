"""Classes known by name, as metrics, initializers and optimizers are."""

from __future__ import annotations

import json
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


def name_and_arguments(kind: str, given: Any) -> tuple[Any, dict[str, Any]]:
    """What a description asks for: a name alone, a list of name and keywords, a dict of keywords
    that has the name under `kind`, or the JSON of a list or dict.

    Raises
    ------
    ValueError
        A text that begins as JSON is none, or the keywords are no dict.
    """
    if isinstance(given, str) and given.lstrip().startswith(("[", "{")):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"invalid {kind} {shown(given)}: expected the JSON of a name and keywords: {error}"
            ) from error
    if isinstance(given, dict):
        given = [given.get(kind), {k: v for k, v in given.items() if k != kind}]
    if not isinstance(given, (list, tuple)):
        return given, {}
    name, keywords = [*given, None, None][:2]
    if not isinstance(keywords, dict | None):
        raise ValueError(
            f"invalid arguments {shown(keywords)} of {kind} {shown(name)}: expected a dict"
        )
    return name, keywords or {}


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
