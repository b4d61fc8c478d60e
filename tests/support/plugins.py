"""Compiled libraries for tests: each source is compiled once, and kept between runs."""

import hashlib
import os
import tempfile
from pathlib import Path

from places import ROOT

import rsnet as mx

SOURCES = ROOT / "tests" / "plugin" / "sources"
_KEPT = Path(tempfile.gettempdir()) / f"rsnet-test-plugins-{os.getuid()}"


def compiled(name, *defines, cflags=(), ldflags=()):
    """The library of a file of `sources`, with these macros defined."""
    flags = [*(f"-D{d}" for d in defines), "-O1", *cflags]
    return mx.build_extension(
        SOURCES / name, cflags=flags, ldflags=ldflags, build_dir=_KEPT, verbose=False
    )


def compiled_text(text, name="case.cpp", cflags=()):
    """The library of a source given as text."""
    folder = _KEPT / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    file = folder / f"{mark}-{name}"
    if not file.exists():
        file.write_text(text)
    return mx.build_extension(file, cflags=["-O0", *cflags], build_dir=_KEPT, verbose=False)
