"""Dropout that is the same at every step, and an LSTM with a projection."""

from __future__ import annotations

from typing import Any

from ...rnn.containers import BidirectionalCell
from ...rnn.modifiers import ModifierCell
from ...rnn.recurrent_cell import HybridRecurrentCell

__all__ = ["LSTMPCell", "VariationalDropoutCell"]


class VariationalDropoutCell(ModifierCell):
    """Dropout with the same mask at every step of a sequence (Gal & Ghahramani 2015).

    Parameters
    ----------
    base_cell : HybridRecurrentCell
    drop_inputs, drop_states, drop_outputs : float
        Shares that become 0 while training; of the states, the first one.
    """

    def __init__(
        self,
        base_cell: Any,
        drop_inputs: float = 0.0,
        drop_states: float = 0.0,
        drop_outputs: float = 0.0,
    ) -> None:
        if drop_states and isinstance(base_cell, BidirectionalCell):
            raise AssertionError(
                "VariationalDropoutCell: invalid base_cell, a BidirectionalCell, which has no "
                "single state to drop: expected another (modify the cells inside of it)"
            )
        super().__init__(base_cell)
        self.drop_inputs = drop_inputs
        self.drop_states = drop_states
        self.drop_outputs = drop_outputs
        self._masks: dict[str, Any] = {}

    def _alias(self) -> str:
        return "vardrop"

    def reset(self) -> None:
        super().reset()
        self._masks = {}

    def _masked(self, F: Any, what: str, x: Any, rate: float) -> Any:
        if not rate:
            return x
        if what not in self._masks:
            self._masks[what] = F.Dropout(F.ones_like(x), p=rate)
        return x * self._masks[what]

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        inputs = self._masked(F, "inputs", inputs, self.drop_inputs)
        states = [self._masked(F, "states", states[0], self.drop_states), *states[1:]]
        output, following = self.base_cell(inputs, states)
        return self._masked(F, "outputs", output, self.drop_outputs), following

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """As `RecurrentCell.unroll`; outputs are one array unless states are dropped."""
        if merge_outputs is None and not self.drop_states:
            merge_outputs = True
        return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p_out = {self.drop_outputs}, p_state = {self.drop_states})"


class LSTMPCell(HybridRecurrentCell):
    """A cell of long short-term memory whose output is projected (Sak et al. 2014).

    Parameters
    ----------
    hidden_size : int
        Width of the memory.
    projection_size : int
        Width of the output.
    i2h_weight_initializer, h2h_weight_initializer, h2r_weight_initializer : Initializer, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    input_size : int
        0: the first step decides.
    """

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        h2r_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._projection_size = projection_size
        rows = 4 * hidden_size

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        self.i2h_weight = get("i2h_weight", (rows, input_size), i2h_weight_initializer)
        self.h2h_weight = get("h2h_weight", (rows, projection_size), h2h_weight_initializer)
        projection = (projection_size, hidden_size)
        self.h2r_weight = get("h2r_weight", projection, h2r_weight_initializer)
        self.i2h_bias = get("i2h_bias", (rows,), i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", (rows,), h2h_bias_initializer)

    def _alias(self) -> str:
        return "lstmp"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The output (N, projection_size) and the memory (N, hidden_size)."""
        widths = (self._projection_size, self._hidden_size)
        return [{"shape": (batch_size, width), "__layout__": "NC"} for width in widths]

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        h2r_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> Any:
        rows, name = 4 * self._hidden_size, self._step_name()
        i2h = F.FullyConnected(inputs, i2h_weight, i2h_bias, num_hidden=rows, name=f"{name}i2h")
        h2h = F.FullyConnected(states[0], h2h_weight, h2h_bias, num_hidden=rows, name=f"{name}h2h")
        parts = F.SliceChannel(i2h + h2h, num_outputs=4, name=f"{name}slice")
        i = F.Activation(parts[0], act_type="sigmoid", name=f"{name}i")
        f = F.Activation(parts[1], act_type="sigmoid", name=f"{name}f")
        g = F.Activation(parts[2], act_type="tanh", name=f"{name}c")
        o = F.Activation(parts[3], act_type="sigmoid", name=f"{name}o")
        memory = F.elemwise_add(f * states[1], i * g, name=f"{name}state")
        hidden = F.elemwise_mul(o, F.tanh(memory), name=f"{name}hidden")
        output = F.FullyConnected(
            hidden,
            h2r_weight,
            num_hidden=self._projection_size,
            no_bias=True,
            name=f"{name}out",
        )
        return output, [output, memory]

    def __repr__(self) -> str:
        rows, width = self.i2h_weight.shape or (0, 0)
        projected = (self.h2r_weight.shape or (0,))[0]
        return f"{type(self).__name__}({width or None} -> {rows} -> {projected})"
