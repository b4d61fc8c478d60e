"""Automatic names of symbols: `NameManager` and `Prefix`.

A symbol made without a name gets `hint` + counter from the current manager of its thread; the hint
is the lower-cased name of the function that makes it (`fullyconnected0`, `_plus3`).

Examples
--------
>>> import rsnet as mx
>>> with mx.name.NameManager():
...     mx.sym.Variable("x").relu().name
'relu0'
"""

from __future__ import annotations

from ._scopes import HasCurrent

__all__ = ["NameManager", "Prefix", "current"]


class NameManager(metaclass=HasCurrent):
    """Names symbols that are made without a name; the counters of each manager start at 0.

    Use it as a context manager to make it the current one of the thread; `NameManager.current` is
    that manager.
    """

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """Returns `name` if given, else `hint` followed by the next number of that hint.

        Parameters
        ----------
        name : str or None
            Name chosen by the caller.
        hint : str
            Stem of an automatic name.
        """
        if name:
            return name
        number = self._counter.get(hint, 0)
        self._counter[hint] = number + 1
        return f"{hint}{number}"

    def __enter__(self) -> NameManager:
        NameManager.stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        NameManager.stack.pop()


class Prefix(NameManager):
    """Prepends `prefix` to the name of every operator symbol, also to names chosen by the caller.

    Variables made by `Variable` are not renamed; inputs made automatically carry the prefix because
    they are named after their operator.

    Parameters
    ----------
    prefix : str
        Text to prepend.
    """

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + super().get(name, hint)


def current() -> NameManager:
    """The current manager of this thread."""
    found: NameManager = NameManager.current
    return found
