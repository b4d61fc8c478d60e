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

from ._scopes import HasCurrent

__all__ = ["AttrScope", "current"]


class AttrScope(metaclass=HasCurrent):
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

    def __init__(self, **kwargs: str) -> None:
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ValueError(f"invalid attribute '{key}' {value!r}: expected a string")
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
        merged._attr = current().get(self._attr)
        AttrScope.stack.append(merged)
        return self

    def __exit__(self, *exc: object) -> None:
        AttrScope.stack.pop()


def _plain(key: str) -> str:
    """``lr_mult`` for ``__lr_mult__``; both spellings set the same attribute."""
    return key[2:-2] if key.startswith("__") and key.endswith("__") else key


def current() -> AttrScope:
    """The current scope of this thread."""
    found: AttrScope = AttrScope.current
    return found
