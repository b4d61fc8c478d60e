"""Iterators over the batches of other iterators; `ResizeIter` changes how many are an epoch."""

from __future__ import annotations

import math
from typing import Any

from ..base import shown
from ..ndarray import NDArray
from .base import DataBatch, DataIter

__all__ = ["BatchesOfOthers", "ResizeIter"]


class BatchesOfOthers(DataIter):
    """An iterator whose `iter_next` takes a batch of others as the current one."""

    current_batch: DataBatch | None = None

    def next(self) -> DataBatch:
        """The next batch.

        Raises
        ------
        StopIteration
            At the end of the epoch.
        """
        if not self.iter_next():
            raise StopIteration
        return self._batch()

    def _batch(self) -> DataBatch:
        if self.current_batch is None:
            raise ValueError("there is no current batch: call iter_next first")
        return self.current_batch

    def getdata(self) -> list[NDArray]:
        """Data arrays of the current batch."""
        return self._batch().data

    def getlabel(self) -> list[NDArray] | None:
        """Label arrays of the current batch."""
        return self._batch().label

    def getindex(self) -> Any:
        """Indices of the current rows, if known."""
        return self._batch().index

    def getpad(self) -> int:
        """How many of the last rows are padding."""
        return self._batch().pad or 0


class ResizeIter(BatchesOfOthers):
    """Another iterator with epochs of `size` batches; it is begun again where it ends.

    Parameters
    ----------
    data_iter : DataIter
        Source of the batches.
    size : float
        Batches per epoch; a number that is not whole is rounded up.
    reset_internal : bool
        Whether `reset` resets the source too; otherwise an epoch goes on where the last one ended.

    Example
    -------
    >>> import numpy as np
    >>> from rsnet.io import NDArrayIter
    >>> batches = ResizeIter(NDArrayIter(np.arange(4.0), batch_size=2), 3)
    >>> [b.data[0].asnumpy().tolist() for b in batches]
    [[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]
    """

    def __init__(self, data_iter: Any, size: float, reset_internal: bool = True) -> None:
        if not hasattr(data_iter, "provide_data"):
            raise TypeError(f"invalid data_iter {shown(data_iter)}: expected a DataIter")
        super().__init__(getattr(data_iter, "batch_size", 0))
        if not hasattr(size, "__float__") or not 0 <= size < math.inf:
            raise ValueError(f"invalid size {size!r}: expected a number of batches, at least 0")
        self.data_iter = data_iter
        self.size = size
        self.reset_internal = reset_internal
        self.cur = 0
        self.provide_data = data_iter.provide_data
        self.provide_label = data_iter.provide_label
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key

    def reset(self) -> None:
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def iter_next(self) -> bool:
        if self.cur >= self.size:
            return False
        try:
            self.current_batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            try:
                self.current_batch = self.data_iter.next()
            except StopIteration:
                raise ValueError("invalid iterator: expected one batch at least") from None
        self.cur += 1
        return True
