"""Where the compiled core and its headers are."""

from __future__ import annotations

from . import _core, mxnet_version
from .sysconfig import get_include

__all__ = ["find_include_path", "find_lib_path"]

#: Version of MXNet whose interface this is.
__version__ = mxnet_version


def find_lib_path(prefix: str = "rsnet") -> list[str]:
    """The path of the compiled core, in a list.

    >>> [path] = find_lib_path()
    >>> path.endswith((".so", ".pyd"))
    True
    """
    return [str(_core.__file__)]


def find_include_path() -> str:
    """The folder of the headers for operators in C++."""
    return get_include()
