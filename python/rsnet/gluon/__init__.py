"""Gluon: networks as Python objects, run operator by operator or as planned graphs.

In teaching order: parameters, blocks, layers (`nn`), losses, the trainer, recurrent layers (`rnn`),
data, networks that are ready made (`model_zoo`).
"""

from __future__ import annotations

from . import utils
from . import parameter
from .parameter import (
    Constant,
    DeferredInitializationError,
    Parameter,
    ParameterDict,
    tensor_types,
)
from . import block
from .block import Block, HybridBlock, SymbolBlock
from . import nn
from . import loss
from . import trainer
from .trainer import Trainer
from . import rnn
from . import data
from . import model_zoo
from . import contrib
