"""Callbacks for training loops: progress, speed, checkpoints.

A batch-end callback gets a `BatchEndParam`; an epoch-end callback `(epoch, symbol, arg_params,
aux_params)`.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from ._checkpoint import after_epochs, save_checkpoint
from ._mxnet_names import module_getattr
from ._numbers import check_number, integer
from ._terminal import is_terminal

__all__ = [
    "BatchEndParam",
    "LogValidationMetricsCallback",
    "ProgressBar",
    "Speedometer",
    "do_checkpoint",
    "log_train_metric",
    "module_checkpoint",
]

BatchEndParam = namedtuple("BatchEndParam", ["epoch", "nbatch", "eval_metric", "locals"])


class ProgressBar:
    """Shows `[====----] N%` on standard output.

    Batches may be counted from 0, as `fit` does, or from 1: an epoch ends at 100%. On a terminal
    one line is redrawn at every call. Elsewhere (files, pipes, notebooks) a line is written when
    another tenth is complete.

    Parameters
    ----------
    total : int
        Batches per epoch.
    length : int
        Width of the bar in characters.
    """

    def __init__(self, total: int, length: int = 80) -> None:
        check_number("total", total)
        if not total > 0:
            raise ValueError(f"invalid total {total}: expected a number greater than 0")
        self.total = total
        self.length = length
        self._tenths = 0
        self._last = -1
        self._first = 1

    def __call__(self, param: Any) -> None:
        is_new = param.nbatch <= self._last  # an epoch begins
        if is_new or self._last < 0:
            self._first = min(param.nbatch, 1)
        done = min((param.nbatch + 1 - self._first) / float(self.total), 1.0)
        filled = round(self.length * done)
        bar = "=" * filled + "-" * (self.length - filled)
        text = f"[{bar}] {math.ceil(100 * done)}%"
        before = 0 if is_new else self._tenths
        tenths = int(10 * done)
        self._tenths, self._last = tenths, param.nbatch
        if is_terminal(sys.stdout):
            sys.stdout.write(f"\r{text}" + ("\n" if tenths == 10 else ""))
        elif tenths not in (0, before):
            sys.stdout.write(f"{text}\n")
        else:
            return
        sys.stdout.flush()


class Speedometer:
    """Logs samples per second and the metric every `frequent` batches.

    With `auto_reset` the values are those of the last `frequent` batches, else those of the epoch.
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True) -> None:
        check_number("batch_size", batch_size)
        self.batch_size = batch_size
        self.frequent = integer("frequent", frequent, least=1)
        self.auto_reset = auto_reset
        # Whether it counts, since when, and the last batch: subclasses have these names from MXNet.
        self.init = False
        self.tic = 0.0
        self.last_count = 0

    def __call__(self, param: Any) -> None:
        count = param.nbatch
        if not self.init or count < self.last_count:
            self.init, self.tic, self.last_count = True, time.time(), count
            return
        self.last_count = count
        if count % self.frequent:
            return
        elapsed = time.time() - self.tic
        speed = self.frequent * self.batch_size / elapsed if elapsed else float("inf")
        metric = param.eval_metric
        if metric is None:
            logging.info("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, count, speed)
        else:
            if self.auto_reset:
                first, values = count - self.frequent, metric.get_name_value()
                metric.reset_local()
            else:
                first, values = 0, metric.get_global_name_value()
            shown = "".join(f"\t{name}={value:f}" for name, value in values)
            logging.info(
                "Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec%s",
                param.epoch,
                first,
                count,
                speed,
                shown,
            )
        self.tic = time.time()


def do_checkpoint(prefix: str, period: int = 1) -> Callable[..., None]:
    """Epoch-end callback that saves every `period` epochs, counted from 1."""
    return after_epochs(period, functools.partial(save_checkpoint, prefix))


def log_train_metric(period: int, auto_reset: bool = False) -> Callable[[Any], None]:
    """Batch-end callback that logs the metric every `period` batches."""

    def log(param: Any) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info(
                    "Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value
                )
            if auto_reset:
                param.eval_metric.reset_local()

    return log


def module_checkpoint(
    mod: Any, prefix: str, period: int = 1, save_optimizer_states: bool = False
) -> Callable[..., None]:
    """Epoch-end callback that calls `mod.save_checkpoint` every `period` epochs."""

    def save(epochs: int, *_: Any) -> None:
        mod.save_checkpoint(prefix, epochs, save_optimizer_states)

    return after_epochs(period, save)


class LogValidationMetricsCallback:
    """Evaluation-end callback that logs the values of the metric."""

    def __call__(self, param: Any) -> None:
        if param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)


__getattr__ = module_getattr(__name__)
