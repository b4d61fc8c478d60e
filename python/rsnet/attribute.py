"""Attributes for all symbols made in a scope: `AttrScope`.

Examples
--------
>>> import rsnet as mx
>>> with mx.AttrScope(ctx_group="stage1"):
...     x = mx.sym.Variable("x")
>>> x.attr("ctx_group")
'stage1'
"""

from __future__ import annotations

import threading

__all__ = ["AttrScope", "current"]


class _HasCurrent(type):
    """Type of `AttrScope`: its attribute `current` belongs to the thread."""

    @property
    def current(cls) -> AttrScope:
        """The current scope of this thread."""
        return _scopes()[-1]

    @current.setter
    def current(cls, scope: AttrScope) -> None:
        _scopes()[-1] = scope


class AttrScope(metaclass=_HasCurrent):
    """Sets attributes of every variable and operator symbol made inside `with AttrScope(...)`.

    Scopes nest: an inner scope adds to the outer one and wins where both set a key. Attributes of
    the symbol itself win over both. `AttrScope.current` is the scope of the thread.

    Parameters
    ----------
    **kwargs : str
        Attribute names and values.

    Raises
    ------
    ValueError
        A value is not a string.
    """

    _stack = threading.local()

    def __init__(self, **kwargs: str) -> None:
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ValueError(
                    f"Attributes need to be string: attribute '{key}' is a {type(value).__name__}"
                )
        self._attr = kwargs

    def get(self, attr: dict[str, str] | None) -> dict[str, str]:
        """The scope's attributes together with `attr`, which wins."""
        if not self._attr:
            return attr or {}
        own = {_plain(key) for key in attr or {}}
        scope = {key: value for key, value in self._attr.items() if _plain(key) not in own}
        return {**scope, **(attr or {})}

    def __enter__(self) -> AttrScope:
        merged = AttrScope()
        merged._attr = {**current()._attr, **self._attr}
        _scopes().append(merged)
        return self

    def __exit__(self, *exc: object) -> None:
        _scopes().pop()


def _plain(key: str) -> str:
    """``lr_mult`` for ``__lr_mult__``; both spellings set the same attribute."""
    return key[2:-2] if key.startswith("__") and key.endswith("__") else key


def _scopes() -> list[AttrScope]:
    stack = getattr(AttrScope._stack, "scopes", None)
    if stack is None:
        stack = AttrScope._stack.scopes = [AttrScope()]
    return stack


def current() -> AttrScope:
    """The current scope of this thread."""
    return _scopes()[-1]
