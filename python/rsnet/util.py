"""Switches of the shape convention (`np_shape`), environment variables, numbers of devices.

Off (the default, as in old programs) a size of 0 and the shape `()` mean "unknown"; on, they are
real.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _core
from ._mxnet_names import module_getattr
from .base import shown
from .context import gpu_memory_info, num_gpus

__all__ = [
    "get_gpu_count",
    "get_gpu_memory",
    "getenv",
    "is_np_array",
    "is_np_shape",
    "np_shape",
    "set_module",
    "set_np_shape",
    "setenv",
    "use_np_shape",
]


def is_np_array() -> bool:
    """Whether functions return arrays of MXNet's NumPy interface: never, rsnet does not have it."""
    return False


def is_np_shape() -> bool:
    """Whether 0 means an empty axis and `()` a scalar in this thread."""
    return _core.is_np_shape()


def set_np_shape(active: bool) -> bool:
    """Switches the convention in this thread; returns what was set before."""
    if not isinstance(active, (bool, np.bool_, int, np.integer)):
        raise TypeError(f"set_np_shape: invalid active {shown(active)}: expected True or False")
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

    def __enter__(self) -> None:
        self._before = set_np_shape(self._active)

    def __exit__(self, *exc: object) -> None:
        set_np_shape(self._before)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run within the scope."""

        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            with np_shape(self._active):
                return func(*args, **kwargs)

        return run


def use_np_shape(func: Any) -> Any:
    """Decorator: runs a function, or all methods and properties of a class, with the convention on.

    Examples
    --------
    >>> @use_np_shape
    ... class Model:
    ...     def mode(self):
    ...         return is_np_shape()
    >>> Model().mode()
    True
    """
    if not callable(func):
        raise TypeError(f"use_np_shape: invalid func {shown(func)}: expected a function or a class")
    if not isinstance(func, type):
        return np_shape(True)(func)
    for name, member in list(vars(func).items()):
        if isinstance(member, property):
            get, put, drop = (
                part and np_shape(True)(part) for part in (member.fget, member.fset, member.fdel)
            )
            setattr(func, name, property(get, put, drop))
        elif inspect.isfunction(member):
            setattr(func, name, np_shape(True)(member))
    return func


def get_gpu_count() -> int:
    """Number of GPUs that rsnet can use."""
    return num_gpus()


def get_gpu_memory(gpu_dev_id: int) -> tuple[int, int]:
    """Free and total bytes of a GPU; see `rsnet.context.gpu_memory_info`."""
    return gpu_memory_info(gpu_dev_id)


def getenv(name: str) -> str | None:
    """The environment variable `name`; None if it is not set."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Sets the environment variable `name`; None takes it away."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def set_module(module: str | None) -> Callable[[Any], Any]:
    """Decorator: the function or class says that it is of `module`."""

    def change(function: Any) -> Any:
        if module is not None:
            function.__module__ = module
        return function

    return change


__getattr__ = module_getattr(__name__)
