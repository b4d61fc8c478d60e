"""Cells of one layer: simple recurrent networks, LSTM, GRU."""

from __future__ import annotations

from typing import Any

from .recurrent_cell import HybridRecurrentCell

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]


class DenseCell(HybridRecurrentCell):
    """Base of the cells that multiply input and state by matrices.

    Parameters
    ----------
    hidden_size : int
        Width of the states.
    i2h_weight_initializer, h2h_weight_initializer : Initializer or str, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    input_size : int
        0: the first step decides.
    """

    _gates = 1
    _num_states = 1

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._input_size = input_size
        rows = self._gates * hidden_size

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        self.i2h_weight = get("i2h_weight", (rows, input_size), i2h_weight_initializer)
        self.h2h_weight = get("h2h_weight", (rows, hidden_size), h2h_weight_initializer)
        self.i2h_bias = get("i2h_bias", (rows,), i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", (rows,), h2h_bias_initializer)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """States of shape (N, hidden_size)."""
        info = {"shape": (batch_size, self._hidden_size), "__layout__": "NC"}
        return [dict(info) for _ in range(self._num_states)]

    def _products(self, F: Any, inputs: Any, state: Any, weights: tuple[Any, ...]) -> Any:
        """The products of input and state with their matrices, all gates side by side."""
        i2h_weight, h2h_weight, i2h_bias, h2h_bias = weights
        rows, name = self._gates * self._hidden_size, self._step_name()
        i2h = F.FullyConnected(inputs, i2h_weight, i2h_bias, num_hidden=rows, name=f"{name}i2h")
        h2h = F.FullyConnected(state, h2h_weight, h2h_bias, num_hidden=rows, name=f"{name}h2h")
        return i2h, h2h, name

    def __repr__(self) -> str:
        rows, width = self.i2h_weight.shape
        return f"{type(self).__name__}({width or None} -> {rows}{self._shown()})"

    def _shown(self) -> str:
        return ""


class RNNCell(DenseCell):
    """A simple recurrent cell: h' = act(W x + b + R h + c).

    Parameters
    ----------
    hidden_size : int
    activation : str, Block or callable
    i2h_weight_initializer, h2h_weight_initializer : Initializer or str, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    input_size : int

    Examples
    --------
    >>> import rsnet as mx
    >>> cell = mx.gluon.rnn.RNNCell(4)
    >>> cell.initialize()
    >>> outputs, states = cell.unroll(3, mx.nd.ones((2, 3, 5)), merge_outputs=True)
    >>> outputs.shape, states[0].shape
    ((2, 3, 4), (2, 4))
    """

    def __init__(
        self,
        hidden_size: int,
        activation: Any = "tanh",
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
        )
        self._activation = activation

    def _alias(self) -> str:
        return "rnn"

    def _shown(self) -> str:
        return f", {self._activation}"

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> Any:
        weights = (i2h_weight, h2h_weight, i2h_bias, h2h_bias)
        i2h, h2h, name = self._products(F, inputs, states[0], weights)
        total = F.elemwise_add(i2h, h2h, name=f"{name}plus0")
        output = self._get_activation(F, total, self._activation, name=f"{name}out")
        return output, [output]


class LSTMCell(DenseCell):
    """A cell of long short-term memory (Hochreiter & Schmidhuber 1997), without peepholes.

    i, f, o = σ(...), g = tanh(...); c' = f·c + i·g; h' = o·tanh(c'). The states are h and c.

    Parameters
    ----------
    hidden_size : int
    i2h_weight_initializer, h2h_weight_initializer : Initializer or str, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    input_size : int
    activation, recurrent_activation : str, Block or callable
        Instead of tanh and σ.
    """

    _gates = 4
    _num_states = 2

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
    ) -> None:
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
        )
        self._activation = activation
        self._recurrent_activation = recurrent_activation

    def _alias(self) -> str:
        return "lstm"

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> Any:
        weights = (i2h_weight, h2h_weight, i2h_bias, h2h_bias)
        i2h, h2h, name = self._products(F, inputs, states[0], weights)
        gates = F.elemwise_add(i2h, h2h, name=f"{name}plus0")
        parts = F.SliceChannel(gates, num_outputs=4, name=f"{name}slice")
        i = self._get_activation(F, parts[0], self._recurrent_activation, name=f"{name}i")
        f = self._get_activation(F, parts[1], self._recurrent_activation, name=f"{name}f")
        g = self._get_activation(F, parts[2], self._activation, name=f"{name}c")
        o = self._get_activation(F, parts[3], self._recurrent_activation, name=f"{name}o")
        kept = F.elemwise_mul(f, states[1], name=f"{name}mul0")
        new = F.elemwise_mul(i, g, name=f"{name}mul1")
        memory = F.elemwise_add(kept, new, name=f"{name}state")
        shown = self._get_activation(F, memory, self._activation, name=f"{name}activation0")
        output = F.elemwise_mul(o, shown, name=f"{name}out")
        return output, [output, memory]


class GRUCell(DenseCell):
    """A gated recurrent unit (Cho et al. 2014), as cuDNN computes it.

    r, z = σ(...); n = tanh(W x + b + r·(R h + c)); h' = (1 - z)·n + z·h.

    Parameters
    ----------
    hidden_size : int
    i2h_weight_initializer, h2h_weight_initializer : Initializer or str, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    input_size : int
    """

    _gates = 3

    def _alias(self) -> str:
        return "gru"

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> Any:
        weights = (i2h_weight, h2h_weight, i2h_bias, h2h_bias)
        i2h, h2h, name = self._products(F, inputs, states[0], weights)
        i2h_r, i2h_z, i2h_n = F.SliceChannel(i2h, num_outputs=3, name=f"{name}i2h_slice")
        h2h_r, h2h_z, h2h_n = F.SliceChannel(h2h, num_outputs=3, name=f"{name}h2h_slice")
        r = F.elemwise_add(i2h_r, h2h_r, name=f"{name}plus0")
        r = F.Activation(r, act_type="sigmoid", name=f"{name}r_act")
        z = F.elemwise_add(i2h_z, h2h_z, name=f"{name}plus1")
        z = F.Activation(z, act_type="sigmoid", name=f"{name}z_act")
        n = F.elemwise_mul(r, h2h_n, name=f"{name}mul0")
        n = F.elemwise_add(i2h_n, n, name=f"{name}plus2")
        n = F.Activation(n, act_type="tanh", name=f"{name}h_act")
        ones = F.ones_like(z, name=f"{name}ones_like0")
        new = F.elemwise_sub(ones, z, name=f"{name}minus0")
        new = F.elemwise_mul(new, n, name=f"{name}mul1")
        kept = F.elemwise_mul(z, states[0], name=f"{name}mul20")
        output = F.elemwise_add(new, kept, name=f"{name}out")
        return output, [output]
