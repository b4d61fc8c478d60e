"""Classes of which every thread has a current object, changed by `with`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class OfThread:
    """Where older programs find the current object of a class: ``cls._current.value``."""

    def __init__(self, get: Callable[[], Any], put: Callable[[Any], object]) -> None:
        self.__dict__.update(_get=get, _put=put)

    def __getattr__(self, name: str) -> Any:
        if name != "value":
            raise AttributeError(name)
        return self._get()

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "value":
            raise AttributeError(name)
        self._put(value)


class HasCurrent(type):
    """Type of such a class: its attribute `current` belongs to the thread.

    A class and its subclasses share one stack in each thread, whose first object is made by the
    class without arguments.
    """

    _local: threading.local
    _first: Any

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        if not any(isinstance(base, HasCurrent) for base in bases):
            cls._local, cls._first = threading.local(), cls

    @property
    def stack(cls) -> list[Any]:
        """The objects of this thread, the current one last."""
        found: list[Any] | None = getattr(cls._local, "stack", None)
        if found is None:
            found = cls._local.stack = [cls._first()]
        return found

    @property
    def current(cls) -> Any:
        """The current object of this thread."""
        return cls.stack[-1]

    @current.setter
    def current(cls, value: Any) -> None:
        cls.stack[-1] = value

    @property
    def _current(cls) -> OfThread:
        return OfThread(lambda: cls.current, lambda value: setattr(cls, "current", value))
