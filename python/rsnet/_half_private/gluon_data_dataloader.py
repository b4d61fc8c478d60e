"""What `mxnet.gluon.data.dataloader` has for loaders that programs write over pools of theirs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ..context import Context, cpu_pinned
from ..ndarray import NDArray

__all__ = ["ForkingPickler", "_MultiWorkerIter", "_as_in_context"]


def _as_in_context(data: Any, ctx: Context) -> Any:
    """A batch with its arrays, which may be in nested lists, in another context."""
    if isinstance(data, NDArray):
        return data.as_in_context(ctx)
    if isinstance(data, (list, tuple)):
        return [_as_in_context(field, ctx) for field in data]
    return data


class _MultiWorkerIter:
    """Batches of one epoch, in order, that a pool of `multiprocessing` loads ahead.

    Parameters
    ----------
    worker_pool : multiprocessing.pool.Pool
    batchify_fn : callable
        Handed on to `worker_fn`.
    batch_sampler : iterable
        Gives lists of sample numbers.
    pin_memory, pin_device_id
        Copy batches to ``cpu_pinned(pin_device_id)``?
    worker_fn : callable, optional
        ``worker_fn(samples, batchify_fn, dataset)`` runs in the pool and returns a batch, or its
        pickle as bytes. If None, the samples of `dataset` are batched.
    prefetch : int
        How many batches to ask for now; each `next` asks for one more.
    dataset : Dataset, optional
        Handed on to `worker_fn`.
    data_loader : DataLoader, optional
        Kept alive while the iterator is.
    timeout : float
        Seconds to wait for a batch.
    """

    def __init__(
        self,
        worker_pool: Any,
        batchify_fn: Callable[..., Any],
        batch_sampler: Iterable[Any],
        pin_memory: bool = False,
        pin_device_id: int = 0,
        worker_fn: Callable[..., Any] | None = None,
        prefetch: int = 0,
        dataset: Any = None,
        data_loader: Any = None,
        timeout: float = 120,
    ) -> None:
        self._worker_pool = worker_pool
        self._batchify_fn = batchify_fn
        self._batch_sampler = batch_sampler
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._worker_fn = worker_fn or _load
        self._dataset, self._data_loader, self._timeout = dataset, data_loader, timeout
        self._iter = iter(batch_sampler)
        self._data_buffer: dict[int, Any] = {}  # what was asked for, by number
        self._sent_idx = self._rcvd_idx = 0
        for _ in range(prefetch):
            self._push_next()

    def __len__(self) -> int:
        sampler: Any = self._batch_sampler
        return len(sampler)

    def _push_next(self) -> None:
        """Asks the pool for the next batch, if there is one."""
        for samples in self._iter:
            self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(
                self._worker_fn, (samples, self._batchify_fn, self._dataset)
            )
            self._sent_idx += 1
            return

    def __next__(self) -> Any:
        self._push_next()
        if self._rcvd_idx == self._sent_idx:
            raise StopIteration
        loaded = self._data_buffer.pop(self._rcvd_idx).get(self._timeout)
        self._rcvd_idx += 1
        batch = pickle.loads(loaded) if isinstance(loaded, bytes) else loaded
        return _as_in_context(batch, cpu_pinned(self._pin_device_id)) if self._pin_memory else batch

    next = __next__

    def __iter__(self) -> Iterator[Any]:
        return self


def _load(samples: Any, batchify_fn: Callable[..., Any], dataset: Any) -> Any:
    return batchify_fn([dataset[i] for i in samples])
