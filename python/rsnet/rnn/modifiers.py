"""Cells that change what another cell computes: zoneout, residual connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .. import symbol as sym
from ..ndarray import NDArray
from ..symbol import Symbol
from .base_cell import BaseRNNCell, RNNParams, join_time, split_time
from .containers import BidirectionalCell
from .fused_cell import FusedRNNCell

__all__ = ["ModifierCell", "ResidualCell", "ZoneoutCell"]


class ModifierCell(BaseRNNCell):
    """Base of cells that modify another one, whose parameters and states they have.

    Parameters
    ----------
    base_cell : BaseRNNCell
    """

    def __init__(self, base_cell: BaseRNNCell) -> None:
        self.base_cell = base_cell
        super().__init__()
        base_cell._modified = True

    @property
    def params(self) -> RNNParams:
        """The parameters of the modified cell."""
        self._own_params = False
        return self.base_cell.params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """The states of the modified cell."""
        return self.base_cell.state_info

    def begin_state(self, func: Callable[..., Symbol] = sym.zeros, **kwargs: Any) -> list[Any]:
        """The states of the modified cell before the first step."""
        self._require_unmodified("begin_state")
        with self._calling_base_cell():
            return self.base_cell.begin_state(func=func, **kwargs)

    @contextmanager
    def _calling_base_cell(self) -> Iterator[None]:
        """Allows calls of the modified cell, which only its modifier may make."""
        self.base_cell._modified = False
        try:
            yield
        finally:
            self.base_cell._modified = True

    def unpack_weights(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """As the modified cell does."""
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """As the modified cell does."""
        return self.base_cell.pack_weights(args)

    def reset(self) -> None:
        """Resets the counters, also those of the modified cell."""
        super().reset()
        self.base_cell.reset()


class ZoneoutCell(ModifierCell):
    """Keeps elements of outputs and states from the step before (Krueger et al., arXiv:1606.01305).

    Parameters
    ----------
    base_cell : BaseRNNCell
    zoneout_outputs, zoneout_states : float
        Share of elements that keep their value.
    """

    def __init__(
        self, base_cell: BaseRNNCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0
    ) -> None:
        if isinstance(base_cell, FusedRNNCell):
            raise AssertionError("a FusedRNNCell has no single steps: call unfuse() first")
        if isinstance(base_cell, BidirectionalCell):
            raise AssertionError(
                "ZoneoutCell: invalid base_cell, a BidirectionalCell: expected one of the cells "
                "inside of it"
            )
        super().__init__(base_cell)
        self.zoneout_outputs = zoneout_outputs
        self.zoneout_states = zoneout_states

    def reset(self) -> None:
        """Resets the counters."""
        super().reset()
        self._previous: Symbol | None = None

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        output, following = self.base_cell(inputs, states)

        def kept(share: float, new: Symbol, old: Symbol) -> Symbol:
            changed = sym.Dropout(sym.ones_like(new), p=share)
            return sym.where(changed, new, old)

        if self.zoneout_outputs:
            before = sym.zeros_like(output) if self._previous is None else self._previous
            output = kept(self.zoneout_outputs, output, before)
        if self.zoneout_states:
            pairs = zip(following, states, strict=True)
            following = [kept(self.zoneout_states, new, old) for new, old in pairs]
        self._previous = output
        return output, following


class ResidualCell(ModifierCell):
    """Adds the input to the output (He et al., arXiv:1512.03385)."""

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """One step."""
        output, following = self.base_cell(inputs, states)
        added = sym.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")
        return added, following

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        """Unrolls the modified cell, and adds the inputs."""
        self.reset()
        with self._calling_base_cell():
            outputs, states = self.base_cell.unroll(
                length, inputs, begin_state, layout, merge_outputs=merge_outputs
            )
        if isinstance(outputs, Symbol):
            whole = join_time(inputs, layout)
            return sym.elemwise_add(outputs, whole, name=f"{outputs.name}_plus_residual"), states
        steps = split_time(length, inputs, layout)
        added = [
            sym.elemwise_add(o, i, name=f"{o.name}_plus_residual")
            for o, i in zip(outputs, steps, strict=True)
        ]
        return (join_time(added, layout) if merge_outputs else added), states
