"""Compiles CUDA source for architectures that the machine does not have, with NVRTC from its wheel.

Neither a device nor a driver nor a toolkit is needed: `pip install rsnet[kernel-check]`.
"""

import ctypes
import functools
import importlib.util
import re
from pathlib import Path


def folder():
    """Where the wheel keeps the library, or None if it is not installed."""
    found = importlib.util.find_spec("nvidia")
    places = [Path(p) for p in found.submodule_search_locations] if found else []
    libraries = [lib for p in places for lib in p.glob("*/lib/libnvrtc.so.*")]
    return libraries[0].parent if libraries else None


@functools.cache
def library():
    place = folder()
    for builtins in place.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))  # the library does not look beside itself
    found = ctypes.CDLL(str(next(p for p in place.glob("libnvrtc.so.*") if "alt" not in p.name)))
    found.nvrtcGetErrorString.restype = ctypes.c_char_p
    return found


def check(status):
    if status:
        raise RuntimeError(library().nvrtcGetErrorString(status).decode())


def _log(program):
    size = ctypes.c_size_t()
    check(library().nvrtcGetProgramLogSize(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(library().nvrtcGetProgramLog(program, text))
    return text.value.decode()


def compile(text, name, functions, architecture, options=()):
    """Machine code of `functions`: {function: (registers, bytes spilled, bytes of shared memory)}.

    Raises RuntimeError with the compiler's log.
    """
    nvrtc, program = library(), ctypes.c_void_p()
    start = (ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    check(nvrtc.nvrtcCreateProgram(*start))
    try:
        for function in functions:
            check(nvrtc.nvrtcAddNameExpression(program, function.encode()))
        # As CuPy compiles.
        flags = [f"-arch={architecture}", *options, "-default-device", "-ftz=true"]
        flags += ["--ptxas-options=-v"]
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        failed = nvrtc.nvrtcCompileProgram(program, len(flags), array)
        log = _log(program)
        if failed:
            raise RuntimeError(log)
        used, lowered = usage(log), ctypes.c_char_p()
        found = {}
        for function in functions:
            name = (program, function.encode(), ctypes.byref(lowered))
            check(nvrtc.nvrtcGetLoweredName(*name))
            found[function] = used[lowered.value.decode()]
        return found
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


_USAGE = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers(.*?)\n",
    re.DOTALL,
)


def usage(log):
    """What the assembler says of each function."""
    found = {}
    for name, stores, loads, registers, rest in _USAGE.findall(log):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = (int(registers), int(stores) + int(loads), int(shared[1]) if shared else 0)
    return found
