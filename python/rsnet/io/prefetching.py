"""`PrefetchingIter`: the next batch is made while the current one is in use."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from .._daemon_threads import DaemonThreads
from ..base import shown
from .base import DataBatch, DataDesc
from .of_others import BatchesOfOthers

__all__ = ["PrefetchingIter"]


class PrefetchingIter(BatchesOfOthers):
    """Batches of one or several iterators, each read ahead by a thread of its own.

    An error in an iterator is raised by `next`, and the iterator can be read again after `reset`.
    Several threads may take batches by `next`; each batch goes to one of them.

    Parameters
    ----------
    iters : DataIter or list of DataIter
        Several give one batch together: the data and labels of all.
    rename_data, rename_label : list of dict of str to str, optional
        New names of the arrays, one dict an iterator.

    Raises
    ------
    ValueError
        There is no iterator, or not one dict of names for each.

    Examples
    --------
    >>> import numpy as np, rsnet as mx
    >>> batches = mx.io.PrefetchingIter(mx.io.NDArrayIter(np.arange(8.0), batch_size=4))
    >>> [b.data[0].asnumpy().tolist() for b in batches]
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
    """

    def __init__(
        self,
        iters: Any,
        rename_data: Sequence[dict[str, str]] | None = None,
        rename_label: Sequence[dict[str, str]] | None = None,
    ) -> None:
        self.iters = list(iters) if isinstance(iters, (list, tuple)) else [iters]
        if not self.iters:
            raise ValueError("iters is empty, expected one iterator or more")
        for source in self.iters:
            if not getattr(source, "provide_data", None):
                raise TypeError(
                    f"invalid iters {shown(iters)}: expected a DataIter or a list of them"
                )
        for what, names in (("rename_data", rename_data), ("rename_label", rename_label)):
            if names is not None and len(names) != len(self.iters):
                raise ValueError(f"{what} has {len(names)} dicts, expected {len(self.iters)}")
        super().__init__(_described(self.iters[0].provide_data[0]).shape[0])
        self.rename_data, self.rename_label = rename_data, rename_label
        self.n_iter = len(self.iters)
        self._threads: DaemonThreads | None = None
        self._upcoming: list[_Upcoming] = []
        self._sources: list[Iterator[DataBatch]] = []  # the passes over `iters` that are under way
        self._owner = os.getpid()
        self._locks: dict[int, Any] = {}

    @property
    def _lock(self) -> Any:
        """The lock of this process: a fork's copy of another may be held, and is never released."""
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def _descs(self, which: str, names: Any) -> list[DataDesc]:
        found = []
        for i, source in enumerate(self.iters):
            for desc in map(_described, getattr(source, which) or ()):
                name = desc.name if names is None else names[i].get(desc.name, desc.name)
                found.append(DataDesc(name, desc.shape, desc.dtype, desc.layout))
        return found

    @property
    def provide_data(self) -> list[DataDesc]:
        """Names and shapes of the data arrays of a batch."""
        return self._descs("provide_data", self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Names and shapes of the label arrays of a batch."""
        return self._descs("provide_label", self.rename_label)

    def _fetch(self) -> None:
        """Starts to make the next batch."""
        if self._threads is None:
            self._threads = DaemonThreads(self.n_iter, "rsnet-prefetch")
        self._sources = self._sources or [iter(source) for source in self.iters]
        self._upcoming = [_Upcoming(source, self._threads) for source in self._sources]

    def _adopt(self) -> None:
        """In a forked process, which has the iterators without their threads: makes again what the
        threads had not made.
        """
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        threads = self._threads
        if threads is None:
            return
        self._upcoming = [
            upcoming if upcoming.made else _Upcoming(upcoming.source, threads)
            for upcoming in self._upcoming
        ]

    def reset(self) -> None:
        """Begins again, with the first batch on its way."""
        with self._lock:
            self._adopt()
            for upcoming in self._upcoming:
                upcoming.wait()  # the iterator is in use until its thread is done
            self.current_batch = None
            self._sources = []
            for source in self.iters:
                source.reset()
            self._fetch()

    def next(self) -> DataBatch:
        """The next batch.

        Raises
        ------
        StopIteration
            At the end of the epoch.
        """
        with self._lock:
            return super().next()

    def iter_next(self) -> bool:
        """Moves to the batch that was made ahead; returns False at the end.

        Raises
        ------
        ValueError
            The iterators differ in their number of batches or in padding.
        """
        with self._lock:
            return self._take_upcoming()

    def _take_upcoming(self) -> bool:
        self._adopt()
        if not self._upcoming:
            self._fetch()
        batches = [upcoming.result() for upcoming in self._upcoming]
        if all(batch is None for batch in batches):
            return False
        parts = [b for b in batches if b is not None]
        if len(parts) != self.n_iter:
            ended = self.n_iter - len(parts)
            raise ValueError(
                "invalid number of batches: expected the same of all iterators; "
                f"{ended} of {self.n_iter} have ended"
            )
        if len({b.pad for b in parts}) != 1:
            pads = [b.pad for b in parts]
            raise ValueError(f"invalid padding {pads}: expected the same of all iterators")
        self.current_batch = DataBatch(
            [a for b in parts for a in b.data],
            [a for b in parts for a in b.label or []],
            parts[0].pad, parts[0].index, bucket_key=parts[0].bucket_key,
            provide_data=self.provide_data, provide_label=self.provide_label,
        )  # fmt: skip
        self._fetch()
        return True


def _described(pair: Any) -> DataDesc:
    """A description of an array, which programs also write as a pair (name, shape)."""
    return pair if isinstance(pair, DataDesc) else DataDesc(*pair)


class _Upcoming:
    """The next batch of an iterator, on its way in a thread; None at the end of the data."""

    def __init__(self, source: Iterator[DataBatch], threads: DaemonThreads) -> None:
        self.source = source
        #: The batch, once it is there: a fork can read it, and no lock that the thread may hold.
        self.made: list[DataBatch | None] = []
        self._future: Future[None] = threads.submit(self._make)

    def _make(self) -> None:
        self.made.append(next(self.source, None))

    def wait(self) -> None:
        """Until the thread has ended, with or without a batch."""
        if not self.made:
            self._future.exception()

    def result(self) -> DataBatch | None:
        """The batch, or what the iterator raised."""
        if not self.made:
            self._future.result()
        return self.made[0]
