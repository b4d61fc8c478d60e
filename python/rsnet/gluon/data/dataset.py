"""Data sets: samples by number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..._mxnet_names import module_getattr
from ...base import shown
from ...ndarray import NDArray

__all__ = ["ArrayDataset", "Dataset", "RecordFileDataset", "SimpleDataset"]


class Dataset:
    """Base of data sets; a subclass defines ``__getitem__(i)`` and ``__len__()``.

    Examples
    --------
    >>> from rsnet.gluon.data import SimpleDataset
    >>> data = SimpleDataset([1, 2, 3, 4])
    >>> list(data.filter(lambda x: x % 2 == 0).transform(lambda x: x * 10))
    [20, 40]
    """

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def filter(self, fn: Callable[[Any], bool]) -> Dataset:
        """The samples for which `fn` is true; it is called with all of them, here and now."""
        from .sampler import FilterSampler

        return _Sampled(self, FilterSampler(fn, self))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """One of `num_shards` parts of nearly equal length.

        Raises
        ------
        AssertionError
            There is no such part.
        """
        if not 0 <= index < num_shards:
            raise AssertionError(
                f"shard: invalid index {index}: expected 0 to {num_shards - 1} for {num_shards} "
                "shards"
            )
        from .sampler import SequentialSampler

        length, longer = divmod(len(self), num_shards)
        begin = length * index + min(index, longer)
        count = length + (index < longer)
        return _Sampled(self, SequentialSampler(count, begin))

    def take(self, count: int | None) -> Dataset:
        """The first `count` samples; all if None or if there are no more."""
        from .sampler import SequentialSampler

        if count is not None and count < 0:
            raise AssertionError(f"take: invalid count {count}: expected at least 0")
        count = len(self) if count is None else min(count, len(self))
        return _Sampled(self, SequentialSampler(count))

    def sample(self, sampler: Any) -> Dataset:
        """The samples whose numbers a sampler gives, once and for all."""
        from .sampler import Sampler

        if not isinstance(sampler, Sampler):
            raise TypeError(f"invalid sampler {sampler!r}: expected a gluon.data.Sampler")
        return _Sampled(self, sampler)

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """The samples after `fn`, which is called with all fields of one.

        Parameters
        ----------
        fn : callable
        lazy : bool
            Call it whenever a sample is asked for? If not, it is called for all, here and now.
        """
        if not callable(fn):
            raise TypeError(f"invalid fn {shown(fn)}: expected a function of a sample's fields")
        found = _LazyTransformDataset(self, fn)
        return found if lazy else SimpleDataset(list(found))

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """The samples after `fn`, which is called with the first field of one."""
        return self.transform(_First(fn), lazy)


class _First:
    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, x: Any, *rest: Any) -> Any:
        return (self._fn(x), *rest) if rest else self._fn(x)


def _check_samples(name: str, data: Any) -> None:
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TypeError(f"invalid {name} {shown(data)}: expected an array, a list or a Dataset")


class SimpleDataset(Dataset):
    """A list, or anything else with numbers and a length, as a data set."""

    def __init__(self, data: Sequence[Any]) -> None:
        _check_samples("data", data)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        return self._data[idx]


class _LazyTransformDataset(Dataset):
    def __init__(self, data: Dataset, fn: Callable[..., Any]) -> None:
        self._data = data
        self._fn = fn

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        item = self._data[idx]
        return self._fn(*item) if isinstance(item, tuple) else self._fn(item)


class _Sampled(Dataset):
    def __init__(self, data: Dataset, sampler: Any) -> None:
        self._data = data
        self._indices = list(sampler)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, idx: int) -> Any:
        return self._data[self._indices[idx]]


class ArrayDataset(Dataset):
    """Arrays or data sets of one length side by side: a sample has a field of each.

    Parameters
    ----------
    *args : NDArray, array_like or Dataset

    Raises
    ------
    AssertionError
        There are none, or their lengths differ.

    Examples
    --------
    >>> from rsnet.gluon.data import ArrayDataset
    >>> ArrayDataset([1, 2, 3], [10, 20, 30])[1]
    (2, 20)
    """

    def __init__(self, *args: Any) -> None:
        if not args:
            raise AssertionError("ArrayDataset: expected one array at least")
        for i, data in enumerate(args):
            _check_samples(f"array {i}", data)
        self._length = len(args[0])
        self._data = []
        for i, data in enumerate(args):
            if len(data) != self._length:
                raise AssertionError(
                    f"ArrayDataset: array {i} has length {len(data)}, expected {self._length}, "
                    "that of array 0"
                )
            if isinstance(data, NDArray) and data.ndim == 1:
                data = data.asnumpy()
            self._data.append(data)

    def __getitem__(self, idx: int) -> Any:
        if len(self._data) == 1:
            return self._data[0][idx]
        return tuple(data[idx] for data in self._data)

    def __len__(self) -> int:
        return self._length


class RecordFileDataset(Dataset):
    """The records of a RecordIO file as bytes; its index (``.idx``) is beside it.

    Parameters
    ----------
    filename : str
        Path of the ``.rec`` file.
    """

    def __init__(self, filename: str) -> None:
        self.filename = os.fspath(filename)
        self.idx_file = os.path.splitext(self.filename)[0] + ".idx"
        self._pid = os.getpid()
        self._record = self._open()

    def _open(self) -> Any:
        from ...base import MXFileNotFoundError
        from ...recordio import MXIndexedRecordIO

        for path in (self.filename, self.idx_file):
            if not os.path.exists(path):
                raise MXFileNotFoundError(
                    f"RecordFileDataset: invalid file '{path}': expected one that exists"
                )
        return MXIndexedRecordIO(self.idx_file, self.filename, "r")

    def __getitem__(self, idx: int) -> Any:
        if self._pid != os.getpid():  # a file position belongs to one process
            self._record = self._open()  # before the other: threads may ask at the same time
            self._pid = os.getpid()
        return self._record.read_idx(self._record.keys[idx])

    def __len__(self) -> int:
        return len(self._record.keys)


__getattr__ = module_getattr(__name__)
