"""rsnet: tensor programs on a threaded dependency engine, with MXNet's Python names."""

from __future__ import annotations

from . import _core, base
from .base import MXNetError
from .context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus
from . import autograd
from . import engine
from . import ndarray
from . import ndarray as nd
from . import random
from . import random as rnd
from . import attribute, name, util
from .attribute import AttrScope
from .executor import Executor
from . import symbol
from . import symbol as sym
from .symbol import Symbol
from . import model, monitor, visualization
from . import monitor as mon, visualization as viz

__version__ = _core.__version__
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
