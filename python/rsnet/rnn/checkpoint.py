"""Checkpoints of recurrent networks: files hold the weights by gate, independent of the cells that
use them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import symbol as sym
from .._checkpoint import after_epochs, load_checkpoint, save_checkpoint
from .._warnings import warn
from ..ndarray import NDArray
from .base_cell import BaseRNNCell

__all__ = ["do_rnn_checkpoint", "load_rnn_checkpoint", "rnn_unroll", "save_rnn_checkpoint"]


def _cells(cells: Any) -> list[BaseRNNCell]:
    return list(cells) if isinstance(cells, (list, tuple)) else [cells]


def save_rnn_checkpoint(
    cells: Any,
    prefix: str,
    epoch: int,
    symbol: Any,
    arg_params: dict[str, NDArray],
    aux_params: dict[str, NDArray],
) -> None:
    """As `model.save_checkpoint`, with the weights of the cells unpacked.

    Parameters
    ----------
    cells : BaseRNNCell or list of BaseRNNCell
        The cells of the symbol.
    """
    for cell in _cells(cells):
        arg_params = cell.unpack_weights(arg_params)
    save_checkpoint(prefix, epoch, symbol, arg_params, aux_params)


def load_rnn_checkpoint(
    cells: Any, prefix: str, epoch: int
) -> tuple[Any, dict[str, NDArray], dict[str, NDArray]]:
    """As `model.load_checkpoint`, with the weights packed as the cells use them."""
    symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
    for cell in _cells(cells):
        arg_params = cell.pack_weights(arg_params)
    return symbol, arg_params, aux_params


def do_rnn_checkpoint(cells: Any, prefix: str, period: int = 1) -> Callable[..., None]:
    """Epoch-end callback that saves every `period` epochs by `save_rnn_checkpoint`."""
    return after_epochs(period, functools.partial(save_rnn_checkpoint, cells, prefix))


def rnn_unroll(
    cell: BaseRNNCell,
    length: int,
    inputs: Any = None,
    begin_state: Any = None,
    input_prefix: str = "",
    layout: str = "NTC",
) -> tuple[Any, list[Any]]:
    """Deprecated form of `cell.unroll`; without inputs, one variable per step."""
    warn("rnn_unroll is deprecated. Please call cell.unroll directly.", DeprecationWarning)
    if inputs is None:
        inputs = [sym.Variable(f"{input_prefix}t{i}_data") for i in range(length)]
    return cell.unroll(length, inputs, begin_state=begin_state, layout=layout)
