"""Batches of data for training loops.

A `DataIter` yields `DataBatch`es; `NDArrayIter` makes them from arrays in memory.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._numbers import integer
from ..base import shown
from ..ndarray import NDArray, array, concat, take, tile

__all__ = ["DataDesc", "DataBatch", "DataIter", "MXDataIter", "NDArrayIter", "ResizeIter"]


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

    @staticmethod
    def get_list(
        shapes: Sequence[tuple[str, Sequence[int]]], types: Sequence[tuple[str, Any]] | None
    ) -> list[DataDesc]:
        """Descriptions from pairs (name, shape) and, where given, pairs (name, dtype)."""
        dtypes = dict(types or ())
        if types is None:
            return [DataDesc(name, shape) for name, shape in shapes]
        return [DataDesc(name, shape, dtypes[name]) for name, shape in shapes]


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
        for name, value in (("data", data), ("label", label)):
            if value is not None and not isinstance(value, (list, tuple)):
                raise TypeError(f"invalid {name} {shown(value)}: expected a list of NDArrays")
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
    """Base class of iterators over batches.

    A subclass defines `iter_next` and `getdata`; `getlabel`, `getpad`, `getindex` and `reset` where
    it has labels, padding, indices, or more than one epoch.
    """

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[DataBatch]:
        return self

    def reset(self) -> None:
        """Moves back before the first batch."""

    def next(self) -> DataBatch:
        """Returns the next batch.

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
        """Moves to the next batch; returns whether there is one."""
        raise NotImplementedError(f"{type(self).__name__} does not define 'iter_next'")

    def getdata(self) -> Any:
        """Data arrays of the current batch; one array of an `MXDataIter`."""
        raise NotImplementedError(f"{type(self).__name__} does not define 'getdata'")

    def getlabel(self) -> Any:
        """Label arrays of the current batch, as `getdata`; `None` if there are no labels."""
        return None

    def getindex(self) -> Any:
        """Indices of the current rows; `None` if they are unknown."""
        return None

    def getpad(self) -> int:
        """Number of rows of the current batch that do not count; 0 by default."""
        return 0


class MXDataIter(DataIter):
    """Base of iterators over files: `MNISTIter`, `CSVIter`, `LibSVMIter`, and those over record
    files of images.
    """

    def next(self) -> DataBatch:
        """As of any iterator; `getdata` and `getlabel` give one array each."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch([self.getdata()], [self.getlabel()], self.getpad(), self.getindex())

    def getlabel(self) -> NDArray:
        """The labels of the current batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define 'getlabel'")


def named_arrays(source: Any, default: str, allow_empty: bool) -> list[tuple[str, NDArray]]:
    """The arrays of `source` by name: one array, a list of arrays or a dict, sorted by key."""
    if source is None:
        source = []
    if isinstance(source, dict):
        items = sorted(source.items())
    elif isinstance(source, (list, tuple)):
        many = len(source) > 1
        items = [(f"_{i}_{default}" if many else default, x) for i, x in enumerate(source)]
    else:
        items = [(default, source)]
    if not items and not allow_empty:
        raise ValueError(f"no {default}: expected an array, a list or a dict of arrays")
    return [(name, _rows(name, x)) for name, x in items]


def _rows(name: str, x: Any) -> NDArray:
    """`x` as an array of rows: an NDArray keeps its dtype, everything else becomes float32."""
    if not isinstance(x, NDArray):
        try:
            host = np.asarray(x, dtype="float32")
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"invalid {name} {shown(x)}: expected an NDArray, a NumPy array, or a list or dict "
                f"of them, of numbers ({error})"
            ) from None
        if host.ndim == 0:
            raise TypeError(f"invalid {name} {shown(x)}: expected an array of rows")
        if host.size == 0:
            raise ValueError(f"invalid shape of {name} {host.shape}: expected at least one row")
        return array(host, dtype="float32")
    return x


