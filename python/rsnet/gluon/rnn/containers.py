"""Cells made of cells: one after the other, and in both directions of time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..utils import indented
from .recurrent_cell import (
    HybridRecurrentCell,
    RecurrentCell,
    formatted,
    join_time,
    masked,
    module_of,
    split_time,
)

__all__ = ["BidirectionalCell", "HybridSequentialRNNCell", "SequentialRNNCell"]


class _Composite(RecurrentCell):
    """Base of cells whose states are those of their children, one after the other."""

    def _cells(self) -> list[Any]:
        return list(self._children.values())

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The states of all cells, one after the other."""
        return [info for cell in self._cells() for info in cell.state_info(batch_size)]

    def begin_state(self, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        """The first states of all cells, one after the other."""
        self._check_unmodified()
        return [state for cell in self._cells() for state in cell.begin_state(**kwargs)]


class _Stack(_Composite):
    def add(self, cell: RecurrentCell) -> None:
        """Adds a cell at the end."""
        self.register_child(cell)

    def _step(self, inputs: Any, states: Any) -> Any:
        """One step of every cell."""
        following: list[Any] = []
        at = 0
        for cell in self._cells():
            if isinstance(cell, BidirectionalCell):
                raise AssertionError(
                    f"{type(self).__name__}: invalid cell, a BidirectionalCell, which has no "
                    "single steps: expected a call of unroll"
                )
            count = len(cell.state_info())
            inputs, new = cell(inputs, states[at : at + count])
            following.extend(new)
            at += count
        return inputs, following

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Unrolls cell by cell, see `RecurrentCell.unroll`."""
        self.reset()
        steps, _, F, batch = split_time(length, inputs, layout)
        states = self._first_states(F, begin_state, steps, batch)
        inputs = steps
        cells = self._cells()
        following: list[Any] = []
        at = 0
        for i, cell in enumerate(cells):
            count = len(cell.state_info())
            inputs, new = cell.unroll(
                length,
                inputs,
                states[at : at + count],
                layout,
                merge_outputs if i == len(cells) - 1 else None,
                valid_length,
            )
            following.extend(new)
            at += count
        return inputs, following

    def __len__(self) -> int:
        return len(self._children)

    def __getitem__(self, i: int) -> Any:
        return self._cells()[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cells())

    def __repr__(self) -> str:
        inside = "\n".join(f"({k}): {indented(repr(c), 2)}" for k, c in self._children.items())
        return f"{type(self).__name__}(\n{inside}\n)"


class SequentialRNNCell(_Stack):
    """Cells one after the other.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet.gluon import rnn
    >>> cells = rnn.SequentialRNNCell()
    >>> cells.add(rnn.LSTMCell(4))
    >>> cells.add(rnn.DropoutCell(0.3))
    >>> cells.initialize()
    >>> outputs, states = cells.unroll(3, mx.nd.ones((2, 3, 5)), merge_outputs=True)
    >>> outputs.shape, len(states)
    ((2, 3, 4), 2)
    """

    def forward(self, inputs: Any, states: Any) -> Any:
        """One step of every cell."""
        self._counter += 1
        return self._step(inputs, states)


class HybridSequentialRNNCell(_Stack, HybridRecurrentCell):
    """Hybrid cells one after the other, which can run as one planned graph."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        return self._step(inputs, states)


class BidirectionalCell(_Composite, HybridRecurrentCell):
    """Two cells, one of which runs back in time; their outputs are concatenated.

    It has no single steps, only `unroll`.

    Parameters
    ----------
    l_cell, r_cell : RecurrentCell
        The one that runs on, and the one that runs back.
    output_prefix : str
        Beginning of the names of outputs.
    """

    def __init__(self, l_cell: Any, r_cell: Any, output_prefix: str = "bi_") -> None:
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "a BidirectionalCell makes no single steps: expected a call of unroll"
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
        """Unrolls both cells, see `RecurrentCell.unroll`."""
        self.reset()
        steps, axis, F, batch = split_time(length, inputs, layout)
        states = self._first_states(F, begin_state, steps, batch)
        l_cell: Any = self._children["l_cell"]
        r_cell: Any = self._children["r_cell"]
        count = len(l_cell.state_info(batch))
        on, on_states = l_cell.unroll(
            length, steps, states[:count], layout, merge_outputs, valid_length
        )
        back, back_states = r_cell.unroll(
            length, self._reversed(steps, valid_length), states[count:], layout, False, valid_length
        )
        back = self._reversed(back, valid_length)
        if merge_outputs is None:
            merge_outputs = not isinstance(on, (list, tuple))
        on = formatted(F, on, length, axis, merge_outputs)
        if merge_outputs:
            outputs = F.concat(
                on, join_time(F, back, axis), dim=2, name=f"{self._output_prefix}out"
            )
        else:
            pairs = enumerate(zip(on, back, strict=True))
            outputs = [
                F.concat(a, b, dim=1, name=f"{self._output_prefix}t{i}") for i, (a, b) in pairs
            ]
        if valid_length is not None:
            outputs = masked(F, outputs, valid_length, axis)
            outputs = formatted(F, outputs, length, axis, merge_outputs)
        return outputs, [*on_states, *back_states]

    @staticmethod
    def _reversed(steps: list[Any], valid_length: Any) -> list[Any]:
        """The steps back in time, each sequence from its own end."""
        if valid_length is None:
            return steps[::-1]
        F = module_of(steps)
        turned = F.SequenceReverse(
            F.stack(*steps, axis=0), sequence_length=valid_length, use_sequence_length=True
        )
        return formatted(F, turned, len(steps), 0, False)

    def __repr__(self) -> str:
        l_cell, r_cell = self._cells()
        return f"{type(self).__name__}(forward={l_cell!r}, backward={r_cell!r})"
