"""Methods that are functions of a namespace: ``x.exp()`` is ``nd.exp(x)``."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any


class _Fluent:
    """A method that is made of the function of its name when it is first asked for.

    It then takes this object's place in the class. Making all of them at once would add to the time
    of importing rsnet.
    """

    __slots__ = ("_cls", "_name", "_package")

    def __init__(self, cls: type, package: ModuleType, name: str) -> None:
        self._cls, self._package, self._name = cls, package, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        function = getattr(self._package, self._name)

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return function(self, *args, **kwargs)

        method.__name__ = self._name
        method.__qualname__ = f"{self._cls.__name__}.{self._name}"
        method.__module__ = self._cls.__module__
        method.__doc__ = function.__doc__
        vars(method)["__wrapped__"] = function  # `inspect.signature` and `help` show its parameters
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)


def add_fluent(cls: type, package: ModuleType, names: Iterable[str]) -> None:
    """Adds methods for the functions ``names`` of ``package``, but those that the class has."""
    for name in names:
        if not hasattr(cls, name):
            setattr(cls, name, _Fluent(cls, package, name))
