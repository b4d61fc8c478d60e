"""What all recurrent cells have: parameters, first states, unrolling, and weights apart by gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import ndarray as nd
from .. import symbol as sym
from .._packed_rnn import taken
from ..ndarray import NDArray
from ..symbol import Symbol

__all__ = ["BaseRNNCell", "RNNParams"]


class RNNParams:
    """Variables by name, under a common prefix; cells that are given the same object share them.

    Examples
    --------
    >>> import rsnet as mx
    >>> params = mx.rnn.RNNParams("enc_")
    >>> params.get("i2h_weight") is params.get("i2h_weight")
    True
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """The variable of this name, made by `Variable(prefix + name, **kwargs)` on first use."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = sym.Variable(name, **kwargs)
        return self._params[name]


def time_axis(layout: str) -> int:
    """The place of the axis of time in `layout`, such as 1 in "NTC"."""
    if not isinstance(layout, str) or "T" not in layout:
        raise ValueError(
            f"invalid layout {layout!r}: expected an axis of time, as in 'NTC' or 'TNC'"
        )
    return layout.index("T")


def split_time(
    length: int, inputs: Any, layout: str, input_layout: str | None = None
) -> list[Symbol]:
    """The inputs of each step, from a list of steps or from one symbol that has an axis of time.

    Raises
    ------
    ValueError
        A list of another length, or a symbol of several outputs.
    """
    axis = time_axis(input_layout or layout)
    if length < 1:
        raise ValueError(f"unroll: invalid length {length}: expected at least 1")
    if isinstance(inputs, Symbol):
        if len(inputs.list_outputs()) != 1:
            raise ValueError(
                "unroll: inputs has several outputs, expected a symbol of one or a list of steps"
            )
        return list(sym.split(inputs, axis=axis, num_outputs=length, squeeze_axis=True))
    steps = list(inputs)
    if len(steps) != length:
        raise ValueError(f"unroll: inputs has {len(steps)} steps, expected {length}")
    return steps


def join_time(steps: Any, layout: str) -> Symbol:
    """The steps, a list or joined already, as one symbol that has an axis of time."""
    axis = time_axis(layout)
    if isinstance(steps, Symbol):
        return steps
    joined: Symbol = sym.Concat(*[sym.expand_dims(step, axis=axis) for step in steps], dim=axis)
    return joined


class BaseRNNCell:
    """Base of recurrent cells; a subclass defines `__call__` and `state_info`.

    Parameters
    ----------
    prefix : str
        Beginning of the names of parameters and outputs.
    params : RNNParams, optional
        Parameters shared with other cells; the cell's own if None.
    """

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._own_params = params is None
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Resets the counters of steps and states, as `unroll` does."""
        self._init_counter = -1
        self._counter = -1

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step: the output, and the states of the next step."""
        raise NotImplementedError

    def _step_name(self) -> str:
        self._counter += 1
        return f"{self._prefix}t{self._counter}_"

    @property
    def params(self) -> RNNParams:
        """The parameters. Reading them marks them as shared, so that cells over this one keep
        them apart from their own.
        """
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Shape (0 for the batch) and layout of each state."""
        raise NotImplementedError

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """Shape of each state, 0 for the batch."""
        return [info["shape"] for info in self.state_info]

    @property
    def _gate_names(self) -> Sequence[str]:
        """Endings of the names of the gates, in the order of the packed weights."""
        return ()

    def begin_state(self, func: Callable[..., Symbol] = sym.zeros, **kwargs: Any) -> list[Any]:
        """The states before the first step.

        Parameters
        ----------
        func : callable
            Makes a state: `zeros`, `ones`, or `Variable` for states that are inputs.
        **kwargs
            Further arguments of `func`; a `shape` takes the place of the cell's own.
        """
        self._require_unmodified("begin_state")
        states = []
        for info in self.state_info:
            self._init_counter += 1
            name = f"{self._prefix}begin_state_{self._init_counter}"
            states.append(func(name=name, **((info or {}) | kwargs)))
        return states

    def _first_states(self, given: Any) -> Any:
        """The states before the first step, those that are given or the cell's own.

        Raises
        ------
        ValueError
            Another number of states than the cell has.
        """
        if given is None:
            return self.begin_state()
        try:
            count = len(self.state_info)
        except NotImplementedError:  # a cell of a program that always gives the states
            return given
        if len(given) != count:
            raise ValueError(
                f"unroll: invalid begin_state of {len(given)} states: expected {count}"
            )
        return given

    def _require_unmodified(self, what: str) -> None:
        if self._modified:
            raise AssertionError(
                f"{what}: invalid call of a cell that has a modifier, such as ZoneoutCell: "
                "expected a call of the modifier"
            )

    # ---- weights apart, by gate ----------------------------------------------------------------

    def unpack_weights(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """Weights with an array for each gate, from the packed ones; other entries stay."""
        args = dict(args)
        if not self._gate_names:
            return args
        for group in ("i2h", "h2h"):
            weight = taken("unpack_weights", args, f"{self._prefix}{group}_weight")
            bias = taken("unpack_weights", args, f"{self._prefix}{group}_bias")
            rows, rest = divmod(weight.shape[0], len(self._gate_names))
            if rest:
                raise ValueError(
                    f"unpack_weights: invalid {self._prefix}{group}_weight of shape "
                    f"{weight.shape}: expected a multiple of {len(self._gate_names)} rows"
                )
            for j, gate in enumerate(self._gate_names):
                own = slice(j * rows, (j + 1) * rows)
                args[f"{self._prefix}{group}{gate}_weight"] = weight[own].copy()
                args[f"{self._prefix}{group}{gate}_bias"] = bias[own].copy()
        return args

    def pack_weights(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """The packed weights, from those with an array for each gate."""
        args = dict(args)
        if not self._gate_names:
            return args
        for group in ("i2h", "h2h"):
            for kind in ("weight", "bias"):
                names = [f"{self._prefix}{group}{gate}_{kind}" for gate in self._gate_names]
                args[f"{self._prefix}{group}_{kind}"] = nd.concat(
                    *[taken("pack_weights", args, name) for name in names], dim=0
                )
        return args

    # ---- unrolling -----------------------------------------------------------------------------

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        """Composes `length` steps.

        Parameters
        ----------
        length : int
        inputs : Symbol or list of Symbol
            One symbol with an axis of time, as `layout` says, or one symbol per step.
        begin_state : list of Symbol, optional
            States before the first step; zeros if None.
        layout : str
            Where batch (N), time (T) and channels (C) are.
        merge_outputs : bool, optional
            Join the outputs along time? If None, as it is cheapest.

        Returns
        -------
        outputs : Symbol or list of Symbol
        states : list of Symbol
            States after the last step.

        Raises
        ------
        ValueError
            The number of inputs is not `length`, or a symbol has several outputs.
        """
        self.reset()
        steps = split_time(length, inputs, layout)
        states = self._first_states(begin_state)
        outputs = []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
        return (join_time(outputs, layout) if merge_outputs else outputs), states

    def _get_activation(self, inputs: Symbol, activation: Any, **kwargs: Any) -> Any:
        """Applies an activation given by name or as a function."""
        if isinstance(activation, str):
            act_type: Any = activation
            return sym.Activation(inputs, act_type=act_type, **kwargs)
        return activation(inputs, **kwargs)
