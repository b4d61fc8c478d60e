"""Imports of `mxnet` and its modules that resolve to rsnet's own modules.

Where ``sys.modules["mxnet"]`` is rsnet, ``import mxnet.io`` must not load a second copy of
``rsnet.io`` under another name: a finder, installed when rsnet is imported, hands out the module
that is there. Two more finders, asked last, know modules of MXNet whose names rsnet has elsewhere,
and those that it does not have.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ._mxnet_names import PLACES, why_missing

_PACKAGE = __name__.rpartition(".")[0]

#: Modules that MXNet imports, and that programs use without importing them. They take 20 ms, which
#: those pay that import `mxnet`; what else MXNet loads, programs import themselves.
_LOADED_BY_MXNET = ("concurrent.futures", "multiprocessing.pool", "urllib.request")

#: Is `mxnet` to be rsnet when a program first imports it?
_is_expected = False


class _SameModule:
    """A loader whose module exists already."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._spec = getattr(module, "__spec__", None)

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self._spec  # the import system has put the alias' own there


class _Itself(_SameModule):
    """A loader of ``mxnet``."""

    def exec_module(self, module: Any) -> None:
        super().exec_module(module)
        _enter(module)


class _AliasFinder:
    """Finds ``mxnet.X`` as ``rsnet.X`` while ``sys.modules["mxnet"]`` is rsnet, and ``mxnet`` where
    it is expected.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = sys.modules[_PACKAGE]
        if fullname == "mxnet" and _is_expected:
            itself: Any = _Itself(package)
            return ModuleSpec(fullname, itself)
        if sys.modules.get("mxnet") is not package:
            return None
        top, _, rest = fullname.partition(".")
        if top != "mxnet" or not rest:
            _enter_modules()
            return None
        module = _module(f"{_PACKAGE}.{rest}")
        if module is None:
            return None
        loader: Any = _SameModule(module)
        return ModuleSpec(fullname, loader)


def _enter_modules() -> None:
    """Enters what ``import rsnet`` loads under MXNet's names too: libraries for many frameworks
    look for ``"mxnet.ndarray"`` in `sys.modules` to learn whether a program uses MXNet, and for
    "mxnet" in ``str(type(x))`` to know its arrays.
    """
    if "mxnet.ndarray" in sys.modules:
        return
    sys.modules[f"{_PACKAGE}.ndarray"].NDArray.__module__ = "mxnet.ndarray"
    for name, module in list(sys.modules.items()):
        top, _, rest = name.partition(".")
        if top == _PACKAGE and rest and "._" not in name:
            sys.modules.setdefault(f"mxnet.{rest}", module)


def _module(name: str) -> Any:
    """The module `name`, or the one that an attribute of this name is, as `rsnet.nd`."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
    parent, _, last = name.rpartition(".")
    found = getattr(sys.modules.get(parent), last, None)
    return found if isinstance(found, ModuleType) else None


class _PlaceFinder:
    """Finds ``rsnet.X.Y`` where rsnet has the names of MXNet's module X.Y in another place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        place = PLACES.get(rest) if top == _PACKAGE else None
        if place is None:
            return None
        loader: Any = _SameModule(importlib.import_module(f"{_PACKAGE}.{place}"))
        return ModuleSpec(fullname, loader)


class _MissingFinder:
    """Refuses ``rsnet.X`` by name where X is a module of MXNet that rsnet does not have, and
    ``rsnet.X.Y`` likewise.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        top, _, rest = fullname.partition(".")
        parent, _, name = fullname.rpartition(".")
        if top != _PACKAGE or not rest or hasattr(sys.modules.get(parent), name):
            return
        why = why_missing(rest.rpartition(".")[0], name)
        if why is not None:
            # `from rsnet import X` ignores an error that carries the name it looked for.
            raise ModuleNotFoundError(why, name=f"mxnet.{rest}")


def install_finders() -> None:
    """Adds the finders to the import system; called once, when rsnet is imported."""
    sys.meta_path.insert(0, _AliasFinder())
    sys.meta_path.extend((_PlaceFinder(), _MissingFinder()))


def _enter(package: ModuleType) -> None:
    """Enters the package and its modules under MXNet's names."""
    sys.modules["mxnet"] = package
    _enter_modules()
    for name in _LOADED_BY_MXNET:
        importlib.import_module(name)


def _expect() -> ModuleType:
    """Lets the first import of `mxnet` find rsnet; returns the package."""
    package = sys.modules[_PACKAGE]
    other = sys.modules.get("mxnet", package)
    if other is not package:
        where = getattr(other, "__file__", None) or "another place"
        raise ImportError(
            f"mxnet is imported from {where} already: expected rsnet.as_mxnet() before it",
            name="mxnet",
        )
    global _is_expected
    _is_expected = True
    vars(package)["__version__"] = vars(package)["mxnet_version"]
    return package


def install() -> ModuleType:
    """Makes ``import mxnet`` mean rsnet in this process; returns the package.

    Its `__version__` then is that of the interface, which programs for MXNet ask for.

    Raises
    ------
    ImportError
        If another `mxnet` has been imported.
    """
    package = _expect()
    _enter(package)
    return package


def install_everywhere() -> ModuleType:
    """As :func:`install`, also in the processes that `multiprocessing` starts from here by `spawn`
    or `forkserver`: these begin by importing the program's main module.

    `sys.modules` has no `mxnet` before the program imports it: programs for many frameworks look
    there for the one that is in use.
    """
    from multiprocessing import spawn

    package = _expect()
    prepare: Any = spawn.get_preparation_data
    if not hasattr(prepare, "_hands_on"):

        def prepare_with_alias(name: str) -> dict[str, Any]:
            data: dict[str, Any] = prepare(name)
            return data | {_PACKAGE: _HandedOn()}

        vars(prepare_with_alias)["_hands_on"] = True
        vars(spawn)["get_preparation_data"] = prepare_with_alias
    return package


class _HandedOn:
    """Installs the alias in the process that loads it: children load what prepares them first."""

    def __reduce__(self) -> tuple[Any, ...]:
        return install_everywhere, ()
