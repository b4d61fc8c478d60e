"""The progress that `fit` shows: one line, redrawn, on a terminal, and one per epoch elsewhere."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from typing import Any

from .._terminal import is_terminal
from ..callback import ProgressBar
from .arguments import Callbacks, as_descs, as_list
from .batch_rows import batch_size_of

__all__ = ["Progress"]

#: Least time between two drawings of the line.
PERIOD_S = 0.1


class Progress:
    """Shows on standard error how far training is: rate, metric, and the time left.

    The results of an epoch stay as a line of their own, unless the logger reports them.

    Parameters
    ----------
    wanted : bool or None
        Show anything? None: yes, unless the environment variable `RSNET_PROGRESS` is 0.
    epochs : range
        The epochs to come.
    data : DataIter
        The batches of an epoch.
    logger : Logger
        The logger of the module.
    callbacks : callable, list of callables or None
        The batch-end callbacks. A `ProgressBar` among them redraws a line of its own: only the
        results of epochs are shown then.
    """

    def __init__(
        self, wanted: bool | None, epochs: range, data: Any, logger: Any, callbacks: Callbacks
    ) -> None:
        if wanted is None:
            wanted = os.environ.get("RSNET_PROGRESS", "1") != "0"
        root = logger if isinstance(logger, logging.Logger) else logging.getLogger()
        self._stream = sys.stderr if wanted else None
        has_bar = any(isinstance(callback, ProgressBar) for callback in as_list(callbacks))
        self._is_redrawn = not has_bar and self._stream is not None and is_terminal(self._stream)
        self._is_logged = root.isEnabledFor(logging.INFO) and root.hasHandlers()
        self._epochs = epochs
        self._batch_size = batch_size_of(as_descs((data.provide_data or [])[:1]))
        self._total = _batches_of(data, self._batch_size)
        self._began = self._epoch_began = time.monotonic()
        self._drawn = 0.0
        self._batches = self.epoch_batches = 0
        self._line = ""

    def start_epoch(self) -> None:
        """Begins to count the batches of an epoch."""
        self._epoch_began, self.epoch_batches = time.monotonic(), 0

    def batch_done(self, epoch: int, metric: Any) -> None:
        """Redraws the line, if some time has passed since it was drawn."""
        self._batches += 1
        self.epoch_batches += 1
        now = time.monotonic()
        if self._is_redrawn and now - self._drawn >= PERIOD_S:
            self._drawn = now
            parts = [self._head(epoch)]
            if self._total:
                parts.append(f"{min(100 * self.epoch_batches // self._total, 100)} %")
            parts.append(self._rate(now))
            left = self._seconds_left(epoch, now)
            if left is not None:
                parts.append(f"{_clock(left)} left")
            self._draw([*parts, *_values(metric.get_name_value())])

    def epoch_done(self, epoch: int, values: Any, scores: Any) -> None:
        """Shows the results of an epoch."""
        self.clear()
        self._total = self.epoch_batches
        if self._stream is None or self._is_logged:
            return
        now = time.monotonic()
        parts = [self._head(epoch), self._rate(now), *_values(values)]
        parts += [f"validation {text}" for text in _values(scores)]
        parts.append(_clock(now - self._epoch_began))
        print("  ".join(parts), file=self._stream, flush=True)

    def clear(self) -> None:
        """Takes the line away, so that others can be written in its place."""
        if self._line and self._stream is not None:
            self._stream.write("\r" + " " * len(self._line) + "\r")
            self._stream.flush()
            self._line = ""

    def _draw(self, parts: list[str]) -> None:
        """Draws as many of the parts as fit, none in half, on one line."""
        assert self._stream is not None
        width, line = shutil.get_terminal_size().columns - 1, ""
        for part in parts:
            longer = f"{line}  {part}" if line else part[:width]
            if len(longer) > width:
                break
            line = longer
        self._stream.write("\r" + line.ljust(len(self._line)))
        self._stream.flush()
        self._line = line

    def _head(self, epoch: int) -> str:
        return f"Epoch {epoch + 1}/{self._epochs.stop}"

    def _rate(self, now: float) -> str:
        passed = max(now - self._epoch_began, 1e-9)
        rate = self.epoch_batches * self._batch_size / passed
        return f"{rate:,.0f} samples/s" if rate >= 100 else f"{rate:.3g} samples/s"

    def _seconds_left(self, epoch: int, now: float) -> float | None:
        """The time that the remaining batches of all epochs will take at the mean pace."""
        if not self._total:
            return None
        still = max(self._total - self.epoch_batches, 0)
        still += (self._epochs.stop - 1 - epoch) * self._total
        return still * (now - self._began) / self._batches


def _batches_of(data: Any, batch_size: int) -> int:
    """The batches of an epoch, 0 if the iterator does not say."""
    rows = getattr(data, "num_data", None)
    if isinstance(getattr(data, "size", None), int):  # ResizeIter
        return int(data.size)
    return -(-rows // batch_size) if isinstance(rows, int) and batch_size else 0


def _values(pairs: Any) -> list[str]:
    return [f"{name}={value:.4g}" for name, value in pairs or []]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
