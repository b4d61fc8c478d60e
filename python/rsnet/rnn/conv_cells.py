"""Cells whose products are convolutions (Shi et al., arXiv:1506.04214)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from .. import symbol as sym
from .._packed_rnn import GATES
from .._recurrent_steps import gru_step, lstm_step
from ..symbol import Symbol
from .base_cell import BaseRNNCell, RNNParams

__all__ = ["BaseConvRNNCell", "ConvGRUCell", "ConvLSTMCell", "ConvRNNCell"]

LEAKY = partial(sym.LeakyReLU, act_type="leaky", slope=0.2)


class BaseConvRNNCell(BaseRNNCell):
    """Base of convolutional cells.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of the input of one step: (N, C, H, W), or as `conv_layout` says; the extent of the
        batch does not matter, and may be left out.
    num_hidden : int
        Channels of the states.
    h2h_kernel, h2h_dilate : tuple of int
        Convolution of the state; its extents are odd, so that states keep their size.
    i2h_kernel, i2h_stride, i2h_pad, i2h_dilate : tuple of int
        Convolution of the input.
    i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer
        First values of the parameters.
    activation : str or callable
    prefix : str
    params : RNNParams, optional
    conv_layout : {'NCHW', 'NHWC'}

    Raises
    ------
    ValueError
        `h2h_kernel` has an even extent.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_hidden: int,
        h2h_kernel: Sequence[int] = (3, 3),
        h2h_dilate: Sequence[int] = (1, 1),
        i2h_kernel: Sequence[int] = (3, 3),
        i2h_stride: Sequence[int] = (1, 1),
        i2h_pad: Sequence[int] = (1, 1),
        i2h_dilate: Sequence[int] = (1, 1),
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        activation: Any = LEAKY,
        prefix: str = "",
        params: RNNParams | None = None,
        conv_layout: Any = "NCHW",
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        if any(k % 2 == 0 for k in h2h_kernel):
            raise ValueError(f"invalid h2h_kernel {tuple(h2h_kernel)}: expected odd extents")
        self._num_hidden = num_hidden
        self._input_shape = tuple(input_shape)
        self._layout = conv_layout
        self._activation = activation
        pad = tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel, strict=True))
        self._h2h: dict[str, Any] = {
            "kernel": tuple(h2h_kernel), "dilate": tuple(h2h_dilate), "pad": pad,
            "stride": (1,) * len(tuple(h2h_kernel)),
        }  # fmt: skip
        self._i2h: dict[str, Any] = {
            "kernel": tuple(i2h_kernel), "stride": tuple(i2h_stride), "pad": tuple(i2h_pad),
            "dilate": tuple(i2h_dilate),
        }  # fmt: skip
        self._iW = self._params.get("i2h_weight", init=i2h_weight_initializer)
        self._hW = self._params.get("h2h_weight", init=h2h_weight_initializer)
        self._iB = self._params.get("i2h_bias", init=i2h_bias_initializer)
        self._hB = self._params.get("h2h_bias", init=h2h_bias_initializer)
        self._state_shape = self._shape_of_states()

    def _shape_of_states(self) -> tuple[int, ...]:
        probe = sym.Variable("data")
        out = sym.Convolution(probe, num_filter=self._num_hidden, layout=self._layout, **self._i2h)
        without_batch = len(self._input_shape) == len(self._layout) - 1
        _, shapes, _ = out.infer_shape(data=(1,) * without_batch + self._input_shape)
        return (0, *shapes[0][1:])

    @property
    def _num_states(self) -> int:
        return 1

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """States of the shape of the convolved input."""
        return [
            {"shape": self._state_shape, "__layout__": self._layout}
            for _ in range(self._num_states)
        ]

    def _products(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[str, Any, Any]:
        name = self._step_name()
        count = self._num_hidden * max(1, len(self._gate_names))
        i2h = sym.Convolution(
            inputs, self._iW, self._iB, num_filter=count, layout=self._layout,
            name=f"{name}i2h", **self._i2h,
        )  # fmt: skip
        h2h = sym.Convolution(
            states[0], self._hW, self._hB, num_filter=count, layout=self._layout,
            name=f"{name}h2h", **self._h2h,
        )  # fmt: skip
        return name, i2h, h2h

    def _activate(self, x: Symbol, **kwargs: Any) -> Any:
        return self._get_activation(x, self._activation, **kwargs)

    def _split(self, x: Symbol, name: str) -> Any:
        axis = self._layout.find("C")
        return sym.SliceChannel(x, num_outputs=len(self._gate_names), axis=axis, name=name)


def _signature(cls: type[BaseConvRNNCell]) -> type[BaseConvRNNCell]:
    """Gives a cell the arguments of the base class with the cell's own prefix."""
    prefix = cls.__name__.removesuffix("Cell") + "_"

    def __init__(
        self: BaseConvRNNCell, input_shape: Any, num_hidden: int, *args: Any, **kwargs: Any
    ) -> None:
        kwargs.setdefault("prefix", prefix)
        BaseConvRNNCell.__init__(self, input_shape, num_hidden, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


@_signature
class ConvRNNCell(BaseConvRNNCell):
    """A simple recurrent cell with convolutions: h' = act(W*x + b + R*h + c)."""

    @property
    def _gate_names(self) -> Sequence[str]:
        return GATES["rnn_tanh"]

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        name, i2h, h2h = self._products(inputs, states)
        output = self._activate(i2h + h2h, name=f"{name}out")
        return output, [output]


@_signature
class ConvLSTMCell(BaseConvRNNCell):
    """A cell of long short-term memory with convolutions; the states are output and memory."""

    @property
    def _num_states(self) -> int:
        return 2

    @property
    def _gate_names(self) -> Sequence[str]:
        return GATES["lstm"]

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        name, i2h, h2h = self._products(inputs, states)
        gates = self._split(i2h + h2h, f"{name}slice")
        return lstm_step(sym, gates, states[1], self._activate, name)


@_signature
class ConvGRUCell(BaseConvRNNCell):
    """A gated recurrent unit with convolutions."""

    @property
    def _gate_names(self) -> Sequence[str]:
        return GATES["gru"]

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        name, i2h, h2h = self._products(inputs, states)
        of_input = self._split(i2h, f"{name}i2h_slice")
        of_state = self._split(h2h, f"{name}h2h_slice")
        return gru_step(sym, of_input, of_state, states[0], self._activate, name)
