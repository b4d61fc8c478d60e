"""What `mxnet.gluon.rnn.rnn_cell` has for recurrent cells that programs write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..gluon.rnn.recurrent_cell import BATCH, axis_of_time, formatted, masked, module_of
from ..symbol import Symbol

__all__ = [
    "_cells_begin_state",
    "_cells_state_info",
    "_format_sequence",
    "_get_begin_state",
    "_mask_sequence_variable_length",
    "_reverse_sequences",
]


def _cells_state_info(cells: Sequence[Any], batch_size: int) -> list[dict[str, Any]]:
    """Shape and layout of the states of all cells."""
    return [info for cell in cells for info in cell.state_info(batch_size)]


def _cells_begin_state(cells: Sequence[Any], **kwargs: Any) -> list[Any]:
    """The first states of all cells; the arguments are those of `begin_state`."""
    return [state for cell in cells for state in cell.begin_state(**kwargs)]


def _get_begin_state(cell: Any, F: Any, begin_state: Any, inputs: Any, batch_size: int) -> Any:
    """The given states, or the cell's own, on the device of the inputs."""
    first = inputs[0] if isinstance(inputs, (list, tuple)) else inputs
    return cell._first_states(F, begin_state, [first], batch_size)


def _format_sequence(
    length: int | None, inputs: Any, layout: str, merge: bool | None, in_layout: str | None = None
) -> tuple[Any, int, Any, int]:
    """A sequence as one array or as a list.

    Parameters
    ----------
    length : int, optional
        Number of steps; only needed to divide a symbol.
    inputs : NDArray, Symbol or list of these
        One array with an axis of time, as `in_layout` says, or one array per step.
    layout : str
        Layout of what is returned, such as "NTC".
    merge : bool, optional
        True: one array; False: a list; None: as it is.
    in_layout : str, optional
        Layout of `inputs`; `layout` if None.

    Returns
    -------
    inputs : NDArray, Symbol or list of these
    axis : int
        The axis of time in `layout`.
    F : module
        `nd` or `sym`.
    batch_size : int
        0 for symbols.

    Raises
    ------
    AssertionError
        There are no inputs, or not `length` of them.
    """
    if inputs is None or (isinstance(inputs, (list, tuple)) and not inputs):
        raise AssertionError(f"invalid inputs {inputs!r}: expected an array or one for each step")
    axis, before = axis_of_time(layout), axis_of_time(in_layout or layout)
    F = module_of(inputs)
    if isinstance(inputs, (list, tuple)):
        steps = list(inputs)
        if length is not None and len(steps) != length:
            raise AssertionError(f"got {len(steps)} inputs, expected {length} steps")
        place = layout.replace("T", "").index(BATCH)
        batch_size = 0 if isinstance(steps[0], Symbol) else steps[0].shape[place]
        return formatted(F, steps, len(steps), axis, merge), axis, F, batch_size
    if isinstance(inputs, Symbol):
        batch_size, found = 0, length
    else:
        found = inputs.shape[before]
        batch_size = inputs.shape[(in_layout or layout).index(BATCH)]
        if length is not None and found != length:
            raise AssertionError(f"got {found} steps in shape {inputs.shape}, expected {length}")
    if merge is False:
        if found is None:
            raise AssertionError("expected a length, to divide a symbol")
        inputs = formatted(F, inputs, found, before, False)
        inputs = inputs if isinstance(inputs, list) else list(inputs)
    elif axis != before:
        inputs = F.swapaxes(inputs, dim1=axis, dim2=before)
    return inputs, axis, F, batch_size


def _mask_sequence_variable_length(
    F: Any, data: Any, length: int, valid_length: Any, time_axis: int, merge: bool
) -> Any:
    """A sequence, as one array or as a list, 0 after the end of each; a list unless `merge`."""
    outputs = masked(F, data, valid_length, time_axis)
    return formatted(F, outputs, length, time_axis, bool(merge))


def _reverse_sequences(
    sequences: Sequence[Any], unroll_step: int, valid_length: Any = None
) -> list[Any]:
    """The steps in reverse order; with `valid_length` those up to the end of each sequence, while
    the others stay where they are.
    """
    if valid_length is None:
        return list(reversed(sequences))
    F = module_of(sequences)
    steps = F.SequenceReverse(
        F.stack(*sequences, axis=0), sequence_length=valid_length, use_sequence_length=True
    )
    found: list[Any] = formatted(F, steps, unroll_step, 0, False)
    return found
