"""Element types by OneFlow's names."""

from __future__ import annotations

from typing import Any

import numpy as np


class DType:
    """An element type; NumPy takes it wherever it takes a dtype."""

    __slots__ = ("numpy_name", "dtype")

    def __init__(self, numpy_name: str) -> None:
        self.numpy_name = numpy_name
        self.dtype = np.dtype(numpy_name)

    def __repr__(self) -> str:
        return f"oneflow.{self.numpy_name}"

    def __eq__(self, other: object) -> bool:
        name: Any = getattr(other, "numpy_name", other)
        try:
            return bool(np.dtype(name) == self.dtype)
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.dtype)


float16 = DType("float16")
float32 = float = DType("float32")
float64 = double = DType("float64")
int8 = DType("int8")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
char = int8
