"""Recurrent cells as symbols, unrolled over time; batches of sentences by length; checkpoints.

A cell computes one step, `output, states = cell(input, states)`; `unroll` composes a sequence.
Cells that are made with the same `params` share their weights.
"""

from .._mxnet_names import module_getattr
from .base_cell import BaseRNNCell, RNNParams
from .cells import DropoutCell, GRUCell, LSTMCell, RNNCell
from .checkpoint import (
    do_rnn_checkpoint,
    load_rnn_checkpoint,
    rnn_unroll,
    save_rnn_checkpoint,
)
from .containers import BidirectionalCell, SequentialRNNCell
from .conv_cells import BaseConvRNNCell, ConvGRUCell, ConvLSTMCell, ConvRNNCell
from .fused_cell import FusedRNNCell
from .modifiers import ModifierCell, ResidualCell, ZoneoutCell
from .sentences import BucketSentenceIter, encode_sentences

__all__ = [
    "RNNParams",
    "BaseRNNCell",
    "RNNCell",
    "LSTMCell",
    "GRUCell",
    "FusedRNNCell",
    "SequentialRNNCell",
    "BidirectionalCell",
    "DropoutCell",
    "ModifierCell",
    "ZoneoutCell",
    "ResidualCell",
    "BaseConvRNNCell",
    "ConvRNNCell",
    "ConvLSTMCell",
    "ConvGRUCell",
    "BucketSentenceIter",
    "encode_sentences",
    "rnn_unroll",
    "save_rnn_checkpoint",
    "load_rnn_checkpoint",
    "do_rnn_checkpoint",
]

__getattr__ = module_getattr(__name__)
