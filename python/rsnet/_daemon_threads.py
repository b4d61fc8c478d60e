"""A pool of threads for work ahead: it ends with the program, whatever the threads are doing.

At its end Python waits for the threads of `concurrent.futures`, and for all calls that they have
been given; a batch that is never taken is not worth that. A forked process gets threads of its
own with the first call.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["DaemonThreads"]

_Result = TypeVar("_Result")
_Calls = queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]


class DaemonThreads:
    """Up to `count` threads, made when there are calls for them; they end with this object.

    Examples
    --------
    >>> threads = DaemonThreads(2, "squares")
    >>> [future.result() for future in [threads.submit(pow, i, 2) for i in range(3)]]
    [0, 1, 4]
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._begin()

    def _begin(self) -> None:
        self._owner = os.getpid()
        self._calls: _Calls = queue.SimpleQueue()
        self._made = 0
        self._end = weakref.finalize(self, _end, self._calls, self._count)
        self._end.atexit = False

    def submit(self, function: Callable[..., _Result], *args: Any) -> Future[_Result]:
        """Calls `function` in a thread, after what was submitted before."""
        if self._owner != os.getpid():
            self._end.detach()
            self._begin()
        future: Future[_Result] = Future()
        self._calls.put((future, function, args))
        if self._made < self._count:
            name = f"{self._name}_{self._made}"
            self._made += 1
            threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True).start()
        return future


def _work(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        future, function, args = call
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)
        del call, future, function, args  # or they would be kept until the next call


def _end(calls: _Calls, count: int) -> None:
    for _ in range(count):
        calls.put(None)
