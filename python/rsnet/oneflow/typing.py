"""Annotations of jobs: ``typing.Numpy.Placeholder((2, 3), dtype=flow.float32)`` and ``->
typing.Numpy``.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Placeholder:
    """Shape and element type that an argument must have exactly."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, many: bool) -> None:
        self.shape = tuple(int(d) for d in shape)
        self.dtype = np.dtype(getattr(dtype, "numpy_name", dtype))
        self.many = many

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an argument may have this shape."""
        if not self.many:
            return shape == self.shape
        return len(shape) == len(self.shape) and all(a <= b for a, b in zip(shape, self.shape))

    def __repr__(self) -> str:
        return f"Placeholder({self.shape}, {self.dtype})"


class Numpy:
    """A NumPy array that holds the whole batch; as a return annotation: wait and give NumPy."""

    @staticmethod
    def Placeholder(shape: tuple[int, ...], dtype: Any = "float32") -> Any:
        return Placeholder(shape, dtype, many=False)


class ListNumpy:
    """One NumPy array a device; shapes are upper bounds."""

    @staticmethod
    def Placeholder(shape: tuple[int, ...], dtype: Any = "float32") -> Any:
        return Placeholder(shape, dtype, many=True)


class _Of:
    """Base of the annotations that are written ``Name[T]``."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __class_getitem__(cls, inner: Any) -> _Of:
        return cls(inner)


class Callback(_Of):
    """``Callback[T]``: the job returns a function that takes a handler of the result."""


class Bundle(_Of):
    """``Bundle[T]``: any nesting of T."""
