"""Handlers of what happens while an estimator trains.

A handler derives from the classes of the events that it wants: `TrainBegin`, `TrainEnd`,
`EpochBegin`, `EpochEnd`, `BatchBegin`, `BatchEnd`. Those with a lower priority are called first. A
handler whose `batch_end` or `epoch_end` returns True ends the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import metric as metrics_module
from ....metric import CompositeEvalMetric, EvalMetric

__all__ = [
    "BatchBegin",
    "BatchEnd",
    "EpochBegin",
    "EpochEnd",
    "EventHandler",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
]


class EventHandler:
    """Base of all handlers."""

    priority: float = 0


class TrainBegin(EventHandler):
    """Wants the beginning of the training."""

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Called before the first epoch."""


class TrainEnd(EventHandler):
    """Wants the end of the training."""

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Called after the last epoch."""


class EpochBegin(EventHandler):
    """Wants beginnings of epochs."""

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Called before each epoch."""


class EpochEnd(EventHandler):
    """Wants ends of epochs."""

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """Called after each epoch; True ends the training."""
        return False


class BatchBegin(EventHandler):
    """Wants beginnings of batches."""

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Called before each batch."""


class BatchEnd(EventHandler):
    """Wants ends of batches."""

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """Called after each batch; True ends the training."""
        return False


def listed(metrics: Any) -> list[EvalMetric]:
    """Metrics as a list, composites taken apart.

    Raises
    ------
    ValueError
        Something else is among them.
    """
    if metrics is None:
        return []
    if isinstance(metrics, CompositeEvalMetric):
        return list(metrics.metrics)
    found = list(metrics) if isinstance(metrics, (list, tuple)) else [metrics]
    for one in found:
        if not isinstance(one, EvalMetric):
            raise ValueError(f"invalid metric {one!r}: expected an EvalMetric")
    return found


def _is_reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit


class StoppingHandler(TrainBegin, BatchEnd, EpochEnd):
    """Ends the training after a number of epochs or batches.

    Parameters
    ----------
    max_epoch, max_batch : int, optional
    """

    def __init__(self, max_epoch: int | None = None, max_batch: int | None = None) -> None:
        self.max_epoch = max_epoch
        self.max_batch = max_batch
        self.current_batch = 0
        self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.max_epoch = estimator.max_epoch
        self.max_batch = estimator.max_batch
        self.current_batch = self.current_epoch = 0
        self.stop_training = False

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        self.current_batch += 1
        self.stop_training |= _is_reached(self.current_batch, self.max_batch)
        return self.stop_training

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        self.current_epoch += 1
        self.stop_training |= _is_reached(self.current_epoch, self.max_epoch)
        return self.stop_training


class MetricHandler(EpochBegin, BatchEnd):
    """Updates metrics after every batch.

    Parameters
    ----------
    metrics : list of EvalMetric
    priority : float
    """

    def __init__(self, metrics: Any, priority: float = -1000) -> None:
        self.metrics = listed(metrics)
        self.priority = priority

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for one in self.metrics:
            one.reset()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for one in self.metrics:
            if isinstance(one, metrics_module.Loss):
                one.update(0, kwargs["loss"])
            else:
                one.update(kwargs["label"], kwargs["pred"])


class ValidationHandler(TrainBegin, BatchEnd, EpochEnd):
    """Evaluates on data for validation.

    Parameters
    ----------
    val_data : DataLoader
    eval_fn : callable
        ``eval_fn(val_data=..., batch_axis=..., event_handlers=...)``, such as `Estimator.evaluate`.
    epoch_period, batch_period : int, optional
        Number of epochs or batches between two calls.
    priority : float
    event_handlers : list of EventHandler, optional
        For the evaluation.
    """

    def __init__(
        self,
        val_data: Any,
        eval_fn: Callable[..., Any],
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        priority: float = -1000,
        event_handlers: Any = None,
    ) -> None:
        self.val_data = val_data
        self.eval_fn = eval_fn
        self.epoch_period = epoch_period
        self.batch_period = batch_period
        self.current_batch = 0
        self.current_epoch = 0
        self.priority = priority
        self.event_handlers = event_handlers

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch = self.current_epoch = 0

    def _evaluate(self, estimator: Any) -> None:
        self.eval_fn(
            val_data=self.val_data,
            batch_axis=estimator.batch_axis,
            event_handlers=self.event_handlers,
        )

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch += 1
        if self.batch_period and self.current_batch % self.batch_period == 0:
            self._evaluate(estimator)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch += 1
        if self.epoch_period and self.current_epoch % self.epoch_period == 0:
            self._evaluate(estimator)


class LoggingHandler(TrainBegin, TrainEnd, EpochBegin, EpochEnd, BatchBegin, BatchEnd):
    """Logs time and metrics.

    Parameters
    ----------
    log_interval : int or str
        Number of batches between two lines, or 'epoch'.
    metrics : list of EvalMetric, optional
    priority : float
    """

    def __init__(
        self, log_interval: Any = "epoch", metrics: Any = None, priority: float = float("inf")
    ) -> None:
        if log_interval != "epoch" and not isinstance(log_interval, int):
            raise ValueError(
                f"invalid log_interval {log_interval!r}: expected 'epoch' or a number of batches"
            )
        self.metrics = listed(metrics)
        self.priority = priority
        self.log_interval = log_interval
        self.batch_index = 0
        self.current_epoch = 0
        self.processed_samples = 0
        self.log_interval_time = 0.0

    def _shown(self) -> str:
        return ", ".join("{}: {:.4f}".format(*one.get()) for one in self.metrics)

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.train_start = time.time()
        self.batch_index = self.current_epoch = self.processed_samples = 0
        self.log_interval_time = 0.0
        trainer = estimator.trainer
        estimator.logger.info(
            "Training begin: using optimizer %s with current learning rate %.4f ",
            type(trainer.optimizer).__name__,
            trainer.learning_rate,
        )
        if estimator.max_epoch:
            estimator.logger.info("Train for %d epochs.", estimator.max_epoch)
        else:
            estimator.logger.info("Train for %d batches.", estimator.max_batch)

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        seconds = time.time() - self.train_start
        estimator.logger.info(
            "Train finished using total %ds with %d epochs. %s",
            seconds,
            self.current_epoch,
            self._shown(),
        )

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.epoch_start = time.time()
        if any("training" in one.name for one in self.metrics):
            estimator.logger.info(
                "[Epoch %d] Begin, current learning rate: %.4f",
                self.current_epoch,
                estimator.trainer.learning_rate,
            )
        else:
            estimator.logger.info("Validation Begin")

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        seconds = time.time() - self.epoch_start
        shown = f", {self._shown()}" if self.metrics else ""
        estimator.logger.info("[Epoch %d] Finished in %.3fs%s", self.current_epoch, seconds, shown)
        self.current_epoch += 1
        self.batch_index = 0

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self.log_interval, int):
            self.batch_start = time.time()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self.log_interval, int):
            self.log_interval_time += time.time() - self.batch_start
            self.processed_samples += kwargs["batch"][0].shape[0]
            if self.batch_index % self.log_interval == 0:
                estimator.logger.info(
                    "[Epoch %d][Batch %d][Samples %s] time/interval: %.3fs %s",
                    self.current_epoch,
                    self.batch_index,
                    self.processed_samples,
                    self.log_interval_time,
                    self._shown(),
                )
                self.log_interval_time = 0.0
        self.batch_index += 1


class GradientUpdateHandler(BatchEnd):
    """Updates the parameters after every batch."""

    def __init__(self, priority: float = -2000) -> None:
        self.priority = priority

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        losses = kwargs["loss"]
        losses = losses if isinstance(losses, (list, tuple)) else [losses]
        estimator.trainer.step(int(np.sum([loss.shape[0] for loss in losses])))


def best_of(mode: str, monitor: EvalMetric) -> Any:
    """Is a value better than another? A comparison for 'min', 'max' or 'auto', by the metric's
    name.

    Raises
    ------
    ValueError
        The mode is none of these.
    """
    if mode not in ("auto", "min", "max"):
        raise ValueError(f"invalid mode '{mode}': expected 'auto', 'min' or 'max'")
    if mode == "auto":
        name = str(monitor.get()[0]).lower()
        mode = "max" if "acc" in name or "f1" in name else "min"
    return np.greater if mode == "max" else np.less


def __getattr__(name: str) -> object:
    # That module imports this one.
    if name in ("CheckpointHandler", "EarlyStoppingHandler"):
        from . import checkpoints

        return getattr(checkpoints, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
