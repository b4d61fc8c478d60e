"""rsnet: tensor programs on a threaded dependency engine, with MXNet's Python names.

Names are imported in teaching order: devices, arrays, gradients, graphs, user-defined operators,
training.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import _interpreter as _interpreter  # refuses sub-interpreters, before NumPy is imported
from . import _alias as _alias
from . import _core, base
from ._mxnet_names import module_getattr as _module_getattr
from ._on_demand import import_on_demand as _import_on_demand
from .base import MXNetError
from .context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus
from . import ndarray
from . import ndarray as nd
from .ndarray import NDArray
from . import random
from . import random as rnd
from . import autograd
from . import engine
from . import attribute, name, util
from .attribute import AttrScope
from .util import is_np_array, is_np_shape, np_shape, set_np_shape, use_np_shape
from . import symbol
from . import symbol as sym
from .symbol import Symbol
from . import executor
from .executor import Executor

from . import _exceptions
from ._operators.requests import OpReq
from .base import ERRORS as _ERRORS
from .base import _Null
from .ndarray import _indexing
from .symbol.register import create as _create_symbol


def _make_resources(*arguments: _Any) -> _Any:
    """As `_operators.operands.make`, which is loaded as soon as an operator declares a request."""
    from ._operators.operands import make

    return make(*arguments)


# What the binding uses of the package; it imports nothing itself.
_core.bind_python(
    {
        "errors": _ERRORS,
        "op_req": OpReq,
        "make_resources": _make_resources,
        "context": Context,
        "null": _Null,
        "twin": _exceptions.twin,
        "detach": _exceptions.detach,
        "is_of_a_signal": _exceptions.is_of_a_signal,
        "getitem": _indexing.getitem,
        "setitem": _indexing.setitem,
        "symbol": Symbol,
        "create_symbol": _create_symbol,
    }
)

__version__ = _core.__version__
#: Version of MXNet whose interface this is.
mxnet_version = "1.9.1"

if _TYPE_CHECKING:  # imported at first use, as the rest of `_ON_DEMAND`
    from . import operator, parameter
    from .operator import Operator, OperatorProperty, ResourceRequest
    from .parameter import (
        DType,
        FloatTuple,
        OptionalTuple,
        Parameter,
        Shape,
        Tuple,
        double,
        field,
        int32,
        int64,
        uint32,
        uint64,
    )

_PARAMETER = """
    DType FloatTuple OptionalTuple Parameter Shape Tuple double field int32 int64 uint32 uint64
""".split()
_OPERATOR = "Operator OperatorProperty ResourceRequest".split()

# Modules for training and for registering operators are imported at first use: the name or its
# short form, and its module.
_ON_DEMAND = {
    "operator": "operator",
    "parameter": "parameter",
    **{member: f"operator:{member}" for member in _OPERATOR},
    **{member: f"parameter:{member}" for member in _PARAMETER},
    "as_mxnet": "as_mxnet",
    "op": "op",
    "user_op": "user_op",
    "user_op_builder": "oneflow.builder:user_op_builder",
    "oneflow": "oneflow",
    "load_library": "_operators.library:load_library",
    "library": "library",
    "sysconfig": "sysconfig",
    "build": "build",
    "build_extension": "build:build_extension",
    "cuda": "cuda",
    "sbp": "sbp",
    "sbp_rules": "sbp_rules",
    "model": "model",
    "executor_manager": "executor_manager",
    "contrib": "contrib",
    "onnx": "onnx",
    "misc": "misc",
    "symbol_doc": "symbol_doc",
    "ndarray_doc": "ndarray_doc",
    "notebook": "notebook",
    "registry": "registry",
    "runtime": "runtime",
    "libinfo": "libinfo",
    "log": "log",
    "rtc": "rtc",
    "module": "module",
    "mod": "module",
    "FeedForward": "module:FeedForward",
    "rnn": "rnn",
    "gluon": "gluon",
    "kvstore": "kvstore",
    "kv": "kvstore",
    "initializer": "initializer",
    "init": "initializer",
    "lr_scheduler": "lr_scheduler",
    "optimizer": "optimizer",
    "error": "error",
    "metric": "metric",
    "io": "io",
    "recordio": "recordio",
    "image": "image",
    "img": "image",
    "callback": "callback",
    "profiler": "profiler",
    "monitor": "monitor",
    "mon": "monitor",
    "test_utils": "test_utils",
    "visualization": "visualization",
    "viz": "visualization",
}

#: What ``from rsnet import *`` gives: modules for training are not among it.
__all__ = [
    *(known for known in globals() if not known.startswith("_") and known != "annotations"),
    *("operator", "parameter", *_OPERATOR, *_PARAMETER),
]

_missing = _module_getattr(__name__)


def __getattr__(attribute_name: str) -> object:
    place = _ON_DEMAND.get(attribute_name)
    if place is None:
        return _missing(attribute_name)
    module, _, member = place.partition(":")
    found = _import_on_demand(f"{__name__}.{module}")
    found = getattr(found, member) if member else found
    globals()[attribute_name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})


_alias.install_finders()
if "MXNET_PROFILER_AUTOSTART" in _os.environ:
    _import_on_demand(f"{__name__}.profiler")
