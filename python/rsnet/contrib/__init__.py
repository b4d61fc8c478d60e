"""Extras of MXNet: operators (`nd`, `sym`), quantisation, text, older names of `autograd`,
iterators, a callback for TensorBoard, mixed precision (`amp`), gradients of reduced variance
(`svrg_optimization`), and `onnx`, whose functions are not there.
"""

from __future__ import annotations

from typing import Any

from .._mxnet_names import module_getattr
from .._on_demand import import_on_demand
from ..ndarray import contrib as ndarray
from ..symbol import contrib as symbol

nd, sym = ndarray, symbol

_missing = module_getattr(__name__)

#: Modules that are imported when a program asks for them.
_ON_DEMAND = (
    "amp",
    "autograd",
    "io",
    "onnx",
    "quantization",
    "svrg_optimization",
    "tensorboard",
    "text",
)

__all__ = [
    "amp",
    "autograd",
    "io",
    "nd",
    "ndarray",
    "onnx",
    "quantization",
    "svrg_optimization",
    "sym",
    "symbol",
    "tensorboard",
    "text",
]


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return import_on_demand(f"{__name__}.{name}")
    return _missing(name)
