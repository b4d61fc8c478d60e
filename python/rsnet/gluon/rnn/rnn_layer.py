"""Recurrent layers: whole sequences by the operator `RNN`."""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ..._numbers import integer
from ..._packed_rnn import GATES, parts_in_order
from ..hybrid_block import HybridBlock

__all__ = ["GRU", "LSTM", "RNN"]


class _Layer(HybridBlock):
    """Base of recurrent layers.

    A call takes ``(inputs, states=None, sequence_length=None)``. It returns the outputs, and with
    `states` also the states after the last step.
    """

    #: The operator's parameter, which a subclass sets.
    _mode: str

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        dtype: Any = "float32",
        *,
        use_sequence_length: bool = False,
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        clip: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if layout not in ("TNC", "NTC"):
            raise AssertionError(f"invalid layout {layout!r}: expected 'TNC' or 'NTC'")
        hidden_size = integer("hidden_size", hidden_size, least=1)
        num_layers = integer("num_layers", num_layers, least=1)
        self._hidden_size = hidden_size
        self._projection_size = projection_size
        self._num_layers = num_layers
        self._layout = layout
        self._dropout = dropout
        self._dir = 2 if bidirectional else 1
        self._input_size = input_size
        self._clip = clip or {}
        self._dtype = dtype
        self._use_sequence_length = use_sequence_length
        self._gates = len(GATES[self._mode])
        rows = self._gates * hidden_size
        out = projection_size or hidden_size
        width = input_size
        for i in range(num_layers):
            for side in ["l", "r"][: self._dir]:
                self._get(f"{side}{i}_i2h_weight", (rows, width), i2h_weight_initializer)
                self._get(f"{side}{i}_h2h_weight", (rows, out), h2h_weight_initializer)
                self._get(f"{side}{i}_i2h_bias", (rows,), i2h_bias_initializer)
                self._get(f"{side}{i}_h2h_bias", (rows,), h2h_bias_initializer)
                if projection_size:
                    shape = (projection_size, hidden_size)
                    self._get(f"{side}{i}_h2r_weight", shape, h2r_weight_initializer)
            width = out * self._dir

    def _get(self, name: str, shape: tuple[int, ...], init: Any) -> None:
        param = self.params.get(
            name, shape=shape, init=init, allow_deferred_init=True, dtype=self._dtype
        )
        setattr(self, name, param)

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Any]:
        """Parameters by their place in the cells that the layer stands for, as files name them."""
        prefix = f"{prefix}." if prefix else ""
        found = {}
        for name, param in self._reg_params.items():
            place, _, rest = name.partition("_")
            side = f"{place[0]}_cell." if self._dir == 2 else ""
            found[f"{prefix}_unfused.{place[1:]}.{side}{rest}"] = param
        return found

    def __repr__(self) -> str:
        width = (getattr(self, "l0_i2h_weight").shape or (0, 0))[1] or None  # noqa: B009
        text = f"{width} -> {self._hidden_size}, {self._layout}"
        if self._num_layers != 1:
            text += f", num_layers={self._num_layers}"
        if self._dropout != 0:
            text += f", dropout={self._dropout}"
        if self._dir == 2:
            text += ", bidirectional"
        return f"{type(self).__name__}({text})"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape (layers and directions, N, hidden size), layout and dtype of each state."""
        count = self._num_layers * self._dir
        width = self._projection_size or self._hidden_size
        info = {"__layout__": "LNC", "dtype": self._dtype}
        states = [{"shape": (count, batch_size, width), **info}]
        if self._mode == "lstm":
            states.append({"shape": (count, batch_size, self._hidden_size), **info})
        return states

    def cast(self, dtype: Any) -> None:
        super().cast(dtype)
        self._dtype = dtype

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """The states before the first step, see `RecurrentCell.begin_state`."""
        return [
            func(name=f"{self.prefix}h0_{i}", **{**info, **kwargs})
            for i, info in enumerate(self.state_info(batch_size))
        ]

    def __call__(self, inputs: Any, states: Any = None, sequence_length: Any = None) -> Any:
        """The outputs, and with `states` also the states after the last step."""
        skip = states is None
        if skip:
            if isinstance(inputs, nd.NDArray):
                at = self._layout.index("N")
                batch = inputs.shape[at] if inputs.ndim > at else 0
                states = self.begin_state(batch, ctx=inputs.context)
            else:
                from ... import symbol as sym

                states = self.begin_state(0, func=sym.zeros)
        if not isinstance(states, (list, tuple)):
            states = [states]
        self._check(inputs, states)
        if self._use_sequence_length:
            outputs, following = super().__call__(inputs, states, sequence_length)
        elif sequence_length is not None:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': invalid sequence_length: expected None, as "
                "the layer was made without use_sequence_length=True"
            )
        else:
            outputs, following = super().__call__(inputs, states)
        return outputs if skip else (outputs, following)

    def _check(self, inputs: Any, states: Any) -> None:
        if not isinstance(inputs, nd.NDArray):
            return
        if inputs.ndim != 3:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': inputs have shape {inputs.shape}, expected "
                f"3 axes ({self._layout})"
            )
        expected = self.state_info(inputs.shape[self._layout.index("N")])
        if len(states) != len(expected):
            raise ValueError(
                f"{type(self).__name__} '{self.name}': got {len(states)} states, expected "
                f"{len(expected)}"
            )
        for state, info in zip(states, expected):
            if state.shape != info["shape"]:
                raise ValueError(
                    f"{type(self).__name__} '{self.name}': invalid shape {state.shape} of a state: "
                    f"expected {info['shape']}"
                )

    def hybrid_forward(
        self, F: Any, inputs: Any, states: Any, sequence_length: Any = None, **weights: Any
    ) -> Any:
        if self._layout == "NTC":
            inputs = F.swapaxes(inputs, dim1=0, dim2=1)
        lengths = [sequence_length] if self._use_sequence_length else []
        rnn = F.RNN(
            inputs,
            self._vector(F, weights),
            *states,
            *lengths,
            use_sequence_length=self._use_sequence_length,
            state_size=self._hidden_size,
            projection_size=self._projection_size,
            num_layers=self._num_layers,
            bidirectional=self._dir == 2,
            p=self._dropout,
            state_outputs=True,
            mode=self._mode,
            **self._clip,
        )
        outputs = rnn[0]
        if self._layout == "NTC":
            outputs = F.swapaxes(outputs, dim1=0, dim2=1)
        following = [rnn[1], rnn[2]] if self._mode == "lstm" else [rnn[1]]
        return outputs, following

    def _vector(self, F: Any, weights: dict[str, Any]) -> Any:
        """All weights, then all biases, as one vector."""
        order = []
        groups = ["i2h", "h2h", *(["h2r"] if self._projection_size else [])]
        sides = ["l", "r"][: self._dir]
        for kind, layer, side, group in parts_in_order(self._num_layers, sides, groups):
            name = f"{side}{layer}_{group}_{kind}"
            if name in weights:
                order.append(F.reshape(weights[name], shape=(-1,)))
        return F._internal._rnn_param_concat(*order, dim=0)


class RNN(_Layer):
    """Layers of simple recurrent cells: h' = act(W x + b + R h + c).

    Parameters
    ----------
    hidden_size : int
        Width of the states.
    num_layers : int
    activation : str
        'relu' or 'tanh'.
    layout : str
        'TNC' or 'NTC': where time (T), batch (N) and channels (C) of inputs and outputs are.
    dropout : float
        Share of each layer's output, but the last one's, that becomes 0 while training.
    bidirectional : bool
        Run each layer on and back in time, and concatenate the outputs?
    i2h_weight_initializer, h2h_weight_initializer : Initializer or str, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    input_size : int
        0: the first call decides.
    dtype : dtype
    use_sequence_length : bool
        Does a call take the lengths (N,) of the sequences?
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        if activation not in ("relu", "tanh"):
            raise ValueError(f"RNN: invalid activation {activation!r}: expected 'relu' or 'tanh'")
        self._mode = f"rnn_{activation}"
        super().__init__(
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            dtype,
            **kwargs,
        )


