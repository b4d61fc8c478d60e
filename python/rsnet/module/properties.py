"""Read-only properties that modules have in common."""

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


def once_bound(name: str, doc: str) -> Any:
    """A property that reads the attribute of a module's executors; None while there are none."""
    return property(lambda self: getattr(self._exec_group, name, None), doc=doc)
