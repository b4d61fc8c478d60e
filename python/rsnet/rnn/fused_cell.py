"""Whole recurrent networks as one operator, `RNN`, over one packed array of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import initializer as init
from .. import symbol as sym
from .._packed_rnn import GATES, PackedWeights
from .._warnings import warn
from ..ndarray import NDArray
from ..symbol import Symbol
from .base_cell import BaseRNNCell, RNNParams, time_axis
from .cells import DropoutCell, GRUCell, LSTMCell, RNNCell
from .containers import BidirectionalCell, SequentialRNNCell

__all__ = ["FusedRNNCell"]


class FusedRNNCell(BaseRNNCell):
    """Layers of recurrent cells as one operator: much faster than unrolled cells.

    Parameters
    ----------
    num_hidden, num_layers : int
    mode : {'rnn_relu', 'rnn_tanh', 'lstm', 'gru'}
    bidirectional : bool
    dropout : float
        Share of elements dropped between layers.
    get_next_state : bool
        Return the states after the last step?
    forget_bias : float
        First value of the forget gates' bias.
    prefix : str, optional
        The mode and an underscore if None.
    params : RNNParams, optional

    Raises
    ------
    ValueError
        An unknown mode.

    Examples
    --------
    >>> import rsnet as mx
    >>> cell = mx.rnn.FusedRNNCell(4, num_layers=2, mode="gru")
    >>> outputs, _ = cell.unroll(3, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)
    >>> outputs.infer_shape(data=(3, 2, 5))[1]
    [(3, 2, 4)]
    """

    def __init__(
        self,
        num_hidden: int,
        num_layers: int = 1,
        mode: Any = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        get_next_state: bool = False,
        forget_bias: float = 1.0,
        prefix: str | None = None,
        params: RNNParams | None = None,
    ) -> None:
        if mode not in GATES:
            raise ValueError(f"invalid mode '{mode}': expected one of {', '.join(GATES)}")
        super().__init__(prefix=f"{mode}_" if prefix is None else prefix, params=params)
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._mode = mode
        self._bidirectional = bidirectional
        self._dropout = dropout
        self._get_next_state = get_next_state
        self._forget_bias = forget_bias
        first = init.FusedRNN(None, num_hidden, num_layers, mode, bidirectional, forget_bias)
        self._parameter = self._params.get("parameters", init=first)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """States of shape (layers · directions, batch, hidden): two for LSTM, else one."""
        layers = self._num_layers * len(self._packed.directions)
        count = 2 if self._mode == "lstm" else 1
        shape = (layers, 0, self._num_hidden)
        return [{"shape": shape, "__layout__": "LNC"} for _ in range(count)]

    @property
    def _gate_names(self) -> Sequence[str]:
        return GATES[self._mode]

    # ---- weights -------------------------------------------------------------------------------

    @property
    def _packed(self) -> PackedWeights:
        return PackedWeights(
            self._num_hidden, self._num_layers, self._mode, self._bidirectional, self._prefix
        )

    def unpack_weights(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """Weights with an array for each gate, from the packed one; other entries stay."""
        return self._packed.unpack(args)

    def pack_weights(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """The packed array, from those with an array for each gate."""
        return self._packed.pack(args)

    # ---- running -------------------------------------------------------------------------------

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Raises: the operator computes whole sequences."""
        raise NotImplementedError("a FusedRNNCell has no single steps: expected a call of unroll")

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        """Composes the operator; `layout` "TNC" needs no transposes."""
        self.reset()
        axis = time_axis(layout)
        if not isinstance(inputs, Symbol):
            if len(inputs) != length:
                raise ValueError(f"unroll: inputs has {len(inputs)} steps, expected {length}")
            inputs = sym.Concat(*[sym.expand_dims(i, axis=0) for i in inputs], dim=0)
            axis = 0
        if axis == 1:
            warn("FusedRNNCell transposes sequences of layout NTC: TNC is faster")
            inputs = sym.swapaxes(inputs, dim1=0, dim2=1)
        states = self._first_states(begin_state)
        named = {"state": states[0]}
        if self._mode == "lstm":
            named["state_cell"] = states[1]
        rnn = sym.RNN(
            data=inputs, parameters=self._parameter, state_size=self._num_hidden,
            num_layers=self._num_layers, bidirectional=self._bidirectional, p=self._dropout,
            state_outputs=self._get_next_state, mode=self._mode, name=f"{self._prefix}rnn", **named,
        )  # fmt: skip
        outputs = rnn[0] if self._get_next_state else rnn
        following = [rnn[1 + i] for i in range(len(states))] if self._get_next_state else []
        if merge_outputs is False:
            return list(
                sym.split(outputs, axis=0, num_outputs=length, squeeze_axis=True)
            ), following
        if time_axis(layout) == 1:
            outputs = sym.swapaxes(outputs, dim1=0, dim2=1)
        return outputs, following

    def unfuse(self) -> SequentialRNNCell:
        """The same network of single cells, with the weights that `unpack_weights` gives them."""

        def cell(prefix: str) -> BaseRNNCell:
            if self._mode == "lstm":
                return LSTMCell(self._num_hidden, prefix=prefix, forget_bias=self._forget_bias)
            if self._mode == "gru":
                return GRUCell(self._num_hidden, prefix=prefix)
            activation = self._mode.removeprefix("rnn_")
            return RNNCell(self._num_hidden, activation=activation, prefix=prefix)

        stack = SequentialRNNCell()
        for i in range(self._num_layers):
            if self._bidirectional:
                both = cell(f"{self._prefix}l{i}_"), cell(f"{self._prefix}r{i}_")
                stack.add(BidirectionalCell(*both, output_prefix=f"{self._prefix}bi_l{i}_"))
            else:
                stack.add(cell(f"{self._prefix}l{i}_"))
            if self._dropout > 0 and i != self._num_layers - 1:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{i}_"))
        return stack
