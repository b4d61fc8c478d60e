"""Libraries of compiled operators: loading, and their definitions as user operators."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Any

from .. import _core
from .._sbp.context import SbpContext
from .._sbp.rules import parse_rule
from ..base import MXNetError
from . import registry
from .checks import fail, free_name
from .user.arguments import Arg, Attr, Conf
from .user.definition import UserOpDefinition
from .user.inference import Found
from .user.signatures import Signatures

#: Kinds of attributes by their numbers in ``rsnet/plugin.h``.
_KINDS = {
    1: "int32", 2: "int64", 3: "bool", 4: "float", 5: "double", 6: "string", 7: "shape",
    8: "data_type", 9: "list_int32", 10: "list_int64", 11: "list_float", 12: "list_data_type",
    13: "list_shape", 14: "list_string", 15: "int64", 16: "uint64", 17: "string", 18: "list_float",
}  # fmt: skip


def load_library(path: str | os.PathLike[str], *, check: bool | None = None) -> list[str]:
    """Loads a library of compiled operators: they are in ``nd`` and ``sym`` at once.

    Loading the same file again, or another file of the same content, does nothing. If anything of
    the library is refused, nothing of it is registered.

    Parameters
    ----------
    path : str or os.PathLike
        A shared library that was compiled with ``rsnet/plugin.h``, or with one of the C++ headers
        over it: see ``docs/plugins.md`` and :func:`rsnet.build_extension`.
    check : bool, optional
        Watch its kernels: a call fails if it writes to an input, or before or after an output.
        Slower, for tests. By default what the environment variable ``RSNET_CHECK_PLUGINS`` says (0
        or 1).

    Returns
    -------
    list of str
        The names, aliases included, of the operators that the library registered, or that it gave
        a kernel or a gradient.

    Raises
    ------
    OSError
        The file does not exist, or the system cannot load it; the error is an MXNetError, too.
    rsnet.MXNetError
        It is not a library of rsnet operators, was compiled for another version of the interface,
        describes an operator wrongly, or a name is taken.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.load_library("libabsent.so")
    Traceback (most recent call last):
        ...
    rsnet.base.MXOSError: cannot load 'libabsent.so': No such file or directory (os error 2)
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"load_library: invalid path {path!r}: expected a string or a path")
    if check is None:
        check = os.environ.get("RSNET_CHECK_PLUGINS", "0") not in ("", "0")
    shown = os.fspath(path)
    free = functools.partial(free_name, f"library '{os.path.basename(shown)}'")
    operators, called, names = _core.load_library(shown, bool(check), _try_elsewhere, free)
    # Several threads may get here with one library, and do the same; none returns before its
    # operators are there.
    for name in operators:
        _define(name)
    versions = {name: registry.version(name) for name in called}
    changed = [name for name, version in versions.items() if _announced.get(name) != version]
    registry.announce(changed)
    _announced.update(versions)
    return names


#: The program of a trial: ctypes opens the library, so that an exception of an initialiser ends
#: the process with its text, and looks for its symbols while little memory is mapped that a damaged
#: table could point to; then the core loads it. Neither NumPy nor the package is imported. Errors
#: are left to the load that follows; only the end of this process counts.
_TRIAL = """
import ctypes, os, sys
path, core = sys.argv[1:]
try:
    opened = ctypes.CDLL(path)
    for name in ("rsnet_plugin_abi", "rsnet_plugin_register", "rsnet_plugin_guard"):
        hasattr(opened, name)
    ctypes.CDLL(core).rsnet_try_library(os.fsencode(path))
except (OSError, AttributeError):
    pass
os.write(1, b"rsnet: tried")
"""
#: The time that a trial may take; loading takes a fraction of a second.
_TRIAL_SECONDS = 120.0


def _try_elsewhere(path: os.PathLike[str]) -> None:
    """Loads a library in another process first: what its initialisers or its registration do wrong,
    or damage that the system's loader does not notice, ends that process and not this one.
    """
    interpreter = sys.executable or ""
    if not os.path.basename(interpreter).startswith("python"):
        return  # rsnet is embedded in a program that may not run code from its command line
    call = [interpreter, "-I", "-S", "-c", _TRIAL, os.fspath(path), str(_core.__file__)]
    try:
        done = subprocess.run(
            call, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise MXNetError(
            f"cannot load '{path}': expected its initialisers and registration to end within "
            f"{_TRIAL_SECONDS:g} s in the process that tried"
        ) from None
    if done.returncode or b"rsnet: tried" not in done.stdout:
        status = done.returncode
        ended = f"status {status}" if status >= 0 else f"signal {-status}"
        said = done.stderr.decode(errors="replace").strip() or ended
        raise MXNetError(f"cannot load '{path}': loading it ended the process that tried: {said}")


#: Names of libraries' operators, and the registrations of them that `nd` and `sym` have.
_announced: dict[str, int | None] = {}


def _define(name: str) -> None:
    """Makes an operator known to ``user_op_builder``, ``sbp.signatures`` and ``op.kernels``."""
    info = _core.library_operator(name)
    if info is None or name in registry.user_operators:
        return
    # No user operator has an attribute that is None by default, or a list with None.
    attrs = info["attrs"]
    foreign = [key for key, kind, default, _ in attrs if None in default or kind not in _KINDS]
    if foreign:
        registry.only_in_nd[name] = foreign
    else:
        registry.user_operators[name] = LibraryDefinition(name, info)


class LibraryDefinition(UserOpDefinition):
    """A user operator whose functions are in a library."""

    def __init__(self, name: str, info: dict[str, Any]) -> None:
        attrs = {k: Attr(_KINDS[kind], *given, doc=doc) for k, kind, given, doc in info["attrs"]}
        inputs, outputs = (tuple(Arg(*a) for a in info[of]) for of in ("inputs", "outputs"))
        super().__init__(name, inputs, outputs, attrs)
        self.library = str(info["library"])
        self.counted_by = str(info["counted_by"])
        if info["has_signatures"]:
            self.sbp = self._of_library
            self.signatures = Signatures(self, self._of_library)

    def install(self, *, replace: bool) -> None:
        """Kernels and gradients of libraries' operators come from libraries."""
        of = f"the operator is of library '{self.library}'"
        raise fail(self.name, f"{of}: its kernels and gradient cannot be written in Python")

    def infer(self, conf: Conf, shapes: list[Any], types: list[Any]) -> Found:
        """Inference by the library, for ``rsnet.sbp``: the core asks itself."""
        found = _core.infer_outputs(self.name, list(zip(shapes, types)), self.call_params(conf))
        return types, [tuple(shape) for shape, _ in found], [dtype for _, dtype in found]

    def _of_library(self, ctx: SbpContext) -> None:
        given, made = ([(d.shape, d.dtype) for d in descs] for descs in ctx.descriptions())
        ins, outs = [a.name for a in ctx.inputs()], [a.name for a in ctx.outputs()]
        counts = {a.name: (ins + outs).count(a.name) for a in (*self.inputs, *self.outputs)}
        params = self.call_params(Conf(self, counts, ctx.attributes()))
        for text in _core.library_signatures(self.name, given, made, params):
            parse_rule(self.name, text, ins, outs)(ctx)
