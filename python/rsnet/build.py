"""``build_extension``: compiles a library of operators with the compiler at hand.

Everything is compiled as the printed commands say, so a Makefile can do the same. Results are
cached: a library is compiled again if a source, a header that it includes, a flag or the compiler
has changed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .base import MXNetError, MXValueError
from .sysconfig import get_compile_flags

_C = {".c"}
_CPP = {".cc", ".cpp", ".cxx", ".c++", ".C"}
_CUDA = {".cu"}


class CompileError(MXNetError):
    """A compiler's refusal; the message is the command and all that the compiler said."""


def build_extension(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    name: str | None = None,
    *,
    cflags: Sequence[str] = (),
    ldflags: Sequence[str] = (),
    build_dir: str | os.PathLike[str] | None = None,
    verbose: bool = True,
) -> str:
    """Compiles sources in C, C++ or CUDA into a library for :func:`rsnet.load_library`.

    The compilers are those of the environment variables ``CXX``, ``CC`` and ``NVCC``, which may
    begin with another command (``ccache g++``), else ``g++`` (``c++``, ``clang++``), ``cc`` and
    ``nvcc``, the last also in the folders of ``CUDA_HOME``. A library with sources in CUDA is
    linked by ``nvcc``, which adds CUDA's runtime.

    Parameters
    ----------
    sources : path or sequence of paths
        Files whose names end in .c, .cc, .cpp, .cxx or .cu.
    name : str, optional
        The library is ``lib<name>-<hash>.so``. Default: the first source's name.
    cflags, ldflags : sequence of str
        More flags of the compiler and of the linker, after rsnet's own.
    build_dir : path, optional
        Where libraries are kept; default ``RSNET_EXTENSIONS_DIR``, else ``rsnet/extensions`` in the
        user's cache folder.
    verbose : bool
        Print the commands.

    Returns
    -------
    str
        The path of the library.

    Raises
    ------
    rsnet.build.CompileError
        The compiler refuses a source; the message is what it says.
    rsnet.MXNetError
        A source is missing or of another kind, or there is no compiler for it.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.build_extension("absent.cpp")
    Traceback (most recent call last):
        ...
    rsnet.base.MXValueError: build_extension: invalid source 'absent.cpp': expected a ...
    """
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    cflags, ldflags = _flag_list("cflags", cflags), _flag_list("ldflags", ldflags)
    files = [_checked(Path(source)) for source in sources]
    if not files:
        raise MXValueError("build_extension: invalid sources []: expected at least one file")
    stem = name or re.sub(r"\W", "_", files[0].stem)
    if not re.fullmatch(r"[\w.-]+", stem):
        raise MXValueError(
            f"build_extension: invalid name {stem!r}: expected letters, digits, _, - and ."
        )
    folder = Path(build_dir) if build_dir is not None else _default_folder()
    folder.mkdir(parents=True, exist_ok=True)
    compilers = {file: _compiler(file) for file in files}
    last = max(files, key=_language)
    linker = compilers[last]
    runtime = _cuda_runtime(linker) if last.suffix in _CUDA else []
    flags = {file: _flags(file, cflags) for file in files}
    asked = [[*compilers[f], *flags[f], str(f)] for f in files] + [[*linker, *ldflags]]
    versions = {shlex.join(c): _version(c) for c in compilers.values()}
    manifest = folder / f"{stem}-{_hash(json.dumps([asked, versions]).encode())}.json"
    known = _known(manifest)
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        objects, used = [], []
        for i, file in enumerate(files):
            made = Path(scratch) / f"{i}.o"
            wants = made.with_suffix(".d")
            command = [*compilers[file], *flags[file], "-MD", "-MF", str(wants), "-MT", "it",
                       "-c", str(file), "-o", str(made)]  # fmt: skip
            _run(command, verbose)
            objects.append(str(made))
            used += _dependencies(wants)
        contents = {path: _hash(Path(path).read_bytes()) for path in sorted(set(used))}
        mark = _hash(json.dumps([asked, versions, contents]).encode())
        library = folder / f"lib{stem}-{mark}.so"
        linked = Path(scratch) / library.name
        _run([*linker, "-shared", *objects, "-o", str(linked), *runtime, *ldflags], verbose)
        os.replace(linked, library)
        draft = Path(scratch) / "manifest"
        draft.write_text(json.dumps({"library": library.name, "files": contents}))
        os.replace(draft, manifest)
    return str(library)


