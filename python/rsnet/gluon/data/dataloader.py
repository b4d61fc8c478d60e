"""`DataLoader`: batches of a data set, loaded ahead by processes or threads."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ... import _core
from ... import ndarray as nd
from ..._daemon_threads import DaemonThreads
from ..._mxnet_names import module_getattr
from ..._numbers import check_number, integer
from ...base import shown
from ...ndarray import NDArray
from ._workers import Workers, load_batch
from .batchify import stacked
from .sampler import BatchSampler, RandomSampler, SequentialSampler

__all__ = ["DataLoader", "DataLoaderV1", "default_batchify_fn", "default_mp_batchify_fn"]

_LONGEST_S = 2_000_000  # 23 days: more milliseconds than a system can wait for may not fit

# Workers are started by one thread at a time: one that another thread forks meanwhile would inherit
# the workers' side of a pipe, whose end the parent would not see. Reentrant, as these are forked.
_starting = threading.RLock()


def _renew_lock() -> None:
    global _starting
    _starting = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def default_batchify_fn(data: Any) -> Any:
    """A batch of samples: arrays and numbers stacked along a new first axis, field by field."""
    if isinstance(data[0], NDArray):
        stacked_shapes = {array.shape for array in data}
        if len(stacked_shapes) == 1:
            return nd.stack(*data)
    if isinstance(data[0], tuple):
        return [default_batchify_fn(field) for field in zip(*data)]
    found = stacked(data)
    return nd.array(found, dtype=found.dtype)


def default_mp_batchify_fn(data: Any) -> Any:
    """As `default_batchify_fn`, for worker processes: stacks by NumPy, one array per field."""
    if isinstance(data[0], tuple):
        return [default_mp_batchify_fn(field) for field in zip(*data)]
    found = stacked(data)
    return nd.array(found, dtype=found.dtype)


def _stacked_fields(data: Any) -> Any:
    """The same as NumPy arrays, which the loader's own workers copy to shared memory anyway."""
    if isinstance(data[0], tuple):
        return [_stacked_fields(field) for field in zip(*data)]
    found = stacked(data)
    _core.dtype_flag(found.dtype.name)  # an error where no array has this dtype
    return found


