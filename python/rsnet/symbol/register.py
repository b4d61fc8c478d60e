"""The functions of `rsnet.sym`, made from the operator registry at their first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _core, attribute
from .. import name as names
from .._operators import registry
from ..base import MXNetError, shown
from .symbol import Symbol

_functions: dict[str, tuple[int, Callable[..., Symbol]]] = {}


def create(
    op: str,
    hint: str,
    args: list[Symbol],
    kwargs: dict[str, Symbol],
    params: dict[str, Any],
    name: str | None = None,
    attr: dict[str, Any] | None = None,
    bodies: Sequence[Symbol] = (),
) -> Symbol:
    """A symbol of operator `op` over the given inputs; what is missing becomes variables. `bodies`
    are the graphs that its node holds. Values in `attr` that are not strings are stored
    as parameters are.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"{op}: invalid name {shown(name)}: expected a str")
    if attr is not None and not isinstance(attr, dict):
        raise TypeError(f"{op}: invalid attr {shown(attr)}: expected a dict")
    attrs = attribute.current().get(attr)
    if attr:
        attrs = {key: _attribute_text(value) for key, value in attrs.items()}
    # The parameters of Custom are those of a class of the user.
    for key in attrs if op == "Custom" else (*attrs, *params):
        if key.strip("_").endswith(("_lr_mult", "_wd_mult")):
            raise ValueError(
                f"{op}: invalid attribute '{key}': expected multipliers on the variable, "
                "Variable(name, lr_mult=..., wd_mult=...)"
            )
    try:
        handle = _core.SymbolHandle.create(
            op,
            names.current().get(name, hint),
            {key: text_of(value) for key, value in params.items()},
            attrs,
            [a._handle for a in args],
            {k: v._handle for k, v in kwargs.items()},
            [body._handle for body in bodies],
        )
    except Exception as error:
        if not isinstance(error, MXNetError):  # of a value that has no text
            for key, value in params.items():
                _core.check_parameter(op, key, value)
        raise
    return Symbol(handle)


def _attribute_text(value: Any) -> str:
    """An attribute's value; an initializer as `Variable` stores it."""
    dumps = getattr(value, "dumps", None)
    return text_of(value) if dumps is None else str(dumps())


def text_of(value: Any) -> str:
    """A parameter as JSON stores it."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.dtype) or (isinstance(value, type) and np.dtype(value) != object):
        return str(np.dtype(value).name)
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_item_text(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, np.generic):
        value = value.item()
    return str(value)


def _item_text(value: Any) -> str:
    """An item of a list: strings and types are quoted, so that what they hold ends no item."""
    text = text_of(value)
    return repr(text) if isinstance(value, (str, type, np.dtype)) else text


def function(name: str) -> Callable[..., Symbol]:
    """The function of the operator or alias `name`.

    Raises
    ------
    AttributeError
        No operator has that name.
    """
    version = registry.version(name)
    if version is None:
        raise AttributeError(registry.absent(name, f"operator '{name}' is not registered"))
    known = _functions.get(name)
    if known is None or known[0] != version:
        made = _core.make_function(name, name, "rsnet.symbol", symbol=True)
        known = _functions[name] = (version, made)
    return known[1]
