"""`Estimator`: a training loop as an object."""

from __future__ import annotations

import copy
import logging
import sys
from typing import Any

from .... import initializer as init
from .... import metric as metrics_module
from ...._numbers import integer
from ....base import shown
from ....context import cpu
from ...data import DataLoader
from ...loss import Loss
from ...parameter import contexts_of
from ...trainer import Trainer
from .batch_processor import BatchProcessor
from .event_handler import (
    BatchBegin,
    BatchEnd,
    EpochBegin,
    EpochEnd,
    EventHandler,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    TrainBegin,
    TrainEnd,
    ValidationHandler,
    listed,
)

__all__ = ["Estimator"]


class Estimator:
    """A training loop: forward, backward, update, metrics, and handlers of events.

    Parameters
    ----------
    net : Block
    loss : Loss
    train_metrics, val_metrics : EvalMetric or list of EvalMetric, optional
        For training and validation; those for validation are copies of the former by default, and
        accuracy where neither is given.
    initializer : Initializer, optional
        For parameters without values.
    trainer : Trainer, optional
        SGD with rate 0.001 by default.
    context : Context or list of Context, optional
    val_net : Block, optional
        For validation, if it is another one.
    val_loss : Loss, optional
        For validation, if it is another one.
    batch_processor : BatchProcessor, optional

    Raises
    ------
    ValueError
        An argument is of another kind.

    Examples
    --------
    >>> import logging
    >>> import rsnet as mx
    >>> from rsnet import gluon
    >>> from rsnet.gluon.contrib.estimator import Estimator
    >>> data = gluon.data.ArrayDataset(mx.nd.ones((8, 2)), mx.nd.zeros((8,)))
    >>> net = gluon.nn.Dense(3)
    >>> estimator = Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss())
    >>> estimator.logger.setLevel(logging.WARNING)
    >>> estimator.fit(gluon.data.DataLoader(data, 4), epochs=2)
    >>> [metric.name for metric in estimator.train_metrics]
    ['training accuracy', 'training loss']
    """

    logger: Any = None

    def __init__(
        self,
        net: Any,
        loss: Any,
        train_metrics: Any = None,
        val_metrics: Any = None,
        initializer: Any = None,
        trainer: Trainer | None = None,
        context: Any = None,
        val_net: Any = None,
        val_loss: Any = None,
        batch_processor: BatchProcessor | None = None,
    ) -> None:
        self.net = net
        self.loss = self._checked_loss(loss)
        self.val_loss = self.loss if val_loss is None else self._checked_loss(val_loss)
        self.val_net = net if val_net is None else val_net
        self._train_metrics = listed(train_metrics)
        self._val_metrics = listed(val_metrics)
        self._add_default_metrics()
        self.logger = logging.Logger(name="Estimator", level=logging.INFO)
        self.logger.addHandler(logging.StreamHandler(sys.stdout))
        self.context = contexts_of(cpu() if context is None else context)
        self._initialize(initializer)
        if trainer is None:
            trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001})
        elif not isinstance(trainer, Trainer):
            raise ValueError(f"invalid trainer {trainer!r}: expected a gluon.Trainer")
        self.trainer = trainer
        if batch_processor is not None and not isinstance(batch_processor, BatchProcessor):
            raise ValueError(
                f"invalid batch_processor {batch_processor!r}: expected a BatchProcessor"
            )
        self.batch_processor = batch_processor or BatchProcessor()
        self.max_epoch: int | None = None
        self.max_batch: int | None = None
        self.batch_axis = 0

    @staticmethod
    def _checked_loss(loss: Any) -> Loss:
        if not isinstance(loss, Loss):
            raise ValueError(f"invalid loss {loss!r}: expected a gluon.loss.Loss")
        return loss

    def _add_default_metrics(self) -> None:
        if not self._train_metrics:
            self._train_metrics = [metrics_module.Accuracy(), metrics_module.Loss(self.loss.name)]
            self._train_metrics[1].name = "loss"
        if not self._val_metrics:
            self._val_metrics = [copy.deepcopy(one) for one in self._train_metrics]
        for kind, group in (("training", self._train_metrics), ("validation", self._val_metrics)):
            for one in group:
                if not one.name.startswith(kind):
                    one.name = f"{kind} {one.name}"

    def _initialize(self, initializer: Any) -> None:
        """Gives values to parameters that have none, and moves all to the devices."""
        params = self.net.collect_params()
        started = [p for p in params.values() if p._data is not None or p._deferred_init]
        if len(started) < len(list(params.values())):
            for param in params.values():
                if param._data is None and not param._deferred_init:
                    default = init.Uniform() if initializer is None else initializer
                    param.initialize(None, self.context, init.create(default))
        elif initializer is not None:
            self.logger.warning(
                "Network already fully initialized, skipping initialization. You don't need to "
                "pass initializer if you already initialized your net."
            )
        for param in params.values():
            if param.list_ctx() != self.context:
                param.reset_ctx(self.context)

    @property
    def train_metrics(self) -> list[Any]:
        """The metrics of training."""
        return self._train_metrics

    @property
    def val_metrics(self) -> list[Any]:
        """The metrics of validation."""
        return self._val_metrics

    # ---- training and validation ---------------------------------------------------------------

    def evaluate(self, val_data: Any, batch_axis: int = 0, event_handlers: Any = None) -> None:
        """Evaluates on data for validation: `val_metrics` has the result.

        Parameters
        ----------
        val_data : DataLoader
        batch_axis : int
        event_handlers : list of EventHandler, optional
        """
        self._check_loader(val_data)
        handlers = _handlers(event_handlers)
        if not any(isinstance(h, MetricHandler) for h in handlers):
            handlers.append(MetricHandler(self.val_metrics))
        if not any(isinstance(h, LoggingHandler) for h in handlers):
            handlers.append(LoggingHandler(metrics=self.val_metrics))
        events = _Events(self, handlers)
        events.call(EpochBegin, "epoch_begin")
        for batch in val_data:
            events.call(BatchBegin, "batch_begin", batch=batch)
            _, label, pred, loss = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            events.call(BatchEnd, "batch_end", batch=batch, pred=pred, label=label, loss=loss)
        events.call(EpochEnd, "epoch_end")

    def fit(
        self,
        train_data: Any,
        val_data: Any = None,
        epochs: int | None = None,
        event_handlers: Any = None,
        batches: int | None = None,
        batch_axis: int = 0,
    ) -> None:
        """Trains for a number of epochs or batches.

        Parameters
        ----------
        train_data : DataLoader
        val_data : DataLoader, optional
        epochs, batches : int, optional
            One of both.
        event_handlers : EventHandler or list of EventHandler, optional
            In addition to those that update, measure, log and stop.
        batch_axis : int

        Raises
        ------
        ValueError
            Neither or both of `epochs` and `batches`, or less than 1; data of another kind; a
            handler that is none.
        TypeError
            `epochs` or `batches` is no integer.
        """
        self._check_loader(train_data)
        if (epochs is None) == (batches is None):
            raise ValueError(
                f"fit: epochs is {epochs!r} and batches is {batches!r}: expected one of them"
            )
        self.max_epoch = None if epochs is None else integer("epochs", epochs, least=1)
        self.max_batch = None if batches is None else integer("batches", batches, least=1)
        self.batch_axis = batch_axis
        events = _Events(self, self._with_defaults(val_data, _handlers(event_handlers)))
        events.call(TrainBegin, "train_begin")
        while not self._epoch(train_data, events):
            pass
        events.call(TrainEnd, "train_end")

    def _epoch(self, train_data: Any, events: _Events) -> bool:
        """One epoch; returns whether the training is to end."""
        events.call(EpochBegin, "epoch_begin")
        empty = True
        for batch in train_data:
            empty = False
            events.call(BatchBegin, "batch_begin", batch=batch)
            _, label, pred, loss = self.batch_processor.fit_batch(self, batch, self.batch_axis)
            if events.call(BatchEnd, "batch_end", batch=batch, pred=pred, label=label, loss=loss):
                break
        if empty:
            raise ValueError("fit: train_data gave no batch, expected at least one")
        # A training that batches end has an end of its last epoch too.
        ended = events.stops
        return events.call(EpochEnd, "epoch_end") or ended

    @staticmethod
    def _check_loader(data: Any) -> None:
        if not isinstance(data, DataLoader):
            raise ValueError(
                f"Estimator: invalid data {shown(data)}: expected a gluon.data.DataLoader, which "
                "can be made of arrays and of a DataIter"
            )

    def _with_defaults(self, val_data: Any, handlers: list[EventHandler]) -> list[EventHandler]:
        """The handlers, and those that the training needs besides."""

        def lacks(kind: type[EventHandler]) -> bool:
            return not any(isinstance(handler, kind) for handler in handlers)

        # After those that may change how long it is.
        handlers = [*handlers, StoppingHandler(self.max_epoch, self.max_batch)]
        if lacks(GradientUpdateHandler):
            handlers.append(GradientUpdateHandler())
        if lacks(MetricHandler):
            handlers.append(MetricHandler(self.train_metrics))
        if val_data is not None and lacks(ValidationHandler):
            handlers.append(ValidationHandler(val_data, self.evaluate))
        if lacks(LoggingHandler):
            handlers.append(LoggingHandler(metrics=self.train_metrics))
        return handlers


def _handlers(given: Any) -> list[EventHandler]:
    found = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
    for handler in found:
        if not isinstance(handler, EventHandler):
            raise ValueError(f"invalid event handler {handler!r}: expected an EventHandler")
    return found


class _Events:
    """Calls handlers, those of lower priority first."""

    def __init__(self, estimator: Estimator, handlers: list[EventHandler]) -> None:
        self._estimator = estimator
        self._handlers = sorted(handlers, key=lambda handler: handler.priority)
        self.stops = False

    def call(self, kind: type[EventHandler], method: str, **kwargs: Any) -> bool:
        """Calls a method of all handlers that want the event; returns whether one wants to stop."""
        answers = [
            getattr(handler, method)(self._estimator, **kwargs)
            for handler in self._handlers
            if isinstance(handler, kind)
        ]
        self.stops = any(bool(answer) for answer in answers)
        return self.stops