def _flag_list(name: str, flags: Sequence[str]) -> list[str]:
    """A text would be taken for a list of its letters."""
    if isinstance(flags, str):
        raise MXValueError(
            f"build_extension: invalid {name} {flags!r}: expected a list, {shlex.split(flags)}"
        )
    return list(flags)


def _language(file: Path) -> int:
    """C, C++ and CUDA in the order of what their compilers can link: each also what precedes it."""
    return (file.suffix not in _C) + (file.suffix in _CUDA)


def _checked(file: Path) -> Path:
    if file.suffix not in _C | _CPP | _CUDA:
        kinds = ", ".join(sorted(_C | _CPP | _CUDA))
        raise MXValueError(
            f"build_extension: invalid source '{file}': expected a name that ends in {kinds}"
        )
    if not file.is_file():
        raise MXValueError(f"build_extension: invalid source '{file}': expected a file that exists")
    return file.resolve()


def _default_folder() -> Path:
    given = os.environ.get("RSNET_EXTENSIONS_DIR")
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "rsnet" / "extensions"


def _compiler(file: Path) -> list[str]:
    if file.suffix in _C:
        return _find("CC", ("cc", "gcc", "clang"), "C")
    if file.suffix in _CPP:
        return _find("CXX", ("g++", "c++", "clang++"), "C++")
    homes = [os.environ.get(k) for k in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    return _find("NVCC", ("nvcc", *(f"{home}/bin/nvcc" for home in homes if home)), "CUDA")


def _cuda_runtime(nvcc: list[str]) -> list[str]:
    """Where wheels have CUDA's runtime: nvcc looks in ``lib64`` only."""
    folder = Path(nvcc[-1]).resolve().parent.parent / "lib"
    return [f"-L{folder}"] if (folder / "libcudart_static.a").is_file() else []


def _find(variable: str, names: Sequence[str], language: str) -> list[str]:
    given = os.environ.get(variable, "")
    # The whole may be a path with blanks, or a command with words before the compiler.
    for candidate in [[given], shlex.split(given)] if given.strip() else [[name] for name in names]:
        found = shutil.which(candidate[0])
        if found is not None:
            return [found, *candidate[1:]]
    tried = given or ", ".join(names)
    raise MXNetError(
        f"build_extension: expected a compiler for {language}, and found none of: {tried}; the "
        f"environment variable {variable} chooses one"
    )


def _flags(file: Path, more: Sequence[str]) -> list[str]:
    other: dict[str, list[str]] = {}
    if file.suffix in _C:
        other = {"-std=c++17": ["-std=c99"]}
    elif file.suffix in _CUDA:
        other = {"-fPIC": ["-Xcompiler", "-fPIC"]}
    flags = (other.get(flag, [flag]) for flag in get_compile_flags())
    return [*itertools.chain.from_iterable(flags), *more]


def _version(compiler: list[str]) -> str:
    done = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, errors="replace"
    )
    return done.stdout


def _run(command: list[str], verbose: bool) -> None:
    shown = shlex.join(command)
    if verbose:
        print(shown, flush=True)
    # What a compiler quotes of a source may be in any encoding.
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise CompileError(f"{shown}\n{done.stdout}{done.stderr}")
    if done.stderr and verbose:
        print(done.stderr, end="")


def _dependencies(rules: Path) -> list[str]:
    """The files that a compiler's rule `it: ...` for make names. A dollar is doubled there."""
    text = rules.read_text().replace("\\\n", " ").partition(":")[2].replace("$$", "$")
    return [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:\\.|\S)+", text)]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _known(manifest: Path) -> str | None:
    """The library of a manifest, if everything it was made of is unchanged."""
    try:
        noted = json.loads(manifest.read_text())
        same = all(_hash(Path(f).read_bytes()) == mark for f, mark in noted["files"].items())
        library = manifest.parent / noted["library"]
        return str(library) if same and library.is_file() else None
    except (OSError, ValueError, KeyError):
        return None