class LSTM(_Layer):
    """Layers of long short-term memory, see `LSTMCell`.

    Parameters
    ----------
    hidden_size, num_layers, layout, dropout, bidirectional, input_size
        As for `RNN`.
    i2h_weight_initializer, h2h_weight_initializer : Initializer or str, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    projection_size : int, optional
        Width to which the outputs are projected (Sak et al. 2014).
    h2r_weight_initializer : Initializer or str, optional
        Of the projection.
    state_clip_min, state_clip_max : float, optional
        Bounds of the memory.
    state_clip_nan : bool
    dtype : dtype

    Examples
    --------
    >>> import rsnet as mx
    >>> layer = mx.gluon.rnn.LSTM(4, num_layers=2)
    >>> layer.initialize()
    >>> outputs, states = layer(mx.nd.ones((5, 3, 6)), layer.begin_state(batch_size=3))
    >>> outputs.shape, [state.shape for state in states]
    ((5, 3, 4), [(2, 3, 4), (2, 3, 4)])
    """

    _mode = "lstm"

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        clip = {
            "lstm_state_clip_min": state_clip_min,
            "lstm_state_clip_max": state_clip_max,
            "lstm_state_clip_nan": state_clip_nan,
        }
        super().__init__(
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            dtype,
            projection_size=projection_size,
            h2r_weight_initializer=h2r_weight_initializer,
            clip=clip,
            **kwargs,
        )


class GRU(_Layer):
    """Layers of gated recurrent units, see `GRUCell`.

    Parameters
    ----------
    hidden_size, num_layers, layout, dropout, bidirectional, input_size, dtype
        As for `RNN`.
    i2h_weight_initializer, h2h_weight_initializer : Initializer or str, optional
    i2h_bias_initializer, h2h_bias_initializer : Initializer or str
    """

    _mode = "gru"
