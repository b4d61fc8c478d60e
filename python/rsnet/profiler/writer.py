"""The thread that appends to the trace while the profiler runs."""

from __future__ import annotations

import functools
import threading
import warnings

from .. import _core

_profiler = _core.profiler


class Writer:
    """A thread that appends to the trace while the profiler runs."""

    def __init__(self) -> None:
        self.period_s: float | None = 1.0
        self._end: threading.Event | None = None

    def start(self) -> None:
        if self._end is None and self.period_s is not None:
            self._end = threading.Event()
            run = functools.partial(self._run, self._end, self.period_s)
            threading.Thread(target=run, name="rsnet-profiler", daemon=True).start()

    def stop(self) -> None:
        if self._end is not None:
            self._end.set()
            self._end = None

    def forget(self) -> None:
        """In a forked process, where the thread does not exist."""
        self._end = None

    @staticmethod
    def _run(end: threading.Event, period_s: float) -> None:
        while not end.wait(period_s):
            try:
                _profiler.dump_unless_stopped()
            except Exception as error:
                warnings.warn(f"{error}; it is tried again at dump()", RuntimeWarning, stacklevel=1)
                return
