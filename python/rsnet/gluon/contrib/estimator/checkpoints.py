"""Handlers that save the network while it is trained, and that end the training early."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from ....metric import EvalMetric
from ...hybrid_block import HybridBlock
from .event_handler import BatchEnd, EpochEnd, TrainBegin, TrainEnd, best_of

__all__ = ["CheckpointHandler", "EarlyStoppingHandler"]


class CheckpointHandler(TrainBegin, BatchEnd, EpochEnd):
    """Saves parameters and the trainer's states, and the best of them.

    Parameters
    ----------
    model_dir : str
        Folder of the files.
    model_prefix : str
        Beginning of their names: ``<prefix>-epoch0batch99.params``, ``.states``,
        ``<prefix>-best.params``, ``<prefix>-symbol.json``.
    monitor : EvalMetric, optional
        Decides which is best.
    verbose : int
        0: log nothing about what is best.
    save_best : bool
    mode : str
        'min', 'max', or 'auto': by the metric's name.
    epoch_period, batch_period : int, optional
        Number of epochs or batches between two checkpoints.
    max_checkpoints : int
        How many to keep, besides the best.
    resume_from_checkpoint : bool
        Go on from the last one in the folder?

    Raises
    ------
    ValueError
        `save_best` needs a `monitor`; an unknown mode.
    """

    def __init__(
        self,
        model_dir: str,
        model_prefix: str = "model",
        monitor: EvalMetric | None = None,
        verbose: int = 0,
        save_best: bool = False,
        mode: str = "auto",
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        max_checkpoints: int = 5,
        resume_from_checkpoint: bool = False,
    ) -> None:
        if save_best and not isinstance(monitor, EvalMetric):
            raise ValueError(
                f"invalid monitor {monitor!r}: expected a metric of the estimator, as save_best "
                "compares its values"
            )
        self.monitor = monitor
        self.verbose = verbose
        self.model_dir = model_dir
        os.makedirs(model_dir, exist_ok=True)
        self.model_prefix = model_prefix
        self.save_best = save_best
        self.epoch_period = epoch_period
        self.batch_period = batch_period
        self.max_checkpoints = max_checkpoints
        self.resume_from_checkpoint = resume_from_checkpoint
        self.saved_checkpoints: list[str] = []
        self.current_epoch = 0
        self.current_batch = 0
        self.trained_epoch = -1
        self.trained_batch = -1
        if monitor is not None:
            self.is_better = best_of(mode, monitor)
            self.best = -np.inf if self.is_better is np.greater else np.inf

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch = self.current_batch = 0
        if self.resume_from_checkpoint:
            self._resume(estimator)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.current_batch == 0:
            self._save_symbol(estimator)
        if self.batch_period and (self.current_batch + 1) % self.batch_period == 0:
            self._save(estimator)
        self.current_batch += 1

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0:
            self._save(estimator)
        self.current_epoch += 1

    def _path(self, prefix: str, ending: str) -> str:
        return os.path.join(self.model_dir, f"{prefix}.{ending}")

    @staticmethod
    def _finished(what: str, last: int) -> ValueError:
        return ValueError(
            f"the checkpoint was written after all of {last + 1} {what}: nothing is left to train "
            "(resume_from_checkpoint=False starts again)"
        )

    def _save_symbol(self, estimator: Any) -> None:
        net = estimator.net
        if isinstance(net, HybridBlock) and net._cached_graph:
            net._cached_graph[1].save(self._path(f"{self.model_prefix}-symbol", "json"))
        else:
            estimator.logger.info(
                "CheckpointHandler: %s is not written, as the network is not a hybridized "
                "HybridBlock",
                self._path(f"{self.model_prefix}-symbol", "json"),
            )

    def _save(self, estimator: Any) -> None:
        epoch, batch = self.current_epoch, self.current_batch
        if self.resume_from_checkpoint:
            epoch, batch = epoch + self.trained_epoch + 1, batch + self.trained_batch + 1
        # At the end of an epoch the batch has been counted already.
        prefix = f"{self.model_prefix}-epoch{epoch}batch{batch}"
        self._write(estimator, prefix)
        if prefix in self.saved_checkpoints:
            self.saved_checkpoints.remove(prefix)
        self.saved_checkpoints.append(prefix)
        while len(self.saved_checkpoints) > self.max_checkpoints:
            oldest = self.saved_checkpoints.pop(0)
            for ending in ("params", "states"):
                if os.path.exists(self._path(oldest, ending)):
                    os.remove(self._path(oldest, ending))
        if self.save_best and self.monitor is not None:
            self._save_best(estimator, epoch)

    def _save_best(self, estimator: Any, epoch: int) -> None:
        name, value = self.monitor.get()  # type: ignore[union-attr]
        if np.isnan(value):
            estimator.logger.warning("[Epoch %d] CheckpointHandler: %s is not updated", epoch, name)
        elif self.is_better(value, self.best):
            self._write(estimator, f"{self.model_prefix}-best")
            if self.verbose:
                estimator.logger.info(
                    "[Epoch %d] CheckpointHandler: %s improved from %.5f to %.5f, updating best "
                    "model",
                    epoch,
                    name,
                    self.best,
                    value,
                )
            self.best = value

    def _write(self, estimator: Any, prefix: str) -> None:
        estimator.net.save_parameters(self._path(prefix, "params"))
        estimator.trainer.save_states(self._path(prefix, "states"))

    def _resume(self, estimator: Any) -> None:
        """Loads the last checkpoint of the folder, and trains what is left."""
        pattern = re.compile(rf"{re.escape(self.model_prefix)}-epoch(\d+)batch(\d+)\.params")
        found = [match for name in os.listdir(self.model_dir) if (match := pattern.fullmatch(name))]
        if not found:
            estimator.logger.info("CheckpointHandler: no checkpoint found, training from scratch")
            return
        last = max(found, key=lambda m: (int(m[1]), int(m[2])))
        self.trained_epoch, self.trained_batch = int(last[1]), int(last[2]) - 1
        prefix = last[0].removesuffix(".params")
        estimator.net.load_parameters(self._path(prefix, "params"), ctx=estimator.context)
        estimator.trainer.load_states(self._path(prefix, "states"))
        if estimator.max_epoch:
            left = estimator.max_epoch - self.trained_epoch - 1
            if left < 1:
                raise self._finished("epochs", self.trained_epoch)
            estimator.max_epoch = left
        if estimator.max_batch:
            left = estimator.max_batch - self.trained_batch - 1
            if left < 1:
                raise self._finished("batches", self.trained_batch)
            estimator.max_batch = left
        estimator.logger.info("CheckpointHandler: resuming from %s", prefix)


class EarlyStoppingHandler(TrainBegin, EpochEnd, TrainEnd):
    """Ends the training when a metric no longer gets better.

    Parameters
    ----------
    monitor : EvalMetric
    min_delta : float
        Least change that counts.
    patience : int
        Epochs without one, before the training ends.
    mode : str
        'min', 'max', or 'auto': by the metric's name.
    baseline : float, optional
        What must be surpassed.

    Raises
    ------
    ValueError
        `monitor` is not a metric, or the mode is unknown.
    """

    def __init__(
        self,
        monitor: EvalMetric,
        min_delta: float = 0,
        patience: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
    ) -> None:
        if not isinstance(monitor, EvalMetric):
            raise ValueError(f"invalid monitor {monitor!r}: expected a metric of the estimator")
        self.monitor = monitor
        self.baseline = baseline
        self.patience = patience
        self.is_better = best_of(mode, monitor)
        self.min_delta = abs(min_delta) if self.is_better is np.greater else -abs(min_delta)
        self._start()

    def _start(self) -> None:
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False
        worst = -np.inf if self.is_better is np.greater else np.inf
        self.best = worst if self.baseline is None else self.baseline

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self._start()

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        name, value = self.monitor.get()
        if np.isnan(value):
            estimator.logger.warning(
                "%s has no value: expected a metric that the estimator updates as monitor",
                name,
            )
        elif self.is_better(value - self.min_delta, self.best):
            self.best, self.wait = value, 0
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch = self.current_epoch
                self.stop_training = True
        self.current_epoch += 1
        return self.stop_training

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.stop_training:
            estimator.logger.info(
                "[Epoch %d] EarlyStoppingHandler: early stopping due to %s not improving",
                self.stopped_epoch,
                self.monitor.get()[0],
            )
