"""OneFlow's names for what its tutorials on user operators use: ``import rsnet.oneflow as flow``.

A thin layer: jobs run at once on NDArrays, operators are those of ``rsnet.user_op``.
"""

from __future__ import annotations

from .. import sbp
from . import builtins as _builtins  # noqa: F401  (defines the operators of the tutorials)
from . import config, optimizer, sysconfig, typing
from .builder import user_op_builder
from .dtypes import char, double, float, float16, float32, float64, int8, int32, int64, uint8
from .job import global_function, watch_diff
from .variable import (
    clear_default_session,
    constant_initializer,
    get_variable,
    ones_initializer,
    zeros_initializer,
)

__all__ = [
    "user_op_builder", "config", "sbp", "optimizer", "sysconfig", "typing", "global_function",
    "watch_diff", "get_variable", "constant_initializer", "zeros_initializer", "ones_initializer",
    "clear_default_session", "float16", "float32", "float64", "double", "float", "int8", "int32",
    "int64", "uint8", "char",
]  # fmt: skip
