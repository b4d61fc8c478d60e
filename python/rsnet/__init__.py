"""rsnet: tensor programs on a threaded dependency engine, with MXNet's Python names.

Names in the order in which one meets them: where things run, arrays, gradients, graphs, operators
of one's own, and what training needs.
"""

from __future__ import annotations

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
from . import op, user_op
from .user_op import user_op_builder
from . import initializer
from . import initializer as init
from . import lr_scheduler, optimizer
from . import callback, io, metric, model, monitor
from . import monitor as mon
from . import test_utils, visualization
from . import visualization as viz

__version__ = _core.__version__
