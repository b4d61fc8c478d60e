"""``python -m rsnet.docs OUT``: see the package."""

from __future__ import annotations

import argparse
import importlib
import os

from .._operators.library import load_library
from . import write_pages, write_stubs


def main() -> None:
    """Writes what the arguments of the command line ask for."""
    parser = argparse.ArgumentParser(prog="python -m rsnet.docs", description=__doc__)
    parser.add_argument("out", nargs="?", help="folder for the pages")
    parser.add_argument("--load", action="append", default=[], metavar="MODULE",
                        help="import a module that registers operators, or load a library of them "
                             "by its path")  # fmt: skip
    parser.add_argument("--stubs", metavar="DIR", help="folder of the package, for .pyi files")
    given = parser.parse_args()
    for name in given.load:
        if os.path.isfile(name):
            load_library(name)
        else:
            importlib.import_module(name)
    if given.out is None and given.stubs is None:
        parser.error("say where to write: OUT or --stubs DIR")
    if given.out is not None:
        print(f"{write_pages(given.out)} pages in {given.out}")
    if given.stubs is not None:
        print("\n".join(write_stubs(given.stubs, built_in=not given.load)))


if __name__ == "__main__":
    main()