class DataLoader:
    """Batches of a data set; each iteration is an epoch.

    Parameters
    ----------
    dataset : Dataset
        Anything with samples by number and a length.
    batch_size : int, optional
    shuffle : bool
        Take samples in random order?
    sampler : Sampler, optional
        The order of samples, instead of `shuffle`.
    last_batch : str, optional
        'keep' (the default), 'discard' or 'rollover' a shorter last batch, see `BatchSampler`.
    batch_sampler : Sampler, optional
        Gives lists of sample numbers, instead of all of the above.
    batchify_fn : callable, optional
        Makes a batch of a list of samples, see `default_batchify_fn`.
    num_workers : int
        Processes (or threads) that load batches; 0: the caller loads them. Each process has its own
        seed, drawn from NumPy's global generator when it starts.
    pin_memory, pin_device_id
        Accepted for compatibility.
    prefetch : int, optional
        How many batches to load ahead; twice `num_workers` if None.
    thread_pool : bool
        Threads instead of processes?
    timeout : float
        Seconds to wait for a batch; `math.inf` is no limit.
    auto_reload : bool
        Accepted for compatibility.

    Raises
    ------
    ValueError
        Arguments that contradict each other.

    Examples
    --------
    >>> from rsnet.gluon.data import ArrayDataset, DataLoader
    >>> for x, y in DataLoader(ArrayDataset([1, 2, 3], [10, 20, 30]), batch_size=2):
    ...     print(x.asnumpy(), y.asnumpy())
    [1 2] [10 20]
    [3] [30]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[..., Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float = 120,
        auto_reload: bool = False,
    ) -> None:
        check_number("timeout", timeout)
        if not timeout > 0:
            raise AssertionError(
                f"invalid timeout {timeout}: expected a positive number of seconds"
            )
        self._dataset = dataset
        self._timeout = min(timeout, _LONGEST_S)
        self._thread_pool = thread_pool
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id  # for subclasses
        self._batch_sampler = _batches(
            dataset, batch_size, shuffle, sampler, last_batch, batch_sampler
        )
        self._num_workers = max(integer("num_workers", num_workers), 0)
        ahead = 2 * self._num_workers if prefetch is None else integer("prefetch", prefetch)
        self._prefetch = max(1, ahead)
        if batchify_fn is None:
            in_process = self._num_workers > 0 and not thread_pool
            batchify_fn = default_mp_batchify_fn if in_process else default_batchify_fn
        self._batchify_fn = batchify_fn
        self._workers: Workers | None = None
        self._threads: DaemonThreads | None = None
        self._epochs = itertools.count()

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if self._num_workers == 0:
            return self._by_caller()
        return self._by_threads() if self._thread_pool else self._by_processes()

    def _load(self, indices: Any) -> Any:
        return load_batch(self._dataset, self._batchify_fn, indices)

    def _by_caller(self) -> Iterator[Any]:
        for indices in self._batch_sampler:
            yield self._load(indices)

    def _by_threads(self) -> Iterator[Any]:
        if self._threads is None:
            self._threads = DaemonThreads(self._num_workers, "rsnet-loader")
        threads = self._threads
        batches = iter(self._batch_sampler)
        ahead = deque(
            threads.submit(self._load, b) for b in itertools.islice(batches, self._prefetch)
        )
        try:
            while ahead:
                try:
                    batch = ahead[0].result(self._timeout)
                except concurrent.futures.TimeoutError:
                    if ahead[0].done():
                        raise  # the data set's own
                    raise TimeoutError(
                        f"DataLoader: expected a batch within {self._timeout} seconds, but a "
                        "thread did not return one; the data set may be slow (give a larger "
                        "timeout) or blocked"
                    ) from None
                ahead.popleft()
                ahead.extend(threads.submit(self._load, b) for b in itertools.islice(batches, 1))
                yield batch
        finally:
            for future in ahead:
                future.cancel()

    def _by_processes(self) -> Iterator[Any]:
        workers = self._living_workers()
        epoch = next(self._epochs)
        batches = enumerate(self._batch_sampler)
        ahead: deque[Any] = deque()

        def ask(count: int) -> None:
            for number, indices in itertools.islice(batches, count):
                ahead.append((epoch, number))
                workers.ask((epoch, number), indices)

        try:
            ask(self._prefetch)
            while ahead:
                batch = workers.take(ahead[0], self._timeout)
                ahead.popleft()
                ask(1)
                yield batch
        finally:
            if workers.is_alive:
                workers.forget(ahead)

    def _living_workers(self) -> Workers:
        with _starting:
            if self._workers is None or not self._workers.is_alive:
                is_default = self._batchify_fn is default_mp_batchify_fn
                batchify_fn = _stacked_fields if is_default else self._batchify_fn
                self._workers = Workers(self._num_workers, self._dataset, batchify_fn)
            return self._workers

    def refresh(self) -> None:
        """Accepted for compatibility: every iteration reads the data set again."""

    def clean(self) -> None:
        """Accepted for compatibility: nothing is loaded ahead between two iterations."""


class DataLoaderV1(DataLoader):
    """`DataLoader` with the arguments of its first version."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[..., Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
    ) -> None:
        super().__init__(
            dataset, batch_size, shuffle, sampler, last_batch, batch_sampler, batchify_fn,
            num_workers, pin_memory, pin_device_id,
        )  # fmt: skip


def _batches(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool,
    sampler: Any,
    last_batch: str | None,
    batch_sampler: Any,
) -> Any:
    """The sampler of batches that the arguments ask for."""
    if batch_sampler is not None:
        if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError(
                "DataLoader: batch_sampler decides about batches: expected no batch_size, shuffle, "
                "sampler or last_batch beside it"
            )
        return batch_sampler
    if batch_size is None:
        raise ValueError("DataLoader: expected a batch_size or a batch_sampler")
    if sampler is None:
        if not hasattr(dataset, "__len__"):
            raise TypeError(
                f"DataLoader: invalid dataset {shown(dataset)}: expected one with a length, or a "
                "sampler"
            )
        sampler = RandomSampler(len(dataset)) if shuffle else SequentialSampler(len(dataset))
    elif shuffle:
        raise ValueError("DataLoader: the sampler decides about the order: expected no shuffle")
    return BatchSampler(sampler, batch_size, last_batch or "keep")


__getattr__ = module_getattr(__name__)
