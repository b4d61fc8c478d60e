"""ONNX under the names of MXNet's `contrib`, which read such files; see `rsnet.onnx`."""

from __future__ import annotations

from typing import Any, NoReturn

from ..._mxnet_names import module_getattr
from ...base import MXNotImplementedError
from ...onnx import export_model

__all__ = ["export_model", "get_model_metadata", "import_model", "import_to_gluon"]

__getattr__ = module_getattr(__name__)


def _refusal(function: str) -> MXNotImplementedError:
    return MXNotImplementedError(
        f"{function}: ONNX is not supported; convert the model by "
        "mx.contrib.onnx.import_model and mx.model.save_checkpoint where MXNet 1.9 is installed, "
        "and load those files by model.load_checkpoint or gluon.SymbolBlock.imports"
    )


def import_model(model_file: Any) -> NoReturn:
    """Is not there.

    Raises
    ------
    NotImplementedError
        In every call.
    """
    raise _refusal("import_model")


def get_model_metadata(model_file: Any) -> NoReturn:
    """Is not there.

    Raises
    ------
    NotImplementedError
        In every call.
    """
    raise _refusal("get_model_metadata")


def import_to_gluon(model_file: Any, ctx: Any = None) -> NoReturn:
    """Is not there.

    Raises
    ------
    NotImplementedError
        In every call.
    """
    raise _refusal("import_to_gluon")
