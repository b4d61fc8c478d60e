"""Places the function of every registered operator where programs look for it.

The prefix of an operator's name decides: ``_contrib_X`` is ``nd.contrib.X``, ``_linalg_X`` is
``nd.linalg.X`` and so on; any other name that begins with ``_`` is in ``nd._internal``; the rest
is in ``nd.op`` and ``nd`` itself.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import Any

from .. import _core
from .._mxnet_names import why_missing_in
from .._on_demand import import_on_demand
from .._operators import registry

_PREFIXES = ("_contrib_", "_linalg_", "_sparse_", "_image_")
_PACKAGE = "rsnet.ndarray"


def _home(name: str) -> tuple[str, str]:
    """Module and function name of operator `name`."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix.strip("_"), name[len(prefix) :]
    if name.startswith("_random_") and name.endswith("_like"):
        return "random", name[len("_random_") :]
    if name.startswith("_"):
        return "_internal", name
    return "op", name


# What `nd.sparse` has beside operators.
_SPARSE_CLASSES = ("BaseSparseNDArray", "CSRNDArray", "RowSparseNDArray")
# Namespaces that are files of their own; functions of the registry are added to them.
_WRITTEN = ("random",)


def _module(name: str) -> types.ModuleType:
    full = f"{_PACKAGE}.{name}"
    if name in _WRITTEN:
        return importlib.import_module(full)
    if full not in sys.modules:
        from ..base import _Null

        module = types.ModuleType(full, f"Operator functions of ``nd.{name}``, from the registry.")
        vars(module)["_Null"] = _Null  # the default that signatures name
        vars(module)["__getattr__"] = functools.partial(_missing, name)
        sys.modules[full] = module
        setattr(sys.modules[_PACKAGE], name, module)
    return sys.modules[full]


def _missing(namespace: str, name: str) -> Any:
    """A namespace's ``__getattr__``."""
    if namespace == "sparse" and name in _SPARSE_CLASSES:
        return getattr(import_on_demand(f"{_PACKAGE}._sparse"), name)
    text = f"module '{_PACKAGE}.{namespace}' has no attribute {name!r}"
    raise AttributeError(why_missing_in(namespace, name) or text)


def hidden_by(name: str) -> str | None:
    """The object other than an operator under this name in ``nd`` or ``sym``, or None."""
    home, short = _home(name)
    if home != "op" or hasattr(_module("op"), short):
        return None
    for package in (_PACKAGE, "rsnet.symbol"):
        if short in vars(sys.modules.get(package, types)):
            return f"{package}.{short}"
    return None


def add_function(name: str) -> Any:
    """Makes the function of operator `name`; replaces one that is there."""
    home, short = _home(name)
    public = home == "op"
    module = _module(home)
    function = _core.make_function(name, short, _PACKAGE if public else module.__name__)
    setattr(module, short, function)
    package = sys.modules[_PACKAGE]
    if public and short not in package._HANDWRITTEN:
        setattr(package, short, function)
    return function


def add_all() -> None:
    """Makes the functions of all registered operators."""
    for name in ("_internal", "op", "contrib", "linalg", "sparse", "image"):
        _module(name)
    for name in _core.operator_names():
        if not name.startswith("_backward"):
            add_function(name)


registry.subscribe(add_function, hidden_by)
