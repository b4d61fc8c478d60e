"""What `mxnet.base` has for programs that call MXNet's library through ctypes.

The library itself is not there; `rsnet.base` makes values for calls.
"""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

from ..base import MXAttributeError, MXNetError
from ..module.arguments import as_list

__all__ = ["NDArrayHandle", "_LIB", "_as_list", "check_call"]

#: The type of handles of arrays, for annotations and casts; arrays here are objects.
NDArrayHandle = ctypes.c_void_p


def _as_list(obj: Any) -> Any:
    """`obj`, if it is a list or a tuple, or a list of it."""
    return obj if isinstance(obj, (list, tuple)) else as_list(obj)


def check_call(ret: int) -> None:
    """Raises an MXNetError if a function of the library returned another number than 0."""
    if ret != 0:
        raise MXNetError(f"a function of a C library returned {ret}, expected 0")


class _NoLibrary:
    """Raises on the use of any function, and names what there is instead."""

    def __getattr__(self, name: str) -> NoReturn:
        raise MXAttributeError(
            f"`_LIB.{name}`: rsnet has no C interface of MXNet's; use the functions of rsnet.nd "
            "and rsnet.sym, or rsnet.load_library for compiled operators"
        )


_LIB = _NoLibrary()
