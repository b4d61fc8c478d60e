"""Batches of data for training loops.

A `DataIter` yields `DataBatch`es; `NDArrayIter` makes them from arrays in memory.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .ndarray import NDArray, array

__all__ = ["DataDesc", "DataBatch", "DataIter", "NDArrayIter"]


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """Name, shape, dtype and layout of one array of a batch; as a tuple it is (name, shape)."""

    dtype: Any
    layout: str | None

    def __new__(
        cls,
        name: str,
        shape: Sequence[int],
        dtype: Any = np.float32,
        layout: str | None = "NCHW",
    ) -> DataDesc:
        desc = super().__new__(cls, name, tuple(shape))
        desc.dtype = dtype
        desc.layout = layout
        return desc

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Index of the axis N; 0 if there is no layout."""
        return 0 if layout is None else layout.find("N")


class DataBatch:
    """One batch: lists of arrays, and how many of the last rows are padding."""

    def __init__(
        self,
        data: list[NDArray],
        label: list[NDArray] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: list[DataDesc] | None = None,
        provide_label: list[DataDesc] | None = None,
    ) -> None:
        for name, value in (("Data", data), ("Label", label)):
            if value is not None and not isinstance(value, (list, tuple)):
                raise TypeError(f"{name} must be list of NDArrays, got {type(value).__name__}")
        self.data = data
        self.label = label
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    def __str__(self) -> str:
        shapes = [d.shape for d in self.data]
        labels = [d.shape for d in self.label] if self.label else None
        return f"DataBatch: data shapes: {shapes} label shapes: {labels}"


class DataIter:
    """Base: a subclass defines `iter_next`, `getdata`, `getlabel`, `getpad` and `reset`."""

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[DataBatch]:
        return self

    def reset(self) -> None:
        """Back to the first batch."""

    def next(self) -> DataBatch:
        """The next batch.

        Raises
        ------
        StopIteration
            At the end of the epoch.
        """
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def __next__(self) -> DataBatch:
        return self.next()

    def iter_next(self) -> bool:
        """Moves on; is there a batch?"""
        raise NotImplementedError

    def getdata(self) -> list[NDArray]:
        """Data arrays of the current batch."""
        raise NotImplementedError

    def getlabel(self) -> list[NDArray]:
        """Label arrays of the current batch."""
        raise NotImplementedError

    def getindex(self) -> Any:
        """Indices of the current rows, if known."""
        return None

    def getpad(self) -> int:
        """How many of the last rows are padding."""
        raise NotImplementedError


def _named(source: Any, default: str, allow_empty: bool) -> list[tuple[str, np.ndarray]]:
    """The arrays of `source` by name: one array, a list of them or a dict, sorted by key."""
    if source is None:
        if not allow_empty:
            raise ValueError(f"no {default}: expected an array, a list or a dict of arrays")
        return []
    if isinstance(source, dict):
        items = sorted(source.items())
    elif isinstance(source, (list, tuple)):
        many = len(source) > 1
        items = [(f"_{i}_{default}" if many else default, x) for i, x in enumerate(source)]
    else:
        items = [(default, source)]
    arrays = []
    for name, x in items:
        host = x.asnumpy() if isinstance(x, NDArray) else np.asarray(x, dtype="float32")
        if host.ndim == 0:
            raise TypeError(f"{name} has no axes, expected an array of rows")
        arrays.append((name, host))
    return arrays


class NDArrayIter(DataIter):
    """Batches of rows of arrays in memory.

    Parameters
    ----------
    data, label : array, list of arrays or dict of str to array
        Rows along the first axis, as many in all. NumPy arrays become float32.
    batch_size : int
        Rows a batch.
    shuffle : bool
        Draw a new order now and at each `reset`, from NumPy's global generator.
    last_batch_handle : {'pad', 'discard', 'roll_over'}
        What to do with a short last batch: fill it with the first rows (`pad` counts them), drop
        it, or begin the next epoch with it.
    data_name, label_name : str
        Names of single arrays.

    Raises
    ------
    ValueError
        If the arrays differ in length, or the options do not fit.

    Example
    -------
    >>> batches = NDArrayIter(np.arange(10.0), batch_size=4, last_batch_handle="pad")
    >>> [(b.data[0].asnumpy().tolist(), b.pad) for b in batches][-1]
    ([8.0, 9.0, 0.0, 1.0], 2)
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str = "NCHW",
    ) -> None:
        super().__init__(batch_size)
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ValueError(
                f"last_batch_handle is {last_batch_handle!r}, "
                "expected 'pad', 'discard' or 'roll_over'"
            )
        self.data = _named(data, data_name, allow_empty=False)
        self.label = _named(label, label_name, allow_empty=True)
        lengths = {name: len(x) for name, x in self.data + self.label}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"arrays differ in their number of rows: {lengths}")
        self.num_data = next(iter(lengths.values()))
        if batch_size < 1 or (batch_size > self.num_data and last_batch_handle != "pad"):
            raise ValueError(f"batch_size is {batch_size} for {self.num_data} rows")
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.layout = layout
        self._order = np.arange(self.num_data)
        self._left_over = np.empty(0, dtype=self._order.dtype)
        self._rows = self._order[:0]
        self._pad = 0
        self._start_epoch()

    def _descs(self, arrays: list[tuple[str, np.ndarray]]) -> list[DataDesc]:
        return [
            DataDesc(n, (self.batch_size, *x.shape[1:]), x.dtype, self.layout) for n, x in arrays
        ]

    @property
    def provide_data(self) -> list[DataDesc]:
        """Names and shapes of the data arrays of a batch."""
        return self._descs(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Names and shapes of the label arrays of a batch."""
        return self._descs(self.label)

    def _start_epoch(self) -> None:
        if self.shuffle:
            np.random.shuffle(self._order)
        self._queue = np.concatenate([self._left_over, self._order])
        self._merged = len(self._left_over) > 0
        self._cursor = -self.batch_size

    def hard_reset(self) -> None:
        """Starts afresh, without rows kept from the last epoch."""
        self._left_over = self._left_over[:0]
        self._start_epoch()

    def reset(self) -> None:
        if self.last_batch_handle != "roll_over":
            self._left_over = self._left_over[:0]
        self._start_epoch()

    def iter_next(self) -> bool:
        self._cursor += self.batch_size
        left = len(self._queue) - self._cursor
        self._pad = 0
        if left <= 0:
            self._left_over = self._left_over[:0]
            return False
        self._rows = self._queue[self._cursor : self._cursor + self.batch_size]
        if self._merged and self._cursor == 0:
            self._pad = self.batch_size - len(self._left_over)
        if left >= self.batch_size:
            return True
        if self.last_batch_handle == "pad":
            self._pad = self.batch_size - left
            repeats = -(-self._pad // self.num_data)
            self._rows = np.concatenate([self._rows, np.tile(self._order, repeats)[: self._pad]])
            return True
        self._left_over = self._rows.copy()
        return False

    def _take(self, arrays: list[tuple[str, np.ndarray]]) -> list[NDArray]:
        return [array(x[self._rows], dtype=x.dtype) for _, x in arrays]

    def getdata(self) -> list[NDArray]:
        return self._take(self.data)

    def getlabel(self) -> list[NDArray]:
        return self._take(self.label)

    def getpad(self) -> int:
        return self._pad
