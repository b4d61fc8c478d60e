"""The functions of `rsnet.sym`, made from the operator registry when they are first asked for."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core, attribute
from .. import name as names
from .._operators import registry
from .symbol import Symbol

_functions: dict[str, tuple[int, Callable[..., Symbol]]] = {}


def create(
    op: str,
    hint: str,
    args: list[Symbol],
    kwargs: dict[str, Symbol],
    params: dict[str, Any],
    name: str | None = None,
    attr: dict[str, str] | None = None,
) -> Symbol:
    """A symbol of operator `op` over the given inputs; what is missing becomes variables."""
    attrs = attribute.current().get(attr)
    for key, value in attrs.items():
        if not isinstance(value, str):
            raise ValueError(f"Attributes need to be string: attribute '{key}' of operator {op}")
    # The parameters of Custom are those of a class of the user.
    for key in attrs if op == "Custom" else (*attrs, *params):
        if key.strip("_").endswith(("_lr_mult", "_wd_mult")):
            raise ValueError(
                f"Attribute '{key}' of operator {op}: set multipliers on the variable, "
                "Variable(name, lr_mult=..., wd_mult=...)"
            )
    handle = _core.SymbolHandle.create(
        op,
        names.current().get(name, hint),
        {key: text_of(value) for key, value in params.items()},
        attrs,
        [a._handle for a in args],
        {k: v._handle for k, v in kwargs.items()},
    )
    return Symbol(handle)


def text_of(value: Any) -> str:
    """A parameter as JSON stores it."""
    if isinstance(value, str):
        return value
    if isinstance(value, (type, np.dtype)):
        return np.dtype(value).name
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
        There is no such operator.
    """
    version = _core.registry_version(name)
    if version is None:
        raise AttributeError(registry.absent(name, f"operator '{name}' is not registered"))
    known = _functions.get(name)
    if known is None or known[0] != version:
        known = _functions[name] = (version, _make(name))
    return known[1]


def _make(func_name: str) -> Callable[..., Symbol]:
    info = _core.operator_info(func_name)
    inputs: list[str] = [] if info["variadic"] else [i[0] for i in info["inputs"]]
    order = inputs + [p[0] for p in info["params"]]
    known = set(inputs)
    hint = func_name.lower()

    def run(
        *args: Any,
        name: str | None = None,
        attr: dict[str, str] | None = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Symbol:
        symbols: list[Symbol] = []
        keywords: dict[str, Symbol] = {}
        params: dict[str, Any] = {}
        # Operators whose inputs depend on parameters may have more of them than the signature
        # shows.
        leading = next((i for i, a in enumerate(args) if not isinstance(a, Symbol)), len(args))
        if len(inputs) < leading:
            symbols.extend(args[:leading])
            args = (*[None] * len(inputs), *args[leading:])
        if inputs:
            if len(args) > len(order):
                raise TypeError(
                    f"{func_name}() takes at most {len(order)} positional arguments, got "
                    f"{len(args)}"
                )
            for key, value in zip(order, args, strict=False):
                if symbols and key in known:
                    continue
                if key in kwargs:
                    raise TypeError(f"{func_name}() got multiple values for argument '{key}'")
                kwargs[key] = value
        else:
            for i, value in enumerate(args[leading:]):
                _check_input(func_name, str(i), value)
        for key, value in kwargs.items():
            if isinstance(value, Symbol):
                keywords[key] = value
            elif key in known:
                if value is not None:
                    _check_input(func_name, key, value)
            else:
                params[key] = value
        if symbols and keywords:
            raise TypeError(
                f"{func_name}() only accepts input Symbols either as positional or keyword "
                f"arguments, not both"
            )
        return create(func_name, hint, symbols, keywords, params, name, attr)

    run.__name__ = run.__qualname__ = func_name
    run.__module__ = "rsnet.symbol"
    run.__doc__ = _document(info)
    run.__signature__ = _signature(info, inputs)  # type: ignore[attr-defined]
    return run


def _check_input(func_name: str, key: str, value: Any) -> None:
    if not isinstance(value, Symbol):
        raise TypeError(
            f"Compose expect `Symbol` as arguments: argument '{key}' of {func_name} is a "
            f"{type(value).__name__}"
        )


def _signature(info: dict[str, Any], inputs: list[str]) -> inspect.Signature:
    kind = inspect.Parameter
    parameters = [kind("data", kind.VAR_POSITIONAL)] if not inputs else []
    place = kind.POSITIONAL_OR_KEYWORD if inputs else kind.KEYWORD_ONLY
    taken: set[str] = {"data"} if not inputs else set()
    for key in inputs:
        if _showable(key):
            parameters.append(kind(key, place, default=None))
        taken.add(key)
    for key, _, _, default in info["params"]:
        if _showable(key) and key not in taken:
            parameters.append(kind(key, place, default=default))
    for key in ("name", "attr"):
        parameters.append(kind(key, kind.KEYWORD_ONLY, default=None))
    parameters.append(kind("kwargs", kind.VAR_KEYWORD))
    try:
        return inspect.Signature(parameters, return_annotation=Symbol)
    except ValueError:  # names that Python cannot show in a signature (`lambda`)
        return inspect.signature(lambda *args, **kwargs: None)


def _showable(name: str) -> bool:
    """Can Python show the name in a signature? (Not `in`, not `lambda`.)"""
    return name.isidentifier() and not keyword.iskeyword(name)


def _document(info: dict[str, Any]) -> str:
    lines = [info["doc"], "", "Parameters", "----------"]
    for name, kind, doc in info["inputs"]:
        lines += [f"{name} : {kind.replace('NDArray-or-', '')}", f"    {doc}"]
    for name, kind, doc, _ in info["params"]:
        lines += [f"{name} : {kind}", f"    {doc}"]
    lines += ["name : string, optional", "    Name of the resulting symbol.", ""]
    lines += ["Returns", "-------", "Symbol", "    The result."]
    return "\n".join(lines)
