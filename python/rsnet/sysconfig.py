"""Flags for compiling operators: ``g++ $(python -m rsnet.sysconfig --cflags) -shared my_op.cpp``.

There is nothing to link with: a library gets rsnet's functions when it is loaded.

>>> from rsnet import sysconfig
>>> sysconfig.get_link_flags()
[]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

_USAGE = "usage: python -m rsnet.sysconfig [--cflags] [--ldflags] [--include] [--lib]"


def get_include() -> str:
    """The folder of the headers: ``rsnet/plugin.h`` and the C++ headers over it.

    >>> get_include().endswith("include")
    True
    """
    return str(Path(__file__).parent / "include")


def get_lib() -> str:
    """The folder of the package. (Libraries of operators link with nothing of it.)

    >>> get_lib().endswith("rsnet")
    True
    """
    return str(Path(__file__).parent)


def get_compile_flags() -> list[str]:
    """Flags of the compiler for sources in C++, position-independent code included.

    >>> get_compile_flags()[1:]
    ['-std=c++17', '-fPIC', '-O2']
    """
    return [f"-I{get_include()}", "-std=c++17", "-fPIC", "-O2"]


def get_link_flags() -> list[str]:
    """Flags of the linker: none."""
    return []


def main(arguments: list[str]) -> None:
    """Prints what the options ask for on one line."""
    answers: dict[str, Callable[[], list[str]]] = {
        "--cflags": get_compile_flags, "--ldflags": get_link_flags,
        "--include": lambda: [get_include()], "--lib": lambda: [get_lib()],
    }  # fmt: skip
    if not arguments or any(a not in answers for a in arguments):
        raise SystemExit(_USAGE)
    print(*(flag for argument in arguments for flag in answers[argument]()))


if __name__ == "__main__":
    main(sys.argv[1:])
