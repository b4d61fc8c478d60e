"""Compiles CUDA source and hands the functions to the core.

The core asks for a function when an operator is first called on elements of some dtypes on some
device. It keeps the driver's handle for the life of the process and launches it without the
interpreter, so whatever owns the function is kept here for as long.

Two loaders do the same: CuPy's `RawModule`, which compiles with NVRTC and keeps the result on disk,
and the one of a file that the environment variable ``RSNET_CUDA_LOADER`` names. The tests use the
latter: with the emulated driver it compiles the same text for the host.
"""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["load", "program", "OPTIONS"]

#: Where the sources are.
FOLDER = Path(__file__).parent / "kernels"

#: The variable that names a file whose function ``load`` takes the place of CuPy.
LOADER_VARIABLE = "RSNET_CUDA_LOADER"

#: What the compiler is told. CuPy adds ``-ftz=true``, after which no option counts: float32
#: numbers below 1.2e-38 are 0.
OPTIONS = ("-std=c++17",)

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)

#: The owners of loaded functions, by (device, source, function).
_loaded: dict[tuple[int, str, str], tuple[int, Any]] = {}


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


@cache
def _loader() -> Callable[[int, str, str, str], tuple[int, Any]]:
    path = os.environ.get(LOADER_VARIABLE)
    return runpy.run_path(path)["load"] if path else _load_with_cupy


def load(device: int, source: str, definitions: str, function: str) -> int:
    """The driver's handle of `function`, which is compiled for `device` if it is not loaded yet.

    Raises
    ------
    ImportError
        If CuPy is not installed.
    RuntimeError
        If the source does not compile; with the compiler's log.
    """
    key = (device, source, function)
    if key not in _loaded:
        _loaded[key] = _loader()(device, source, definitions, function)
    return _loaded[key][0]


def _load_with_cupy(device: int, source: str, definitions: str, function: str) -> tuple[int, Any]:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"operators on gpu({device}) need CuPy, which compiles their kernels: "
            f"pip install rsnet[cuda13] (or rsnet[cuda12]): {error}"
        ) from error
    try:
        with cupy.cuda.Device(device):
            module = cupy.RawModule(
                code=program(source, definitions),
                options=OPTIONS,
                name_expressions=(function,),
            )
            kernel = module.get_function(function)
            # `ptr` is the CUfunction: the driver's own handle.
            return kernel.kernel.ptr, (module, kernel)
    except cupy.cuda.compiler.CompileException as error:
        raise RuntimeError(
            f"the CUDA function {function} of {source}.cu does not compile for gpu({device}):\n"
            f"{error}"
        ) from error
