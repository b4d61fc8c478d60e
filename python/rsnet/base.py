"""Error classes and small things that every module shares."""

from __future__ import annotations

import builtins
import ctypes
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _core
from ._mxnet_names import module_getattr

#: Characters of a value in an error.
_SHOWN = 80


class _Repr(reprlib.Repr):
    """Representations of values in errors; none of them fails."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxlong, self.maxother = 3, *[_SHOWN] * 3

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python refuses to write so many digits
            return f"<int of {x.bit_length()} bits>"


_REPR = _Repr()


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
    line = " ".join(_REPR.repr(value).split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def numpy_dtype(value: Any, what: str = "dtype", place: str = "") -> np.dtype[Any]:
    """What NumPy makes of an element type, however it is written.

    Raises
    ------
    TypeError
        It is none; the message begins with `place` and names the argument, `what`.
    """
    try:
        found: np.dtype[Any] = np.dtype(value)
        return found
    except Exception as error:  # NumPy has several for it, and the value may have its own
        expected = _core.known_dtypes()
        raise TypeError(f"{place}invalid {what} {shown(value)}: expected {expected}") from error


def listed(value: Any, what: str, expected: str) -> list[Any]:
    """The items of a list or the like.

    Raises
    ------
    TypeError
        It is something else, or a text; the message names the argument, `what`.
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"invalid {what} {shown(value)}: expected {expected}")
    return list(value)


_LIMITS = "bytes, as an integer of at least 0 or a string such as '2GB' or '2GiB'"


def limit_bytes(limit: int | str | None) -> int | None:
    """Bytes of `memory_limit`: an integer, `"2GB"` (2e9) or `"2GiB"` (2**31)."""
    if limit is None:
        return None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?\s*", limit)
        if not match:
            raise ValueError(f"invalid memory_limit {shown(limit)}: expected {_LIMITS}")
        base = 1024 if match[3] else 1000
        return int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))
    if isinstance(limit, bool) or not isinstance(limit, (int, np.integer)):
        raise TypeError(f"invalid memory_limit {shown(limit)}: expected {_LIMITS}")
    if limit < 0:
        raise ValueError(f"invalid memory_limit {limit}: expected {_LIMITS}")
    return int(limit)


def refuse_keywords(function: str, given: Mapping[str, object], known: str) -> None:
    """Refuses keywords that a function has no use for; `known` lists those that it has.

    Functions of MXNet take a `name` and attributes such as `__layout__`, too.
    """
    for key in given:
        if key != "name" and not key.startswith("__"):
            raise TypeError(f"{function}() got an unexpected keyword '{key}' (there are {known})")


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


class MXFileNotFoundError(MXOSError, builtins.FileNotFoundError):
    """A file that is not there."""


def file_error(action: str, path: Any, error: Exception) -> MXNetError:
    """What to raise for a file that `action` ("cannot read") failed on: an `MXNetError` that is an
    `OSError` too, if that was the reason.
    """
    reason = getattr(error, "strerror", None) or error
    message = f"{action} {os.fspath(path)!r}: {reason}"
    if not isinstance(error, builtins.OSError):
        return MXNetError(message)
    missing = isinstance(error, builtins.FileNotFoundError)
    found = (MXFileNotFoundError if missing else MXOSError)(message)
    found.errno = error.errno
    return found


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


class ForeignName:
    """An attribute that a class lacks, and that PyTorch has: asking for it says what it is here.

    Unlike a `__getattr__`, it costs nothing where other attributes are asked for.
    """

    __slots__ = ("name", "place")

    def __init__(self, place: str, name: str) -> None:
        self.place, self.name = place, name

    def __get__(self, owner: object, kind: type | None = None) -> ForeignName:
        if owner is None:
            return self
        from ._pytorch_names import hint  # for errors only: it would add to the time of importing

        text = f"'{type(owner).__name__}' object has no attribute '{self.name}'"
        raise AttributeError(text + hint(self.place, self.name), name=self.name)


