"""`IntervalSampler`: indices at fixed distances."""

from __future__ import annotations

from collections.abc import Iterator

from ...data.sampler import Sampler

__all__ = ["IntervalSampler"]


class IntervalSampler(Sampler):
    """0, interval, 2·interval and so on below `length`.

    Parameters
    ----------
    length : int
    interval : int
    rollover : bool
        Then 1, 1 + interval and so on, until all indices were given?

    Examples
    --------
    >>> from rsnet.gluon.contrib.data import IntervalSampler
    >>> list(IntervalSampler(7, interval=3))
    [0, 3, 6, 1, 4, 2, 5]
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        if not 1 <= interval <= length:
            raise AssertionError(f"invalid interval {interval}: expected 1 to {length}, the length")
        self._length = length
        self._interval = interval
        self._rollover = rollover

    def __iter__(self) -> Iterator[int]:
        for first in range(self._interval if self._rollover else 1):
            yield from range(first, self._length, self._interval)

    def __len__(self) -> int:
        return self._length if self._rollover else -(-self._length // self._interval)
