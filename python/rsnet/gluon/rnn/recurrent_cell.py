"""What all recurrent cells have: first states, and unrolling over time.

A cell computes one step: ``output, states = cell(input, states)``. Sequences are one array with an
axis of time, or a list with an array per step.
"""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ... import symbol as sym
from ...ndarray import NDArray
from ..block import Block
from ..hybrid_block import HybridBlock

__all__ = ["HybridRecurrentCell", "RecurrentCell"]

BATCH, TIME = "N", "T"


def module_of(x: Any) -> Any:
    """`nd` or `sym`, by what `x` (or the first of a list) is."""
    first = x[0] if isinstance(x, (list, tuple)) else x
    return sym if isinstance(first, sym.Symbol) else nd


def axis_of_time(layout: str) -> int:
    """The place of the axis of time in `layout`, such as 1 in "NTC"."""
    if not isinstance(layout, str) or TIME not in layout or BATCH not in layout:
        raise ValueError(
            f"invalid layout {layout!r}: expected axes of batch and time, as in 'NTC' or 'TNC'"
        )
    return layout.index(TIME)


def split_time(length: int | None, inputs: Any, layout: str) -> tuple[list[Any], int, Any, int]:
    """The inputs of each step, the axis of time, the module, and the batch size (0: unknown).

    Raises
    ------
    AssertionError
        The sequence is not as long as `length` says.
    """
    axis = axis_of_time(layout)
    batch_axis = layout.index(BATCH)
    F = module_of(inputs)
    if isinstance(inputs, sym.Symbol):
        if len(inputs.list_outputs()) != 1:
            raise AssertionError(
                f"unroll: the input is a group of {len(inputs.list_outputs())} symbols: expected "
                "one symbol, or list(inputs)"
            )
        if length is None:
            raise AssertionError("unroll: expected a length for a symbol")
        steps = list(F.SliceChannel(inputs, axis=axis, num_outputs=length, squeeze_axis=True))
        return steps, axis, F, 0
    if isinstance(inputs, NDArray):
        found = inputs.shape[axis]
        if length is not None and found != length:
            raise AssertionError(
                f"unroll: invalid inputs of shape {inputs.shape} with layout '{layout}': expected "
                f"{length} steps, got {found}"
            )
        steps = F.SliceChannel(inputs, axis=axis, num_outputs=found, squeeze_axis=True)
        return [steps] if found == 1 else list(steps), axis, F, inputs.shape[batch_axis]
    steps = list(inputs)
    if length is not None and len(steps) != length:
        raise AssertionError(f"unroll: got {len(steps)} inputs, expected {length} steps")
    batch = steps[0].shape[batch_axis - (batch_axis > axis)] if F is nd else 0
    return steps, axis, F, batch


def join_time(F: Any, steps: Any, axis: int) -> Any:
    """The steps as one array with an axis of time."""
    return F.stack(*steps, axis=axis) if isinstance(steps, (list, tuple)) else steps


def masked(F: Any, outputs: Any, valid_length: Any, axis: int) -> Any:
    """The outputs as one array, 0 after the end of each sequence."""
    outputs = join_time(F, outputs, axis)
    return F.SequenceMask(
        outputs, sequence_length=valid_length, use_sequence_length=True, axis=axis
    )


def formatted(F: Any, outputs: Any, length: int, axis: int, merge: bool | None) -> Any:
    """The outputs merged, as a list, or as they are (None)."""
    if merge is True:
        return join_time(F, outputs, axis)
    if merge is False and not isinstance(outputs, (list, tuple)):
        steps = F.SliceChannel(outputs, axis=axis, num_outputs=length, squeeze_axis=True)
        return [steps] if length == 1 else list(steps)
    return outputs


