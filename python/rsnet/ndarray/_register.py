"""Makes the function of a registered operator when a program first looks for it.

The prefix of an operator's name decides: ``_contrib_X`` is ``nd.contrib.X``, ``_linalg_X`` is
``nd.linalg.X`` and so on; any other name that begins with ``_`` is in ``nd._internal``; the rest
is in ``nd.op`` and ``nd`` itself.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from .. import _core
from .._missing_operators import why_missing_in
from .._on_demand import import_on_demand
from .._operators import registry
from ..base import _Null

_PREFIXES = ("_contrib_", "_linalg_", "_sparse_", "_image_")
_PACKAGE = "rsnet.ndarray"

#: Functions of `nd` written by hand, which the registry's functions of a name do not replace.
HANDWRITTEN: set[str] = set()


def home_of(name: str) -> tuple[str, str]:
    """Module and function name of operator `name`."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix.strip("_"), name[len(prefix) :]
    if name.startswith("_random_") and name.endswith("_like"):
        return "random", name[len("_random_") :]
    if name.startswith("_"):
        return "_internal", name
    return "op", name


# What namespaces have beside operators, and the modules that define it, loaded at first use.
WRITTEN: dict[str, dict[str, str]] = {
    namespace: {name: module for module, names in modules.items() for name in names.split()}
    for namespace, modules in {
        "sparse": {"_sparse": "BaseSparseNDArray CSRNDArray RowSparseNDArray"},
        "contrib": {
            "_by_numbers": "boolean_mask",
            "_contrib": "cond foreach isfinite isinf isnan rand_zipfian while_loop",
            "_contrib_updates": """
                adamw_update mp_adamw_update multi_adamw_update multi_lamb_update
                multi_mp_adamw_update multi_mp_lamb_update
            """,
        },
    }.items()
}


def _operator(namespace: str, short: str) -> str | None:
    """The operator whose function has the name `short` in a namespace, or None."""
    prefix = {"op": "", "_internal": "", "random": "_random_"}.get(namespace, f"_{namespace}_")
    name = prefix + short
    is_here = home_of(name) == (namespace, short) and not short.startswith("__")
    usable = is_here and not _core.is_backward_operator(name)
    return name if usable and registry.version(name) is not None else None


def names(module: types.ModuleType, namespace: str) -> list[str]:
    """The names in the module of a namespace: those of its operators as well."""
    shown = (name for name in registry.names() if not _core.is_backward_operator(name))
    places = (home_of(name) for name in shown)
    written = WRITTEN.get(namespace, ())
    return sorted({*vars(module), *written, *(at for home, at in places if home == namespace)})


def member(module: types.ModuleType, namespace: str, name: str) -> Any:
    """The function of an operator, made and placed in its namespace, for the ``__getattr__`` of a
    module: Python calls that for names that are not there yet. ``None`` if there is no such
    operator.
    """
    if name == "__all__":  # asked by ``from ... import *``
        return [known for known in names(module, namespace) if not known.startswith("_")]
    operator = _operator(namespace, name)
    return None if operator is None else add_function(operator)


def get(module: types.ModuleType, namespace: str, name: str) -> Any:
    """As :func:`member`, with what is written by hand, and an error if there is none of both."""
    written = WRITTEN.get(namespace, {}).get(name)
    if written is not None:
        found = getattr(import_on_demand(f"{_PACKAGE}.{written}"), name)
        setattr(module, name, found)
        return found
    found = member(module, namespace, name)
    if found is None:
        text = f"module '{module.__name__}' has no attribute {name!r}"
        raise AttributeError(why_missing_in(namespace, name) or text)
    return found


def _namespace(name: str) -> types.ModuleType:
    """A module that holds nothing but functions of operators."""
    full = f"{_PACKAGE}.{name}"
    module = types.ModuleType(full, f"Operator functions of ``nd.{name}``, from the registry.")
    # `_Null` is the default that signatures name.
    vars(module).update(_Null=_Null, __getattr__=functools.partial(get, module, name))
    vars(module)["__dir__"] = functools.partial(names, module, name)
    sys.modules[full] = module
    return module


if TYPE_CHECKING:  # stubs
    from . import contrib as contrib
    from . import image as image
    from . import linalg as linalg
    from . import op as op
else:
    contrib, image, linalg, op = map(_namespace, ("contrib", "image", "linalg", "op"))
_internal, sparse = map(_namespace, ("_internal", "sparse"))


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls the function of an operator, whatever its name begins with."""
    return getattr(_internal, name)(*args, **kwargs)


def hidden_by(name: str) -> str | None:
    """The object other than an operator under this name in ``nd`` or ``sym``, or None."""
    home, short = home_of(name)
    if home != "op" or _operator(home, short) is not None:
        return None
    for package in (_PACKAGE, "rsnet.symbol"):
        if short in vars(sys.modules.get(package, types)):
            return f"{package}.{short}"
    return None


def add_function(name: str) -> Any:
    """Makes the function of operator `name`; replaces one that is there."""
    home, short = home_of(name)
    public = home == "op"
    module = sys.modules[f"{_PACKAGE}.{home}"]
    function = _core.make_function(name, short, _PACKAGE if public else module.__name__)
    setattr(module, short, function)
    if public and short not in HANDWRITTEN:
        setattr(sys.modules[_PACKAGE], short, function)
    return function


registry.subscribe(add_function, hidden_by)
