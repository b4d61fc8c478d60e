"""Compiled libraries for tests: each source is compiled once, and kept between runs."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from places import ROOT

import rsnet as mx
from rsnet.sysconfig import get_compile_flags, get_include

SOURCES = ROOT / "tests" / "plugin" / "sources"
_KEPT = Path(tempfile.gettempdir()) / f"rsnet-test-plugins-{os.getuid()}"

#: Libraries that this process has asked for.
_MADE = {}

#: What sources in C++ include, and the headers behind it.
_FACES = {
    r'#include "oneflow/core/framework/framework\.h"': "rsnet/oneflow.hpp",
    r"#include <(rsnet/mxnet|mxnet/\w+|dmlc/\w+)\.h>": "rsnet/mxnet.h",
}


def compiled(name, *defines, cflags=(), ldflags=()):
    """The library of a file of `sources`, with these macros defined."""
    return _library(SOURCES / name, cflags, ldflags, [f"-D{d}" for d in defines])


def compiled_text(text, name="case.cpp", cflags=()):
    """The library of a source given as text."""
    folder = _KEPT / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{_mark(text.encode())}-{name}"
    with _alone(file.name):
        if not file.exists():
            file.write_text(text)
    return _library(file, cflags)


def compiled_rust(example):
    """The library of an example of the crate rsnet-plugin."""
    command = ["cargo", "build", "--quiet", "-p", "rsnet-plugin", "--features", "half",
               "--example", example]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0 and "offline" in done.stderr:
        pytest.skip("cargo cannot resolve the workspace here")
    assert done.returncode == 0, done.stderr
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return f"{target}/debug/examples/lib{example}.so"


def _library(file, cflags, ldflags=(), defines=()):
    """Without optimisation: compiling costs more than what the operators calculate."""
    key = (file, tuple(cflags), tuple(ldflags), tuple(defines), os.environ.get("CXX"))
    if key not in _MADE or not Path(_MADE[key]).exists():
        flags = ["-O0", *_precompiled(file, cflags), *defines, *cflags]
        with _alone(file.name):
            _MADE[key] = mx.build_extension(
                file, cflags=flags, ldflags=ldflags, build_dir=_KEPT, verbose=False
            )
    return _MADE[key]


@contextlib.contextmanager
def _alone(name):
    """One process at a time: the others find what it made."""
    _KEPT.mkdir(exist_ok=True)
    with open(_KEPT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _mark(content):
    return hashlib.sha256(content).hexdigest()[:16]


def _remove_unused_headers():
    """Removes headers that were not used for a day: a compiled form takes 100 MB."""
    for folder in _KEPT.glob("headers-*"):
        with contextlib.suppress(OSError):
            if folder.is_dir() and time.time() - folder.stat().st_mtime > 86_400:
                shutil.rmtree(folder)


def _precompiled(file, cflags):
    """Flags that put the headers of a source in C++ ahead of it in their compiled form: reading
    them takes most of the time. None where another compiler than g++ may be asked, or there are
    other flags.
    """
    text = file.read_text()
    headers = [header for included, header in _FACES.items() if re.search(included, text)]
    if not headers or cflags or "CXX" in os.environ or shutil.which("g++") is None:
        return []
    flags = [*get_compile_flags(), "-O0"]
    sources = sorted(path for path in Path(get_include()).rglob("*") if path.is_file())
    contents = b"".join(path.read_bytes() for path in sources)
    folder = _KEPT / f"headers-{_mark(repr([headers[0], flags]).encode() + contents)}"
    first, made = folder / "first.hpp", folder / "first.hpp.gch"
    with _alone(folder.name):
        if made.exists():
            os.utime(folder)  # it is in use
        else:
            _remove_unused_headers()
            folder.mkdir(exist_ok=True)
            first.write_text(f"#include <{headers[0]}>\n")
            draft = folder / "draft"
            command = ["g++", *flags, "-x", "c++-header", str(first), "-o", str(draft)]
            subprocess.run(command, check=True)
            os.replace(draft, made)
    return ["-include", str(first)]
