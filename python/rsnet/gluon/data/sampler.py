"""Samplers: which samples, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..._numbers import integer

__all__ = ["BatchSampler", "FilterSampler", "RandomSampler", "Sampler", "SequentialSampler"]


class Sampler:
    """Base of samplers; a subclass defines ``__iter__()`` and ``__len__()``."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler):
    """`start`, `start` + 1 and so on, `length` numbers."""

    def __init__(self, length: int, start: int = 0) -> None:
        self._length = length
        self._start = start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """All numbers below `length` in random order, by NumPy's global generator."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self) -> Iterator[int]:
        order = np.arange(self._length)
        np.random.shuffle(order)
        return iter(order.tolist())

    def __len__(self) -> int:
        return self._length


class FilterSampler(Sampler):
    """The numbers of the samples for which `fn` is true."""

    def __init__(self, fn: Callable[[Any], bool], dataset: Any) -> None:
        self._indices = [i for i in range(len(dataset)) if fn(dataset[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of another sampler.

    Parameters
    ----------
    sampler : Sampler
    batch_size : int
    last_batch : str
        What becomes of a shorter last batch: 'keep' it, 'discard' it, or 'rollover' it to the next
        epoch.

    Raises
    ------
    ValueError
        `last_batch` is none of these.

    Examples
    --------
    >>> from rsnet.gluon.data import BatchSampler, SequentialSampler
    >>> list(BatchSampler(SequentialSampler(5), 2, "discard"))
    [[0, 1], [2, 3]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(
                f"invalid last_batch {last_batch!r}: expected one of: keep, discard, rollover"
            )
        self._sampler: Any = sampler
        self._batch_size = integer("batch_size", batch_size, least=1)
        self._last_batch = last_batch
        self._left: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batch, self._left = self._left, []
        for i in self._sampler:
            batch.append(i)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if not batch:
            return
        if self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._left = batch

    def __len__(self) -> int:
        samples = len(self._sampler)
        if self._last_batch == "keep":
            return -(-samples // self._batch_size)
        if self._last_batch == "discard":
            return samples // self._batch_size
        return (len(self._left) + samples) // self._batch_size
