"""The copies of a parameter as subclasses and libraries that were written for MXNet reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..context import Context
from ..ndarray import NDArray


class CopiesByDevice:
    """What MXNet's `Parameter` has for finding its copy on a device, beside `data` and `grad`."""

    if TYPE_CHECKING:
        _ctx_list: list[Context] | None

        def _check_initialized(self) -> list[NDArray]: ...
        def _on(self, arrays: list[NDArray], ctx: Context | None) -> NDArray: ...

    @property
    def _ctx_map(self) -> list[list[int | None]] | None:
        """Places in the lists of copies: by kind of device (GPUs, others), then by its number."""
        if self._ctx_list is None:
            return None
        index: list[list[int | None]] = [[], []]
        for place, ctx in enumerate(self._ctx_list):
            row = index[ctx.device_typeid & 1]
            row.extend([None] * (ctx.device_id + 1 - len(row)))
            row[ctx.device_id] = place
        return index

    @_ctx_map.setter
    def _ctx_map(self, index: Any) -> None:
        """Does nothing, as `_ctx_list` decides; classes that wrap a parameter set both."""

    def _check_and_get(self, arr_list: list[NDArray] | None, ctx: Any) -> Any:
        """The array on a device, or all of them for `list`."""
        arrays = self._check_initialized() if arr_list is None else arr_list
        return arrays if ctx is list else self._on(arrays, ctx)
