"""Cells of one layer: simple recurrent networks, LSTM, GRU, dropout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from .. import initializer as init
from .. import symbol as sym
from .._packed_rnn import GATES
from .._recurrent_steps import gru_step, lstm_step
from ..symbol import Symbol
from .base_cell import BaseRNNCell, RNNParams

__all__ = ["DenseCell", "DropoutCell", "GRUCell", "LSTMCell", "RNNCell"]

TANH = partial(sym.Activation, act_type="tanh")


class DenseCell(BaseRNNCell):
    """Base of the cells that multiply input and state by matrices."""

    def __init__(
        self, num_hidden: int, prefix: str, params: RNNParams | None, **i2h_bias: Any
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._num_hidden = num_hidden
        self._iW = self._params.get("i2h_weight")
        self._iB = self._params.get("i2h_bias", **i2h_bias)
        self._hW = self._params.get("h2h_weight")
        self._hB = self._params.get("h2h_bias")

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """One state of shape (batch, hidden)."""
        return [{"shape": (0, self._num_hidden), "__layout__": "NC"}]

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Any, Any]:
        """The products of input and state with their matrices, all gates side by side."""
        width = self._num_hidden * max(1, len(self._gate_names))
        i2h = sym.FullyConnected(inputs, self._iW, self._iB, num_hidden=width, name=f"{name}i2h")
        h2h = sym.FullyConnected(state, self._hW, self._hB, num_hidden=width, name=f"{name}h2h")
        return i2h, h2h


class RNNCell(DenseCell):
    """A simple recurrent cell: h' = act(W x + b + R h + c).

    Parameters
    ----------
    num_hidden : int
        Width of the state.
    activation : str or callable
        'tanh', 'relu' and so on, or a function of a symbol.
    prefix : str
    params : RNNParams, optional

    Examples
    --------
    >>> import rsnet as mx
    >>> outputs, states = mx.rnn.RNNCell(4).unroll(3, mx.sym.Variable("data"), merge_outputs=True)
    >>> outputs.infer_shape(data=(2, 3, 5))[1]
    [(2, 3, 4)]
    """

    def __init__(
        self,
        num_hidden: int,
        activation: Any = "tanh",
        prefix: str = "rnn_",
        params: RNNParams | None = None,
    ) -> None:
        super().__init__(num_hidden, prefix, params)
        self._activation = activation

    @property
    def _gate_names(self) -> Sequence[str]:
        return GATES["rnn_tanh"]

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], name)
        output = self._get_activation(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


class LSTMCell(DenseCell):
    """A cell of long short-term memory (Hochreiter & Schmidhuber 1997), without peepholes.

    i, f, o = σ(...), g = tanh(...); c' = f·c + i·g; h' = o·tanh(c'). The states are h and c.

    Parameters
    ----------
    num_hidden : int
        Width of the states.
    prefix : str
    params : RNNParams, optional
    forget_bias : float
        First value of the forget gate's bias (Jozefowicz et al. 2015).
    """

    def __init__(
        self,
        num_hidden: int,
        prefix: str = "lstm_",
        params: RNNParams | None = None,
        forget_bias: float = 1.0,
    ) -> None:
        super().__init__(num_hidden, prefix, params, init=init.LSTMBias(forget_bias=forget_bias))

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Two states of shape (batch, hidden): output and memory."""
        return super().state_info * 2

    @property
    def _gate_names(self) -> Sequence[str]:
        return GATES["lstm"]

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], name)
        gates = sym.SliceChannel(i2h + h2h, num_outputs=4, name=f"{name}slice")
        return lstm_step(sym, gates, states[1], TANH, name)


class GRUCell(DenseCell):
    """A gated recurrent unit (Cho et al. 2014), as cuDNN computes it.

    r, z = σ(...); n = tanh(W x + b + r·(R h + c)); h' = (1 - z)·n + z·h.

    Parameters
    ----------
    num_hidden : int
        Width of the state.
    prefix : str
    params : RNNParams, optional
    """

    def __init__(
        self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None
    ) -> None:
        super().__init__(num_hidden, prefix, params)

    @property
    def _gate_names(self) -> Sequence[str]:
        return GATES["gru"]

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], name)
        of_input = sym.SliceChannel(i2h, num_outputs=3, name=f"{name}i2h_slice")
        of_state = sym.SliceChannel(h2h, num_outputs=3, name=f"{name}h2h_slice")
        return gru_step(sym, of_input, of_state, states[0], TANH, name)


class DropoutCell(BaseRNNCell):
    """Drops elements of its input; it has no state.

    Parameters
    ----------
    dropout : float
        Share of elements that are set to 0.
    prefix : str
    params : RNNParams, optional
    """

    def __init__(
        self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None
    ) -> None:
        super().__init__(prefix, params)
        if not isinstance(dropout, (int, float)):
            raise AssertionError(f"invalid dropout {dropout!r}: expected a number")
        self.dropout = dropout

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """No states."""
        return []

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        if self.dropout > 0:
            inputs = sym.Dropout(inputs, p=self.dropout)
        return inputs, list(states)

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        """Drops elements of all steps at once where they are one symbol."""
        self.reset()
        if isinstance(inputs, Symbol) and merge_outputs is not False:
            return self(inputs, [])
        return super().unroll(length, inputs, begin_state or [], layout, merge_outputs)
