"""What `mxnet.module.executor_group` has for executor groups that programs write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import ndarray as nd
from ..module.batch_rows import concatenated
from ..module.batch_rows import split_batch as _split_input_slice
from ..module.executor_group import _groups_of_devices as _prepare_group2ctxs
from ..ndarray import NDArray

__all__ = [
    "_load_data",
    "_load_general",
    "_load_label",
    "_merge_multi_context",
    "_prepare_group2ctxs",
    "_split_input_slice",
]


def _load_general(
    data: Sequence[Any], targets: Sequence[Any], major_axis: Sequence[int] | None = None
) -> None:
    """Copies arrays to devices.

    Parameters
    ----------
    data : list of NDArray
        Whole arrays, or for each a list with one per device.
    targets : list
        For each of `data` one NDArray, or a list of (rows, NDArray), one per device: `rows` is the
        slice of the axis that the NDArray gets.
    major_axis : list of int, optional
        The axis of each array that is divided, 0 by default; with a negative one the array is
        copied whole to every device.
    """
    if major_axis is None:
        major_axis = [0] * len(data)
    for source, target, axis in zip(data, targets, major_axis, strict=False):
        if isinstance(target, NDArray):
            source.copyto(target)
            continue
        for k, (rows, array) in enumerate(target):
            if isinstance(source, (list, tuple)):
                part = source[k]
            elif axis < 0 or rows == slice(0, source.shape[axis]):
                part = source
            else:
                part = nd.slice_axis(source, axis=axis, begin=rows.start, end=rows.stop)
            part.copyto(array)


def _load_data(batch: Any, targets: Sequence[Any], major_axis: Sequence[int] | None = None) -> None:
    """Copies the data of a batch to devices, see `_load_general`."""
    _load_general(batch.data, targets, major_axis)


def _load_label(
    batch: Any, targets: Sequence[Any], major_axis: Sequence[int] | None = None
) -> None:
    """Copies the labels of a batch to devices, see `_load_general`."""
    _load_general(batch.label, targets, major_axis)


def _merge_multi_context(outputs: Sequence[Sequence[Any]], major_axis: Sequence[int]) -> list[Any]:
    """The parts that devices computed of each output as one array on the first device; with a
    negative axis the first part.
    """
    return [concatenated(list(p), axis) for p, axis in zip(outputs, major_axis, strict=True)]