class NDArrayIter(DataIter):
    """Batches of rows of arrays in memory.

    Parameters
    ----------
    data, label : array, list of arrays or dict of str to array
        Rows along the first axis, the same number in all. NumPy arrays become float32.
    batch_size : int
        Rows per batch: at most 2**31 - 1 or the number of rows, whichever is larger.
    shuffle : bool
        Reorder the rows now and at each `reset`, by NumPy's global generator.
    last_batch_handle : {'pad', 'discard', 'roll_over'}
        What happens to a short last batch: 'pad' fills it with the first rows, 'discard' drops it,
        'roll_over' makes it the beginning of the next epoch.
    data_name, label_name : str
        Names of single arrays.

    Attributes
    ----------
    data, label : list of tuple (str, NDArray)
        The arrays in the order of the current epoch.
    data_list : list of NDArray
        The arrays of `data` and `label`.
    idx : numpy.ndarray
        Permutation that the last shuffle applied.
    cursor : int
        First row of the current batch; negative where the batch begins with rows of the epoch
        before, and before the first batch.
    num_data, num_source : int
        Number of rows and of arrays.

    Raises
    ------
    ValueError
        If the arrays differ in length, or the options do not fit.

    Notes
    -----
    `pad` of a batch is the number of rows that belong to another epoch: with 'pad' those added at
    the end, with 'roll_over' those kept from the epoch before.

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
        batch_size = integer("batch_size", batch_size, least=1)
        super().__init__(batch_size)
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ValueError(
                f"invalid last_batch_handle {last_batch_handle!r}: "
                "expected 'pad', 'discard' or 'roll_over'"
            )
        self.data = named_arrays(data, data_name, allow_empty=False)
        self.label = named_arrays(label, label_name, allow_empty=True)
        lengths = [(name, len(x)) for name, x in self.data + self.label]
        if len({length for _, length in lengths}) != 1:
            told = ", ".join(f"{name!r}: {length}" for name, length in lengths)
            raise ValueError(f"invalid numbers of rows {{{told}}}: expected one number for all")
        self.num_data = lengths[0][1]
        most = max(self.num_data, 2**31 - 1)
        if batch_size > most:
            raise ValueError(f"invalid batch_size {batch_size}: expected at most {most}")
        self.num_source = len(lengths)
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.layout = layout
        self.idx = np.arange(self.num_data)
        # Of each array, in the order of `data_list`.
        self._kept: list[NDArray | None] = [None] * self.num_source
        self._start_epoch(0)

    @property
    def data_list(self) -> list[NDArray]:
        """The arrays of `data`, then those of `label`."""
        return [x for _, x in self.data + self.label]

    def _descs(self, arrays: list[tuple[str, NDArray]]) -> list[DataDesc]:
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

    def _start_epoch(self, kept: int) -> None:
        """Begins an epoch whose first batch starts with the last `kept` rows of the order before.

        `kept` can exceed `num_data` where a batch needs the rows of several epochs.
        """
        before = self.data_list
        if self.shuffle:
            np.random.shuffle(self.idx)
            order = array(self.idx, dtype="int64")
            self.data = [(name, take(x, order)) for name, x in self.data]
            self.label = [(name, take(x, order)) for name, x in self.label]
        self._kept = [
            self._last(earlier, x, kept) if kept else None
            for earlier, x in zip(self._kept, before, strict=True)
        ]
        self.cursor = -self.batch_size - kept

    @staticmethod
    def _last(earlier: NDArray | None, rows: NDArray, count: int) -> NDArray:
        """The last `count` rows of those kept before and `rows`."""
        if earlier is not None and count > len(rows):
            rows = concat(earlier, rows, dim=0)
        return rows[len(rows) - count :].copy()

    def hard_reset(self) -> None:
        """Begins an epoch without rows kept from the one before."""
        self._start_epoch(0)

    def reset(self) -> None:
        """Begins the next epoch; with 'roll_over' its first batch starts with unused rows."""
        kept = 0
        if self.last_batch_handle == "roll_over":
            left = self.num_data - self.cursor
            kept = left if 0 < left < self.batch_size else 0
        self._start_epoch(kept)

    def iter_next(self) -> bool:
        self.cursor += self.batch_size
        left = self.num_data - self.cursor
        return left > 0 if self.last_batch_handle == "pad" else left >= self.batch_size

    def _take(self, places: slice) -> list[NDArray]:
        """The current batch of these arrays of `data_list`."""
        if not -self.batch_size < self.cursor < self.num_data:
            raise ValueError("there is no current batch: call 'iter_next' first")
        pairs = zip(self._kept, self.data_list, strict=True)
        return [self._batch(kept, x) for kept, x in list(pairs)[places]]

    def _batch(self, kept: NDArray | None, rows: NDArray) -> NDArray:
        """The current batch of one array, in memory of its own."""
        begin, end = self.cursor, self.cursor + self.batch_size
        if 0 <= begin and end <= self.num_data:
            return rows[begin:end].copy()
        parts = [kept] if begin < 0 and kept is not None else []
        parts.append(rows[max(begin, 0) : min(end, self.num_data)])
        whole, rest = divmod(max(end - self.num_data, 0), self.num_data)
        if whole:
            parts.append(tile(rows, reps=(whole, *[1] * (rows.ndim - 1))))
        if rest:
            parts.append(rows[:rest])
        batch: NDArray = concat(*parts, dim=0)
        return batch

    def getdata(self) -> list[NDArray]:
        return self._take(slice(len(self.data)))

    def getlabel(self) -> list[NDArray]:
        return self._take(slice(len(self.data), None))

    def getpad(self) -> int:
        if self.last_batch_handle == "pad":
            return max(self.cursor + self.batch_size - self.num_data, 0)
        return max(-self.cursor, 0) if self.cursor > -self.batch_size else 0


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
