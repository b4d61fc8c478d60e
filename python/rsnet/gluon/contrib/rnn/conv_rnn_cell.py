"""Recurrent cells whose products of input and state with matrices are convolutions (Shi et al.
2015).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...._recurrent_steps import gru_step, lstm_step
from ...nn.layouts import checked_layout, per_axis
from ...rnn.recurrent_cell import HybridRecurrentCell


class _ConvCell(HybridRecurrentCell):
    """Base of convolutional cells.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of an input without its batch axis, such as (C, H, W).
    hidden_channels : int
    i2h_kernel, h2h_kernel : int or tuple of int
        Kernels for input and state by axis; the state's must be odd.
    i2h_pad, i2h_dilate, h2h_dilate : int or tuple of int
    i2h_weight_initializer, h2h_weight_initializer : Initializer or str, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    conv_layout : str
        Order of batch, channels and axes.
    activation : str, Block or callable
    """

    _axes = 0
    _gates = 1
    _num_states = 1
    _hint = "conv_rnn"

    def __init__(
        self,
        input_shape: Any,
        hidden_channels: int,
        i2h_kernel: Any,
        h2h_kernel: Any,
        i2h_pad: Any = 0,
        i2h_dilate: Any = 1,
        h2h_dilate: Any = 1,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        conv_layout: str | None = None,
        activation: Any = "tanh",
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        axes = self._axes
        layout = checked_layout(type(self).__name__, conv_layout, axes, "conv_layout")
        if len(input_shape) != axes + 1:
            raise AssertionError(
                f"{type(self).__name__}: invalid input_shape {input_shape}: expected {axes + 1} "
                "extents"
            )
        self._hidden_channels = hidden_channels
        self._input_shape = tuple(input_shape)
        self._layout = layout
        self._activation = activation
        i2h_kernel = per_axis(i2h_kernel, axes, "i2h_kernel")
        h2h_kernel = per_axis(h2h_kernel, axes, "h2h_kernel")
        if not all(k % 2 for k in h2h_kernel):
            raise AssertionError(f"invalid h2h_kernel {h2h_kernel}: expected odd extents")
        i2h_pad = per_axis(i2h_pad, axes, "i2h_pad")
        i2h_dilate = per_axis(i2h_dilate, axes, "i2h_dilate")
        h2h_dilate = per_axis(h2h_dilate, axes, "h2h_dilate")
        rows = self._gates * hidden_channels
        self._i2h = self._arguments(rows, i2h_kernel, i2h_pad, i2h_dilate)
        h2h_pad = tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel))
        self._h2h = self._arguments(rows, h2h_kernel, h2h_pad, h2h_dilate)
        at = layout.index("C") - 1
        spatial = [extent for i, extent in enumerate(self._input_shape) if i != at]
        out = [
            s + 2 * p - d * (k - 1) if s else 0
            for s, p, d, k in zip(spatial, i2h_pad, i2h_dilate, i2h_kernel)
        ]
        self._state_shape = (*out[:at], hidden_channels, *out[at:])

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        def weight_shape(channels: int, kernel: tuple[int, ...]) -> tuple[int, ...]:
            return (rows, *kernel[:at], channels, *kernel[at:])

        i2h_shape = weight_shape(self._input_shape[at], i2h_kernel)
        self.i2h_weight = get("i2h_weight", i2h_shape, i2h_weight_initializer)
        h2h_shape = weight_shape(hidden_channels, h2h_kernel)
        self.h2h_weight = get("h2h_weight", h2h_shape, h2h_weight_initializer)
        self.i2h_bias = get("i2h_bias", (rows,), i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", (rows,), h2h_bias_initializer)

    def _arguments(self, rows: int, kernel: Any, pad: Any, dilate: Any) -> dict[str, Any]:
        return {
            "num_filter": rows,
            "kernel": kernel,
            "stride": (1,) * self._axes,
            "pad": pad,
            "dilate": dilate,
            "layout": self._layout,
        }

    def _alias(self) -> str:
        return self._hint

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """States of the shape of the convolved input."""
        info = {"shape": (batch_size, *self._state_shape), "__layout__": self._layout}
        return [dict(info) for _ in range(self._num_states)]

    def _products(self, F: Any, inputs: Any, state: Any, weights: Any) -> Any:
        """The convolutions of input and state, all gates side by side."""
        name = self._step_name()
        i2h = F.Convolution(
            inputs, weights["i2h_weight"], weights["i2h_bias"], name=f"{name}i2h", **self._i2h
        )
        h2h = F.Convolution(
            state, weights["h2h_weight"], weights["h2h_bias"], name=f"{name}h2h", **self._h2h
        )
        return i2h, h2h, name

    def _act(self, F: Any, x: Any, **kwargs: Any) -> Any:
        return self._get_activation(F, x, self._activation, **kwargs)

    def _gates_of(self, F: Any, x: Any, name: str) -> Any:
        axis = self._layout.index("C")
        return F.SliceChannel(x, num_outputs=self._gates, axis=axis, name=name)

    def __repr__(self) -> str:
        channels = self._input_shape[self._layout.index("C") - 1]
        rows = self._gates * self._hidden_channels
        return f"{type(self).__name__}({channels} -> {rows}, {self._activation}, {self._layout})"


class _ConvRNNCell(_ConvCell):
    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **weights: Any) -> Any:
        i2h, h2h, name = self._products(F, inputs, states[0], weights)
        output = self._act(F, i2h + h2h, name=f"{name}out")
        return output, [output]


class _ConvLSTMCell(_ConvCell):
    _gates = 4
    _num_states = 2
    _hint = "conv_lstm"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **weights: Any) -> Any:
        i2h, h2h, name = self._products(F, inputs, states[0], weights)
        parts = self._gates_of(F, i2h + h2h, f"{name}slice")
        return lstm_step(F, parts, states[1], partial(self._act, F), name)


class _ConvGRUCell(_ConvCell):
    _gates = 3
    _hint = "conv_gru"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **weights: Any) -> Any:
        i2h, h2h, name = self._products(F, inputs, states[0], weights)
        of_input = self._gates_of(F, i2h, f"{name}i2h_slice")
        of_state = self._gates_of(F, h2h, f"{name}h2h_slice")
        return gru_step(F, of_input, of_state, states[0], partial(self._act, F), name)


class Conv1DRNNCell(_ConvRNNCell):
    """A simple recurrent cell of convolutions over one axis: h' = act(W ∗ x + b + R ∗ h + c)."""

    _axes = 1


class Conv2DRNNCell(_ConvRNNCell):
    """A simple recurrent cell of convolutions over two axes."""

    _axes = 2


class Conv3DRNNCell(_ConvRNNCell):
    """A simple recurrent cell of convolutions over three axes."""

    _axes = 3


class Conv1DLSTMCell(_ConvLSTMCell):
    """An LSTM of convolutions over one axis."""

    _axes = 1


class Conv2DLSTMCell(_ConvLSTMCell):
    """An LSTM of convolutions over two axes."""

    _axes = 2


class Conv3DLSTMCell(_ConvLSTMCell):
    """An LSTM of convolutions over three axes."""

    _axes = 3


class Conv1DGRUCell(_ConvGRUCell):
    """A gated recurrent unit of convolutions over one axis."""

    _axes = 1


class Conv2DGRUCell(_ConvGRUCell):
    """A gated recurrent unit of convolutions over two axes."""

    _axes = 2


class Conv3DGRUCell(_ConvGRUCell):
    """A gated recurrent unit of convolutions over three axes."""

    _axes = 3
