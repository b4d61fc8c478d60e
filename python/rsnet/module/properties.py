"""Properties that modules have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def kept(name: str, doc: str) -> Any:
    """A property over the attribute `_name` of modules that have it; others define their own."""

    def get(self: Any) -> Any:
        try:
            return vars(self)[f"_{name}"]
        except KeyError:
            message = f"{type(self).__name__} does not define '{name}'"
            raise NotImplementedError(message) from None

    return property(get, doc=doc)


def delegated(name: str, get: Callable[[Any, str], Any], doc: str) -> Any:
    """A property that reads the attribute of the object that `get(module, name)` returns."""
    return property(lambda self: getattr(get(self, name), name), doc=doc)


# Values of a property `within` before it has any: programs see None.
NOTHING: dict[str, Any] = {}


def within(part: str, name: str) -> Any:
    """A property over the attribute `name` of the module's `part`, which programs may set."""

    def get(self: Any) -> Any:
        value = getattr(vars(self)[part], name)
        return None if value is NOTHING else value

    def put(self: Any, value: Any) -> None:
        setattr(vars(self)[part], name, value)

    return property(get, put)
