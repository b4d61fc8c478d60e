"""rsnet: tensor programs on a threaded dependency engine, with MXNet's Python names.

Names in the order in which one meets them: where things run, arrays, gradients, graphs, operators
of one's own, and what training needs.
"""

from __future__ import annotations

import os as _os
from importlib import import_module as _import_module

from . import _interpreter as _interpreter  # refuses sub-interpreters, before NumPy is imported
from . import _core, base
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
from . import symbol
from . import symbol as sym
from .symbol import Symbol
from . import executor
from .executor import Executor
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
from . import operator
from .operator import Operator, OperatorProperty, OpReq, ResourceRequest

__version__ = _core.__version__

# What training needs, and the other ways to register operators, are imported when first used: the name, or its
# short form, and its module.
_ON_DEMAND = {
    "op": "op",
    "user_op": "user_op",
    "user_op_builder": "user_op:user_op_builder",
    "oneflow": "oneflow",
    "sbp": "sbp",
    "sbp_rules": "sbp_rules",
    "model": "model",
    "initializer": "initializer",
    "init": "initializer",
    "lr_scheduler": "lr_scheduler",
    "optimizer": "optimizer",
    "error": "error",
    "metric": "metric",
    "io": "io",
    "callback": "callback",
    "profiler": "profiler",
    "monitor": "monitor",
    "mon": "monitor",
    "test_utils": "test_utils",
    "visualization": "visualization",
    "viz": "visualization",
}


def __getattr__(attribute_name):
    place = _ON_DEMAND.get(attribute_name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {attribute_name!r}")
    module, _, member = place.partition(":")
    found = _import_module(f"{__name__}.{module}")
    found = getattr(found, member) if member else found
    globals()[attribute_name] = found
    return found


def __dir__():
    return sorted({*globals(), *_ON_DEMAND})


if "MXNET_PROFILER_AUTOSTART" in _os.environ:
    _import_module(f"{__name__}.profiler")
