"""Gluon: networks as Python objects, run operator by operator or as planned graphs.

In teaching order: parameters, blocks, layers (`nn`), losses, the trainer, recurrent layers (`rnn`),
data, networks that are ready made (`model_zoo`).
"""

from __future__ import annotations

from . import block, contrib, data, loss, model_zoo, nn, parameter, rnn, trainer, utils
from .block import Block
from .constant import Constant
from .hybrid_block import HybridBlock
from .parameter import DeferredInitializationError, Parameter, tensor_types
from .parameter_dict import ParameterDict
from .symbol_block import SymbolBlock
from .trainer import Trainer

__all__ = [
    "Block",
    "Constant",
    "DeferredInitializationError",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "Trainer",
    "block",
    "contrib",
    "data",
    "loss",
    "model_zoo",
    "nn",
    "parameter",
    "rnn",
    "tensor_types",
    "trainer",
    "utils",
]