def _listed(self: object) -> list[str]:
    """`dir` without names of PyTorch, which completion would propose."""
    kind, own = type(self), getattr(self, "__dict__", ())
    names = object.__dir__(self)
    return [n for n in names if n in own or not isinstance(getattr(kind, n, None), ForeignName)]


def add_foreign_names(cls: type, place: str, names: Iterable[str]) -> None:
    """Lets a class say what these names of PyTorch are here, unless it has them."""
    for name in names:
        if not hasattr(cls, name):
            setattr(cls, name, ForeignName(place, name))
    setattr(cls, "__dir__", _listed)  # noqa: B010


class _NullType(str):
    """The default of parameters not given. A text, or `inspect` refuses signatures with it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_Null"

    def __bool__(self) -> bool:
        return False


_Null = _NullType()

string_types = (str,)
basestring = str
long = int
numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)

#: The dtype of arrays unless something else is said.
mx_real_t = np.float32
mx_uint = ctypes.c_uint
mx_int = ctypes.c_int
mx_int64 = ctypes.c_int64
mx_float = ctypes.c_float


def py_str(x: bytes) -> str:
    """Bytes as text."""
    return x.decode("utf-8")


def c_str(string: str) -> ctypes.c_char_p:
    """Text as a C string."""
    return ctypes.c_char_p(string.encode("utf-8"))


def c_array(ctype: Any, values: Any) -> Any:
    """Values as a C array of `ctype`."""
    return (ctype * len(values))(*values)


def c_str_array(strings: Any) -> Any:
    """Texts as a C array of C strings."""
    return c_array(ctypes.c_char_p, [text.encode("utf-8") for text in strings])


def ctypes2buffer(cptr: Any, length: int) -> bytearray:
    """A copy of `length` bytes that a pointer to `ctypes.c_char` points to."""
    if not isinstance(cptr, ctypes.POINTER(ctypes.c_char)):
        expected = "a pointer to ctypes.c_char"
        raise TypeError(f"ctypes2buffer: invalid cptr {shown(cptr)}: expected {expected}")
    return bytearray(ctypes.string_at(cptr, length))


def build_param_doc(
    arg_names: Iterable[str],
    arg_types: Iterable[str],
    arg_descs: Iterable[str],
    remove_dup: bool = True,
) -> str:
    r"""The section "Parameters" of a docstring; `remove_dup` leaves out names that were there.

    Examples
    --------
    >>> build_param_doc(["lr", "wd"], ["float", "float"], ["The learning rate.", ""])
    'Parameters\n----------\nlr : float\n    The learning rate.\nwd : float\n'
    """
    rows: list[str] = []
    seen: set[str] = set()
    for name, kind, text in zip(arg_names, arg_types, arg_descs, strict=False):
        if remove_dup and name in seen:
            continue
        seen.add(name)
        rows.append(f"{name} : {kind}" + (f"\n    {text}" if text else ""))
    return "Parameters\n----------\n" + "\n".join(rows) + "\n"


def with_metaclass(meta: type, *bases: type) -> Any:
    """A base whose subclasses have the type `meta` and the given bases."""
    return meta("with_metaclass", bases, {})


class classproperty:
    """Decorator: a property of the class itself, read through it or its instances.

    Examples
    --------
    >>> class A:
    ...     @classproperty
    ...     def label(cls):
    ...         return cls.__name__.lower()
    >>> A.label, A().label
    ('a', 'a')
    """

    def __init__(self, get: Any) -> None:
        self._get = get
        self.__doc__ = get.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self._get(type(instance) if owner is None else owner)


def data_dir() -> str:
    """The folder of data sets and models: the environment variable MXNET_HOME, or ``~/.mxnet``."""
    return os.environ.get("MXNET_HOME", data_dir_default())


def data_dir_default() -> str:
    """``~/.mxnet``."""
    return os.path.join(os.path.expanduser("~"), ".mxnet")


__getattr__ = module_getattr(__name__)
