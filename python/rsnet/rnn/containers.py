"""Cells made of cells: one after the other, and in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import symbol as sym
from ..ndarray import NDArray
from ..symbol import Symbol
from .base_cell import BaseRNNCell, RNNParams, join_time, split_time, time_axis

__all__ = ["BidirectionalCell", "SequentialRNNCell", "ContainerCell"]


class ContainerCell(BaseRNNCell):
    """Base of cells that consist of other cells, whose states and weights they have."""

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._cells: list[BaseRNNCell] = []
        super().__init__(prefix=prefix, params=params)
        self._override_cell_params = params is not None

    def _adopt(self, cell: BaseRNNCell) -> None:
        if self._override_cell_params:
            if not cell._own_params:
                raise AssertionError(
                    "invalid params: expected them for the container or for its cells, got both"
                )
            cell.params._params.update(self.params._params)
        self.params._params.update(cell.params._params)
        self._cells.append(cell)

    def reset(self) -> None:
        """Resets the counters of all cells."""
        super().reset()
        for cell in self._cells:
            cell.reset()

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """The states of all cells, one after the other."""
        return [info for cell in self._cells for info in cell.state_info]

    def begin_state(self, func: Callable[..., Symbol] = sym.zeros, **kwargs: Any) -> list[Any]:
        """The states of all cells before the first step."""
        self._require_unmodified("begin_state")
        return [s for cell in self._cells for s in cell.begin_state(func=func, **kwargs)]

    def unpack_weights(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """Weights with an array for each gate of each cell."""
        for cell in self._cells:
            args = cell.unpack_weights(args)
        return args

    def pack_weights(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """The packed weights of each cell."""
        for cell in self._cells:
            args = cell.pack_weights(args)
        return args

    def _shares(self, states: Sequence[Any]) -> list[Sequence[Any]]:
        """The states of each cell."""
        shares, begin = [], 0
        for cell in self._cells:
            end = begin + len(cell.state_info)
            shares.append(states[begin:end])
            begin = end
        return shares


class SequentialRNNCell(ContainerCell):
    """Layers: each cell takes the outputs of the one before.

    Examples
    --------
    >>> import rsnet as mx
    >>> stack = mx.rnn.SequentialRNNCell()
    >>> for i in range(2):
    ...     stack.add(mx.rnn.LSTMCell(4, prefix=f"lstm_l{i}_"))
    >>> outputs, states = stack.unroll(3, mx.sym.Variable("data"), merge_outputs=True)
    >>> outputs.infer_shape(data=(2, 3, 5))[1], len(states)
    ([(2, 3, 4)], 4)
    """

    def __init__(self, params: RNNParams | None = None) -> None:
        super().__init__(prefix="", params=params)

    def add(self, cell: BaseRNNCell) -> None:
        """Puts a cell on top."""
        self._adopt(cell)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step of all cells."""
        self._counter += 1
        following: list[Symbol] = []
        for cell, own in zip(self._cells, self._shares(states), strict=True):
            if isinstance(cell, BidirectionalCell):
                raise AssertionError(
                    "a BidirectionalCell has no single steps: expected a call of unroll"
                )
            inputs, new = cell(inputs, own)
            following += new
        return inputs, following

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        """Unrolls one cell after the other."""
        self.reset()
        states = self._first_states(begin_state)
        following: list[Any] = []
        last = len(self._cells) - 1
        for i, (cell, own) in enumerate(zip(self._cells, self._shares(states), strict=True)):
            inputs, new = cell.unroll(
                length, inputs=inputs, begin_state=own, layout=layout,
                merge_outputs=None if i < last else merge_outputs,
            )  # fmt: skip
            following += new
        return inputs, following


class BidirectionalCell(ContainerCell):
    """Two cells, one forwards and one backwards in time; their outputs are concatenated.

    Parameters
    ----------
    l_cell, r_cell : BaseRNNCell
        Forwards and backwards.
    params : RNNParams, optional
    output_prefix : str
        Beginning of the names of the outputs.
    """

    def __init__(
        self,
        l_cell: BaseRNNCell,
        r_cell: BaseRNNCell,
        params: RNNParams | None = None,
        output_prefix: str = "bi_",
    ) -> None:
        super().__init__(prefix="", params=params)
        self._output_prefix = output_prefix
        self._adopt(l_cell)
        self._adopt(r_cell)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Raises: one step backwards needs the whole sequence."""
        raise NotImplementedError(
            "a BidirectionalCell has no single steps: expected a call of unroll"
        )

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        """Composes `length` steps in both directions."""
        self.reset()
        steps = split_time(length, inputs, layout)
        states = self._first_states(begin_state)
        left, right = self._cells
        own, others = self._shares(states)
        forwards, l_states = left.unroll(length, steps, own, layout, merge_outputs)
        backwards, r_states = right.unroll(length, steps[::-1], others, layout, merge_outputs)
        if merge_outputs is None:
            merge_outputs = isinstance(forwards, Symbol) and isinstance(backwards, Symbol)
        following = [l_states, r_states]
        if merge_outputs:
            reverse = sym.reverse(join_time(backwards, layout), axis=time_axis(layout))
            both = join_time(forwards, layout), reverse
            return sym.Concat(*both, dim=2, name=f"{self._output_prefix}out"), following
        forwards, backwards = (split_time(length, x, layout) for x in (forwards, backwards))
        names = [f"{self._output_prefix}t{i}" for i in range(length)]
        pairs = zip(forwards, reversed(backwards), names, strict=True)
        return [sym.Concat(f, b, dim=1, name=name) for f, b, name in pairs], following