class RecurrentCell(Block):
    """Base of recurrent cells; a subclass defines `state_info` and `forward`.

    Parameters
    ----------
    prefix : str, optional
    params : ParameterDict, optional
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Resets the count of steps, before another sequence."""
        self._init_counter = -1
        self._counter = -1
        for cell in self._children.values():
            if isinstance(cell, RecurrentCell):
                cell.reset()

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        raise NotImplementedError(f"{type(self).__name__} '{self.name}' does not define state_info")

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """The states before the first step.

        Parameters
        ----------
        batch_size : int
        func : callable
            Makes a state: `nd.zeros`, `sym.zeros`, `sym.var` and the like.
        **kwargs
            Further arguments of `func`, such as ``ctx``.

        Raises
        ------
        AssertionError
            A modifier such as `DropoutCell` was applied to the cell: call that one's.
        """
        self._check_unmodified()
        states = []
        for info in self.state_info(batch_size):
            self._init_counter += 1
            name = f"{self._prefix}begin_state_{self._init_counter}"
            states.append(func(name=name, **{**(info or {}), **kwargs}))
        return states

    def _check_unmodified(self) -> None:
        if self._modified:
            raise AssertionError(
                f"invalid call of cell '{self.name}', which has a modifier, such as ZoneoutCell: "
                "expected a call of the modifier"
            )

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Computes `length` steps.

        Parameters
        ----------
        length : int
        inputs : NDArray, Symbol or list of these
            One array with an axis of time, as `layout` says, or one array (N, C) a step.
        begin_state : list, optional
            States before the first step; zeros if None.
        layout : str
            Where batch (N), time (T) and channels (C) are.
        merge_outputs : bool, optional
            True: outputs as one array; False: as a list; None: as it is cheapest.
        valid_length : NDArray or Symbol, optional
            Lengths (N,) of the sequences: later outputs are 0, and the states are those of each
            sequence's end.

        Returns
        -------
        outputs : NDArray, Symbol or list of these
        states : list
            States after the last step.

        Raises
        ------
        AssertionError
            The sequence is not `length` steps long.
        """
        self.reset()
        steps, axis, F, batch = split_time(length, inputs, layout)
        states = self._first_states(F, begin_state, steps, batch)
        outputs: Any = []
        history = []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
            if valid_length is not None:
                history.append(states)
        if valid_length is not None:
            states = [_at_end(F, each, valid_length) for each in zip(*history)]
            outputs = masked(F, outputs, valid_length, axis)
        return formatted(F, outputs, length, axis, merge_outputs), states

    def _first_states(self, F: Any, begin_state: Any, steps: list[Any], batch: int) -> list[Any]:
        """The given states, or the cell's own."""
        if begin_state is not None:
            return begin_state
        more = {"ctx": steps[0].context} if F is nd else {}
        return self.begin_state(batch_size=batch, func=F.zeros, **more)

    def _get_activation(self, F: Any, inputs: Any, activation: Any, **kwargs: Any) -> Any:
        """Applies an activation given by name, as a block or as a function."""
        if isinstance(activation, str):
            if activation in ("tanh", "relu", "sigmoid", "softsign"):
                return getattr(F, activation)(inputs, **kwargs)
            return F.Activation(inputs, act_type=activation, **kwargs)
        if isinstance(activation, Block):
            return activation(inputs)
        return activation(inputs, **kwargs)

    def forward(self, inputs: Any, states: Any) -> Any:
        """One step: the output, and the states of the next step."""
        self._counter += 1
        return super().forward(inputs, states)


def _at_end(F: Any, history: Any, valid_length: Any) -> Any:
    """The states at the end of each sequence, from those of all steps."""
    return F.SequenceLast(
        F.stack(*history, axis=0), sequence_length=valid_length, use_sequence_length=True, axis=0
    )


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """Base of recurrent cells that are hybrid; a subclass defines `hybrid_forward`."""

    def _step_name(self) -> str:
        return f"t{self._counter}_"

    def hybrid_forward(self, F: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} '{self.name}' does not define hybrid_forward"
        )
