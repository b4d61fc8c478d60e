"""Error classes and small things that every module shares."""

from __future__ import annotations

import builtins
import os
import reprlib
from typing import Any

import numpy as np

from ._mxnet_names import module_getattr

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 80


class Unusable:
    """The base of objects that are an error on any use."""

    __slots__ = ()

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def shown(value: object) -> str:
    """A value as errors show it: its representation in one line, abbreviated.

    An object that is an error on any use raises its own, which says more.
    """
    if isinstance(value, Unusable):
        value._refuse()
    return " ".join(_REPR.repr(value).split())


class MXNetError(RuntimeError):
    """What rsnet raises; the subclasses below also derive from the builtin error of their kind."""


class MXValueError(MXNetError, builtins.ValueError):
    """A value that is not acceptable: wrong shape, range, count or contradiction."""


class MXTypeError(MXNetError, builtins.TypeError):
    """A value of the wrong kind: dtype, or an object where an array is wanted."""


class MXIndexError(MXNetError, builtins.IndexError):
    """An index outside of its axis."""


class MXKeyError(MXNetError, builtins.KeyError):
    """A name that is not there."""

    __str__ = Exception.__str__  # KeyError would show the repr of its message


class MXAttributeError(MXNetError, builtins.AttributeError):
    """An attribute that is not there."""


class MXNotImplementedError(MXNetError, builtins.NotImplementedError):
    """Something an operator or device does not offer."""


class MXMemoryError(MXNetError, builtins.MemoryError):
    """Memory that could not be had."""


class MXOSError(MXNetError, builtins.OSError):
    """A file or buffer that cannot be read or written."""


class InternalError(MXNetError):
    """A broken promise of rsnet itself: please report it."""


class NotImplementedForSymbol(MXNetError):
    """A function that exists for arrays only."""

    def __init__(self, function: Any, alias: str | None, *args: Any) -> None:
        super().__init__()
        self.function = getattr(function, "__name__", str(function))
        self.alias = alias
        self.args = tuple(str(type(a)) for a in args)

    def __str__(self) -> str:
        alias = f" (namely operator '{self.alias}')" if self.alias else ""
        with_args = f" with arguments ({', '.join(self.args)})" if self.args else ""
        return f"Function {self.function}{alias}{with_args} is not implemented for Symbol."


class NotSupportedForSparseNDArray(MXNetError):
    """A function that exists for dense arrays only."""


# The exception class of each kind of error of the core.
ERRORS = {
    "MXNetError": MXNetError,
    "ValueError": MXValueError,
    "TypeError": MXTypeError,
    "IndexError": MXIndexError,
    "KeyError": MXKeyError,
    "NotImplementedError": MXNotImplementedError,
    "InternalError": InternalError,
    "MemoryError": MXMemoryError,
    "OSError": MXOSError,
}


class _NullType(str):
    """The default of parameters not given. A text, or `inspect` refuses signatures with it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_Null"

    def __bool__(self) -> bool:
        return False


_Null = _NullType()

string_types = (str,)
numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)


def py_str(x: bytes) -> str:
    """Bytes as text."""
    return x.decode("utf-8")


def data_dir() -> str:
    """The folder of data sets and models: the environment variable MXNET_HOME, or ``~/.mxnet``."""
    return os.environ.get("MXNET_HOME", data_dir_default())


def data_dir_default() -> str:
    """``~/.mxnet``."""
    return os.path.join(os.path.expanduser("~"), ".mxnet")


__getattr__ = module_getattr(__name__)
