"""Switches of the shape convention: `np_shape`.

Off (the default, as in old programs) a size of 0 and the shape `()` mean "unknown"; on, they are
real.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import _core
from ._mxnet_names import module_getattr

__all__ = ["is_np_shape", "np_shape", "set_np_shape", "use_np_shape"]


def is_np_shape() -> bool:
    """Whether 0 means an empty axis and `()` a scalar in this thread."""
    return _core.is_np_shape()


def set_np_shape(active: bool) -> bool:
    """Switches the convention in this thread; returns what was set before."""
    return _core.set_np_shape(bool(active))


class np_shape:
    """Scope with the convention switched on or off.

    Examples
    --------
    >>> with np_shape(True):
    ...     is_np_shape()
    True
    """

    def __init__(self, active: bool = True) -> None:
        self._active = active

    def __enter__(self) -> np_shape:
        self._before = set_np_shape(self._active)
        return self

    def __exit__(self, *exc: object) -> None:
        set_np_shape(self._before)


def use_np_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: runs the function with the convention switched on."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with np_shape(True):
            return function(*args, **kwargs)

    return run


__getattr__ = module_getattr(__name__)
