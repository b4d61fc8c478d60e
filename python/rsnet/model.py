"""The old training interface, and checkpoints, under the name of their module in MXNet."""

from __future__ import annotations

from ._checkpoint import load_checkpoint, load_params, save_checkpoint
from ._mxnet_names import module_getattr
from .callback import BatchEndParam
from .module import FeedForward

__all__ = ["BatchEndParam", "FeedForward", "load_checkpoint", "load_params", "save_checkpoint"]

__getattr__ = module_getattr(__name__)
