"""ONNX, which rsnet neither reads nor writes: MXNet's functions for it say what to do instead.

Programs import them at their top, and call them where a user asks for such a file.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .._mxnet_names import module_getattr
from ..base import MXNotImplementedError

__all__ = ["export_model", "get_operator_support"]

__getattr__ = module_getattr(__name__)


def export_model(*args: Any, **kwargs: Any) -> NoReturn:
    """Is not there.

    Raises
    ------
    NotImplementedError
        In every call.
    """
    raise MXNotImplementedError(
        "export_model: ONNX is not supported; write MXNet's files by HybridBlock.export or "
        "model.save_checkpoint, and convert them by mx.onnx.export_model where MXNet 1.9 is "
        "installed"
    )


def get_operator_support(opset_version: int | None = None) -> NoReturn:
    """Is not there.

    Raises
    ------
    NotImplementedError
        In every call.
    """
    raise MXNotImplementedError(
        "get_operator_support: ONNX is not supported; ask "
        "mx.onnx.get_operator_support where MXNet 1.9 is installed"
    )
