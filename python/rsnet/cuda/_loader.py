"""Compiles CUDA source and hands the functions to the core.

The core asks for a function when an operator is first called on elements of some dtypes on some
device. It keeps the driver's handle for the life of the process and launches it without the
interpreter, so whatever owns the function is kept here for as long.

Source that a program brings (`rsnet.rtc`) goes the same way.

Two loaders do the same: CuPy's `RawModule`, which compiles with NVRTC and keeps the result on disk,
and the one of a file that the environment variable ``RSNET_CUDA_LOADER`` names. The tests use the
latter: with the emulated driver it compiles the same text for the host.
"""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..base import MXNetError

__all__ = [
    "OPTIONS",
    "Source",
    "compile_source",
    "library",
    "load",
    "load_from_source",
    "program",
]

#: Where the sources are.
FOLDER = Path(__file__).parent / "kernels"

#: The variable that names a file whose function ``load`` takes the place of CuPy.
LOADER_VARIABLE = "RSNET_CUDA_LOADER"

#: Options of the compiler. CuPy adds ``-ftz=true``, after which no option counts: float32
#: numbers below 1.2e-38 are 0.
OPTIONS = ("-std=c++17",)

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)

#: What is loaded, by (device, source, function): handles with their owners. A source of rsnet is
#: the name of its file. A program's source is one module, which has the name `_MODULE`.
_loaded: dict[tuple[int, Source | str, str], Any] = {}
_MODULE = ""


@cache
def _text(name: str) -> str:
    """A file of the folder with the ones that it includes, each once and where it is named."""
    seen: set[str] = set()

    def inlined(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (FOLDER / name).read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda found: inlined(found[1]), text)

    return inlined("prelude.cuh") + inlined(name)


def program(source: str, definitions: str) -> str:
    """The text that is compiled for a function of the file `source`."""
    return _text(f"{source}.cu") + definitions


@dataclass(frozen=True)
class Source:
    """CUDA source of a program, with the options of its compiler."""

    text: str
    #: Names of C++ that functions are loaded by; without any, those of C.
    exports: tuple[str, ...]
    options: tuple[str, ...]


class CupyLoader:
    """Compiles and loads by CuPy's `RawModule`."""

    def load(self, device: int, source: str, definitions: str, function: str) -> tuple[int, Any]:
        """The driver's handle of a function of rsnet, and what has to be kept for it."""
        needs = f"operators on gpu({device}) need CuPy, which compiles their kernels"
        what = f"CUDA function {function} of {source}.cu"
        module = self._module(
            device, needs, what, program(source, definitions), OPTIONS, (function,)
        )
        return self._function(device, f"{source}.cu", module, function)

    def compile(self, device: int, source: Source) -> Any:
        """The module of a program's source, for `function`."""
        needs, what = "mx.rtc needs CuPy, which compiles kernels", "CUDA source of mx.rtc"
        names = source.exports or None
        return self._module(device, needs, what, source.text, source.options, names)

    def function(self, device: int, module: Any, name: str) -> tuple[int, Any]:
        """The driver's handle of a function of a module, and what has to be kept for it."""
        return self._function(device, "the CUDA source of mx.rtc", module, name)

    def _module(
        self,
        device: int,
        needs: str,
        what: str,
        text: str,
        options: tuple[str, ...],
        names: tuple[str, ...] | None,
    ) -> Any:
        try:
            import cupy
        except ImportError as error:
            raise ImportError(
                f"{needs}: pip install rsnet[cuda13] (or rsnet[cuda12]): {error}"
            ) from error
        try:
            with cupy.cuda.Device(device):
                module = cupy.RawModule(code=text, options=options, name_expressions=names)
                module.compile()
        except cupy.cuda.compiler.CompileException as error:
            raise MXNetError(f"the {what} does not compile for gpu({device}):\n{error}") from error
        except (RuntimeError, OSError) as error:  # the errors of CUDA derive from the first
            raise MXNetError(
                f"{needs}: expected a CuPy that can use gpu({device}), and CuPy "
                f"{cupy.__version__} cannot: {error}"
            ) from error
        return module

    def _function(self, device: int, where: str, module: Any, name: str) -> tuple[int, Any]:
        import cupy

        with cupy.cuda.Device(device):
            try:
                kernel = module.get_function(name)
                # `ptr` is the CUfunction: the driver's own handle.
                return kernel.kernel.ptr, (module, kernel)
            except (cupy.cuda.driver.CUDADriverError, KeyError, TypeError) as error:
                raise MXNetError(f"{where} has no kernel '{name}': {error}") from error


@cache
def _loader() -> Any:
    path = os.environ.get(LOADER_VARIABLE)
    return runpy.run_path(path)["Loader"]() if path else CupyLoader()


def _kept(device: int, source: Source | str, name: str, make: Callable[[], Any]) -> Any:
    """What `make` returned at the first call for this function; errors are not kept."""
    key = (device, source, name)
    if key not in _loaded:
        _loaded[key] = make()
    return _loaded[key]


def library(name: str) -> str | None:
    """The path of a library of CUDA (``cublas``) that is installed for Python or for CuPy.

    Returns None if it is not found there; the system may have it nevertheless.
    """
    try:
        from cuda import pathfinder
    except ImportError:  # comes with CuPy
        return None
    try:
        found: str | None = pathfinder.load_nvidia_dynamic_lib(name).abs_path
    except RuntimeError:  # what its errors derive from
        return None
    return found


def load(device: int, source: str, definitions: str, function: str) -> int:
    """The driver's handle of `function`, which is compiled for `device` if it is not loaded yet.

    Raises
    ------
    ImportError
        If CuPy is not installed.
    MXNetError
        If the source does not compile; with the compiler's log.
    """
    found: tuple[int, Any] = _kept(
        device, source, function, lambda: _loader().load(device, source, definitions, function)
    )
    return found[0]


def compile_source(device: int, source: Source) -> Any:
    """A program's source, compiled for a device; it stays loaded until the process ends.

    Raises
    ------
    ImportError
        If CuPy is not installed.
    MXNetError
        If the source does not compile; with the compiler's log.
    """
    return _kept(device, source, _MODULE, lambda: _loader().compile(device, source))


def load_from_source(device: int, source: Source, name: str) -> int:
    """The driver's handle of a function of a program's source.

    Raises
    ------
    MXNetError
        If there is no function of this name.
    """
    module = compile_source(device, source)
    found: tuple[int, Any] = _kept(
        device, source, name, lambda: _loader().function(device, module, name)
    )
    return found[0]
