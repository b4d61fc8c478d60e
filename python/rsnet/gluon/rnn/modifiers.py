"""Cells that change what another cell does: dropout, zoneout, residual connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import ndarray as nd
from .containers import BidirectionalCell
from .recurrent_cell import HybridRecurrentCell, formatted, masked, module_of, split_time

__all__ = ["DropoutCell", "ModifierCell", "ResidualCell", "ZoneoutCell"]


class DropoutCell(HybridRecurrentCell):
    """Dropout on the input, without states.

    Parameters
    ----------
    rate : float
        Share of the elements that become 0 while training.
    axes : tuple of int
        Axes along which all elements share their fate.
    """

    def __init__(
        self,
        rate: float,
        axes: tuple[int, ...] = (),
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix, params)
        if not isinstance(rate, (int, float)):
            raise AssertionError(f"DropoutCell: invalid rate {rate!r}: expected a number")
        self._rate = rate
        self._axes = axes

    def _alias(self) -> str:
        return "dropout"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """None."""
        return []

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        if self._rate > 0:
            name = f"{self._step_name()}fwd"
            inputs = F.Dropout(inputs, p=self._rate, axes=self._axes, name=name)
        return inputs, states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """As `RecurrentCell.unroll`; a sequence that is one array stays one."""
        if isinstance(inputs, (list, tuple)):
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        self.reset()
        self._counter += 1
        F = module_of(inputs)
        outputs = self.hybrid_forward(F, inputs, [])[0]
        _, axis, _, _ = split_time(length, inputs, layout)
        return formatted(F, outputs, length, axis, merge_outputs), []

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rate={self._rate}, axes={self._axes})"


class ModifierCell(HybridRecurrentCell):
    """Base of cells that change what another cell does; the other one then has no states of its
    own.

    Parameters
    ----------
    base_cell : HybridRecurrentCell
    """

    def __init__(self, base_cell: Any) -> None:
        if base_cell._modified:
            raise AssertionError(
                f"cell '{base_cell.name}' has a modifier already: expected a cell without one"
            )
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self) -> Any:
        """The parameters of the other cell."""
        return self.base_cell.params if "base_cell" in self.__dict__ else self._params

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The states of the other cell."""
        return self.base_cell.state_info(batch_size)

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """The first states of the other cell."""
        self._check_unmodified()
        with self._released() as base:
            return base.begin_state(func=func, batch_size=batch_size, **kwargs)

    @contextmanager
    def _released(self) -> Iterator[Any]:
        """The other cell, which may be called directly meanwhile."""
        self.base_cell._modified = False
        try:
            yield self.base_cell
        finally:
            self.base_cell._modified = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell!r})"


class ZoneoutCell(ModifierCell):
    """While training, keeps outputs and states of the step before with a probability each (Krueger
    et al. 2016).

    Parameters
    ----------
    base_cell : HybridRecurrentCell
    zoneout_outputs, zoneout_states : float
    """

    def __init__(
        self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0
    ) -> None:
        if isinstance(base_cell, BidirectionalCell):
            raise AssertionError(
                "ZoneoutCell: invalid base_cell, a BidirectionalCell, which has no single steps: "
                "expected another (modify the cells inside of it)"
            )
        super().__init__(base_cell)
        self.zoneout_outputs = zoneout_outputs
        self.zoneout_states = zoneout_states
        self._prev_output: Any = None

    def _alias(self) -> str:
        return "zoneout"

    def reset(self) -> None:
        super().reset()
        self._prev_output = None

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        output, following = self.base_cell(inputs, states)

        def kept(p: float, new: Any, old: Any) -> Any:
            # Dropout keeps the elements that take the new value.
            return F.where(F.Dropout(F.ones_like(new), p=p), new, old) if p else new

        before = self._prev_output
        before = F.zeros_like(output) if before is None else before
        output = kept(self.zoneout_outputs, output, before)
        following = [kept(self.zoneout_states, n, o) for n, o in zip(following, states)]
        self._prev_output = output
        return output, following

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(p_out={self.zoneout_outputs}, p_state={self.zoneout_states}, "
            f"{self.base_cell!r})"
        )


class ResidualCell(ModifierCell):
    """Adds the input to the output (Wu et al. 2016)."""

    def _alias(self) -> str:
        return "residualcell"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        output, states = self.base_cell(inputs, states)
        return F.elemwise_add(output, inputs, name=f"{self._step_name()}fwd"), states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Unrolls the other cell and adds the inputs, see `RecurrentCell.unroll`."""
        self.reset()
        with self._released() as base:
            outputs, states = base.unroll(
                length, inputs, begin_state, layout, merge_outputs, valid_length
            )
        steps, axis, F, _ = split_time(length, inputs, layout)
        merge = not isinstance(outputs, (list, tuple)) if merge_outputs is None else merge_outputs
        given: Any = formatted(F, steps, length, axis, merge)
        if merge:
            if valid_length is not None:
                given = masked(F, given, valid_length, axis)
            return F.elemwise_add(outputs, given), states
        if valid_length is not None:
            given = formatted(F, masked(F, given, valid_length, axis), length, axis, False)
        return [F.elemwise_add(a, b) for a, b in zip(outputs, given, strict=True)], states
