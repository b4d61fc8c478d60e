"""`NDArrayIter`: batches of arrays in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._numbers import integer
from ..base import shown
from ..ndarray import NDArray, array, concat, take, tile
from .base import DataDesc, DataIter

__all__ = ["NDArrayIter", "named_arrays"]


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
