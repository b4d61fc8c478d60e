"""What `mxnet.base` has for programs that call MXNet's library through ctypes.

Values for calls are made; the library itself is not there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NoReturn

from ..base import MXAttributeError, MXNetError
from ..module.arguments import as_list

__all__ = ["_LIB", "_as_list", "c_array", "c_str", "check_call", "mx_uint"]

mx_uint = ctypes.c_uint


def _as_list(obj: Any) -> Any:
    """`obj`, if it is a list or a tuple, or a list of it."""
    return obj if isinstance(obj, (list, tuple)) else as_list(obj)


def c_str(string: str) -> ctypes.c_char_p:
    """A text as C has it."""
    return ctypes.c_char_p(string.encode("utf-8"))


def c_array(ctype: Any, values: Sequence[Any]) -> Any:
    """Values as an array of C."""
    return (ctype * len(values))(*values)


def check_call(ret: int) -> None:
    """Raises an MXNetError if a function of the library returned another number than 0."""
    if ret != 0:
        raise MXNetError(f"a function of a C library returned {ret}, expected 0")


class _NoLibrary:
    """Raises on the use of any function, and names what there is instead."""

    def __getattr__(self, name: str) -> NoReturn:
        raise MXAttributeError(
            f"`_LIB.{name}`: rsnet has no C interface of MXNet's; use the functions of rsnet.nd and "
            "rsnet.sym, or rsnet.load_library for compiled operators"
        )


_LIB = _NoLibrary()
