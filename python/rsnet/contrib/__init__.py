"""Extras of MXNet: `mx.contrib.nd` and `mx.contrib.sym`, and a callback for TensorBoard."""

from __future__ import annotations

import importlib
from typing import Any

from ..ndarray import contrib as ndarray
from ..symbol import contrib as symbol

nd, sym = ndarray, symbol

__all__ = ["nd", "ndarray", "sym", "symbol", "tensorboard"]


def __getattr__(name: str) -> Any:
    if name == "tensorboard":  # brings in the writer's package
        return importlib.import_module(f"{__name__}.tensorboard")
    raise AttributeError(f"`mx.contrib.{name}` is not in rsnet yet", name=name)
