"""Programs written for MXNet, run on rsnet: ``import mxnet`` means rsnet.

Call ``rsnet.as_mxnet()`` before the first import of `mxnet`, or start a program unchanged with
``python -m rsnet.as_mxnet script.py args`` or ``python -m rsnet.as_mxnet -m package.module args``.

>>> import rsnet
>>> mx = rsnet.as_mxnet()
>>> from mxnet.io import DataIter
>>> DataIter is rsnet.io.DataIter
True
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

_USAGE = "usage: python -m rsnet.as_mxnet (script.py | -m module) [args ...]"


class _CallableModule(ModuleType):
    """The type of this module: `rsnet.as_mxnet` is a module and a function."""

    def __call__(self) -> ModuleType:
        """Makes ``import mxnet`` mean rsnet in this process; returns the package."""
        from ._alias import install

        return install()


def main(arguments: list[str]) -> None:
    """Runs the script or module that `arguments` name, as ``python`` would."""
    as_module = arguments[:1] == ["-m"]
    arguments = arguments[1:] if as_module else arguments
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit(_USAGE)
    from rsnet._alias import install_everywhere

    install_everywhere()
    sys.argv = arguments
    if as_module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    script = Path(arguments[0])
    if not script.exists():
        raise SystemExit(f"invalid script '{script}': expected a file that exists")
    sys.path[0] = str(script.resolve().parent)  # `python -m` has put the working directory there
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
else:
    sys.modules[__name__].__class__ = _CallableModule
