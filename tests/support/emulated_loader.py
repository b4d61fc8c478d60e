"""Loads functions of CUDA source for the emulated driver: compiles the same text with g++.

The file that `RSNET_CUDA_LOADER` names, where the driver is `emulated_driver`. A library holds all
functions of one source for the same dtypes, so that a compiler runs once for each of these; it is
kept between runs, under the hash of its text.
"""

import ctypes
import functools
import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

import rsnet as mx
from rsnet import _core
from rsnet.cuda import _loader

HERE = Path(__file__).parent
HEADER = HERE / "cuda" / "emulated_cuda.h"
#: Without optimisation: compiling costs more than what the tests calculate.
FLAGS = ["-std=c++17", "-O0", "-g1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing"]


def flags():
    from emulated_driver import SANITIZERS

    return FLAGS + (SANITIZERS if os.environ.get("RSNET_EMULATED_SANITIZE") else [])


def dtypes(function):
    """The template arguments of a function that are dtypes."""
    known = {"float", "double", "half", "u8", "i8", "int", "Index", "bool"}
    return tuple(name for name in re.findall(r"\w+", function) if name in known)


@functools.cache
def groups():
    """(source, dtypes) → the text of all definitions, and the functions."""
    found = {}
    for source, definitions, function in _core.cuda_functions():
        texts, functions = found.setdefault((source, dtypes(function)), ({}, []))
        texts[definitions] = None
        functions.append(function)
    return found


def text_of(source, definitions, functions):
    rows = "".join(f'  EMULATED("{f}", {f}),\n' for f in functions)
    return (
        _loader.program(source, merged(definitions))
        + f'extern "C" const EmulatedFunction emulated_functions[] = {{\n{rows}  {{}}\n}};\n'
    )


def merged(definitions):
    """Each structure once, with the functions of all of its definitions."""
    parts = {}
    for text in definitions:
        for name, body in re.findall(r"struct (\w+) \{\n(.*?)\n\};\n", text, re.DOTALL):
            for function in re.split(r"(?<=\n  \}\n)", body + "\n"):
                if function.strip():
                    parts.setdefault(name, {})[function] = None
    return "".join(f"struct {name} {{\n{''.join(of)}}};\n" for name, of in parts.items())


@functools.cache
def library(key):
    """The path of the library with the functions of a group, compiled if need be."""
    definitions, functions = groups()[key]
    text = text_of(key[0], definitions, functions)
    return compiled(f"{key[0]}-{'-'.join(key[1])}", f"{key[0]}.cu", text)


def compiled(name, source, text):
    """The path of the library of a text, compiled if need be."""
    mark = HEADER.read_text() + text + " ".join(flags())
    mark = hashlib.sha256(mark.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"rsnet-test-cuda-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{mark}.so"
    if not made.exists():
        own = folder / f"{mark}-{os.getpid()}"
        own.with_suffix(".cpp").write_text(text)
        command = ["g++", *flags(), "-include", str(HEADER), str(own.with_suffix(".cpp"))]
        done = subprocess.run(
            [*command, "-o", str(own.with_suffix(".so"))], capture_output=True, text=True
        )
        if done.returncode:
            raise mx.MXNetError(f"{source} does not compile for the host:\n{done.stderr[:6000]}")
        own.with_suffix(".cpp").rename(made.with_suffix(".cpp"))
        own.with_suffix(".so").replace(made)  # another process may have made it meanwhile
    return made


@functools.cache
def driver():
    found = ctypes.CDLL(os.environ["RSNET_LIBCUDA"])
    found.emulated_function.restype = ctypes.c_void_p
    found.emulated_function.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    return found


def on_host(text):
    """Source of a program for the host: dynamic shared memory is an array of its own."""
    dynamic = re.compile(r"extern\s+__shared__\s+(.+?)\s+(\w+)\[\];")
    return dynamic.sub(r"static thread_local \1 \2[(96 << 10) / sizeof(\1)];", text)


class Loader:
    """What `rsnet.cuda._loader` asks."""

    def load(self, device, source, definitions, function):
        return self.handle(library((source, dtypes(function))), function)

    def compile(self, device, source):
        """Functions are named by the library, so a module has those that its text declares."""
        text = on_host(source.text)
        declared = re.findall(r'extern "C" __global__ void (\w+)\(', text)
        rows = "".join(f'  EMULATED("{f}", {f}),\n' for f in (*declared, *source.exports))
        table = f'extern "C" const EmulatedFunction emulated_functions[] = {{\n{rows}  {{}}\n}};\n'
        return compiled("program", "the CUDA source of mx.rtc", f"{text}\n{table}")

    def function(self, device, module, name):
        return self.handle(module, name)

    def handle(self, path, function):
        handle = driver().emulated_function(str(path).encode(), function.encode())
        if not handle:
            raise mx.MXNetError(f"{path} has no kernel '{function}'")
        return handle, path
