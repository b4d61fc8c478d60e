"""The rows of a batch: how devices share them, and what devices computed put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from ..io import DataDesc

__all__ = ["batch_axis", "batch_size_of", "concatenated", "split_batch"]


def split_batch(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """The rows of each device, in proportion to its work load.

    Device i takes round(load_i · batch_size / total) rows, the last device what is left.

    Raises
    ------
    ValueError
        A device would have no rows, or a load is negative, or all are 0.

    Examples
    --------
    >>> split_batch(10, [1, 1, 2])
    [slice(0, 2, None), slice(2, 4, None), slice(4, 10, None)]
    """
    total = sum(work_load_list)
    if not total > 0 or min(work_load_list) < 0:
        loads = list(work_load_list)
        raise ValueError(f"invalid work_load_list {loads}: expected numbers greater than 0")
    counts = [round(load * batch_size / total) for load in work_load_list]
    counts[-1] += batch_size - sum(counts)
    ends = [int(min(end, batch_size)) for end in np.cumsum(counts)]
    slices = [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    if any(s.start >= s.stop for s in slices):
        raise ValueError(
            f"Too many slices. Some splits are empty: {batch_size} rows for {len(slices)} devices, "
            "expected at least one for each"
        )
    return slices


def batch_axis(desc: Any) -> int:
    """The axis of the batch's rows, by the layout of a description; -1 if there is none."""
    return DataDesc.get_batch_axis(getattr(desc, "layout", None))


def batch_size_of(descs: Sequence[DataDesc]) -> int:
    """The number of rows that all of `descs` have.

    Raises
    ------
    ValueError
        They differ.
    """
    sizes = {}
    for desc in descs:
        axis = batch_axis(desc)
        if axis >= 0:
            sizes[desc.name] = desc.shape[axis]
    if len(set(sizes.values())) > 1:
        raise ValueError(f"invalid batch sizes {sizes}: expected the same for all data")
    return next(iter(sizes.values()), 0)


def concatenated(parts: list[Any], axis: int) -> Any:
    """The parts that devices computed, as one array on the first device."""
    if len(parts) == 1 or axis < 0:
        return parts[0]
    return nd.concat(*(p.as_in_context(parts[0].context) for p in parts), dim=axis)
