"""`FeedForward`: the estimator of early programs, in terms of `Module`."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np

from .. import metric as metric_module
from ..initializer import Uniform
from ..io import DataIter, NDArrayIter, ResizeIter
from ..model import load_checkpoint, save_checkpoint
from ..ndarray import NDArray
from .module import Module

__all__ = ["FeedForward"]


class FeedForward:
    """A symbol with `fit`, `predict` and `score` on arrays or iterators. `Module` replaces it.

    Parameters
    ----------
    symbol : Symbol
        The network.
    ctx : Context, optional
        The device.
    num_epoch, begin_epoch : int
        Epochs `begin_epoch` to `num_epoch - 1` are run.
    epoch_size : int, optional
        Batches per epoch; all of the iterator by default.
    optimizer : str or Optimizer
        The rule; `**kwargs` are its parameters.
    initializer : Initializer
        Fills parameters that are not given.
    numpy_batch_size : int
        Rows per batch where data are arrays.
    arg_params, aux_params : dict of str to NDArray, optional
        Parameters and auxiliary states; `fit` replaces them.
    allow_extra_params : bool
        Whether `arg_params` and `aux_params` may have other names.

    Examples
    --------
    >>> import rsnet as mx
    >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    >>> net = mx.sym.SoftmaxOutput(net, name="softmax")
    >>> model = mx.model.FeedForward(net, num_epoch=2, learning_rate=0.1)
    >>> model.fit(np.ones((8, 3)), np.zeros(8))
    >>> model.predict(np.ones((5, 3))).shape
    (5, 2)
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = Uniform(0.01),  # noqa: B008  (an initializer has no state)
        numpy_batch_size: int = 128,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        warnings.warn(
            "mxnet.model.FeedForward has been deprecated. Please use mxnet.mod.Module instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.symbol = symbol
        self.ctx = ctx
        self.num_epoch = num_epoch
        self.epoch_size = epoch_size
        self.optimizer = optimizer
        self.initializer = initializer
        self.numpy_batch_size = numpy_batch_size
        self.arg_params = arg_params
        self.aux_params = aux_params
        self.allow_extra_params = allow_extra_params
        self.begin_epoch = begin_epoch
        self.kwargs = kwargs

    def _batches(self, data: Any, label: Any, is_train: bool) -> Any:
        """An iterator over arrays; an iterator itself."""
        if not isinstance(data, (np.ndarray, NDArray)):
            if isinstance(data, DataIter) or hasattr(data, "provide_data"):
                return data
            raise TypeError(f"invalid data: expected an iterator or an array, got {type(data)}")
        if is_train and label is None:
            raise ValueError("y must be specified when X is numpy.ndarray")
        if label is None:
            label = np.zeros(len(data))
        size = min(len(data), self.numpy_batch_size)
        ending = "roll_over" if is_train else "pad"
        return NDArrayIter(data, label, size, shuffle=is_train, last_batch_handle=ending)

    def _module(self, batches: Any) -> Module:
        data = [d[0] for d in batches.provide_data]
        arguments = self.symbol.list_arguments()
        labels = [d[0] for d in batches.provide_label or []]
        labels = labels or [a for a in arguments if a.endswith("label")]
        return Module(self.symbol, data, labels, context=self.ctx)

    def _values(self) -> dict[str, Any]:
        """The parameters that there are, as arguments of `init_params`."""
        args, aux = self.arg_params, self.aux_params
        if self.allow_extra_params:
            inputs = set(self.symbol.list_arguments())
            args = {k: v for k, v in (args or {}).items() if k in inputs}
            names = set(self.symbol.list_auxiliary_states())
            aux = {k: v for k, v in (aux or {}).items() if k in names}
        return {"arg_params": args, "aux_params": aux, "allow_missing": True}

    def fit(
        self,
        X: Any,
        y: Any = None,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Any = None,
        monitor: Any = None,
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
    ) -> None:
        """Trains on an iterator `X`, or on arrays `X` and `y`; `eval_data` is an iterator or a pair."""
        batches = self._batches(X, y, is_train=True)
        if self.epoch_size is not None:
            batches = ResizeIter(batches, self.epoch_size, reset_internal=False)
        if isinstance(eval_data, (list, tuple)):
            eval_data = self._batches(np.asarray(eval_data[0]), np.asarray(eval_data[1]), False)
        module = self._module(batches)
        module.logger = logger or logging
        module.fit(
            batches,
            eval_data,
            eval_metric,
            epoch_end_callback,
            batch_end_callback,
            kvstore,
            self.optimizer,
            self.kwargs,
            eval_end_callback,
            eval_batch_end_callback,
            self.initializer,
            begin_epoch=self.begin_epoch,
            num_epoch=self.num_epoch,
            monitor=monitor,
            **self._values(),
        )
        self.arg_params, self.aux_params = module.get_params()

    def _predictor(self, batches: Any) -> Module:
        if self.arg_params is None:
            raise ValueError("FeedForward has no parameters: call 'fit' or 'load' first")
        module = self._module(batches)
        module.bind(batches.provide_data, batches.provide_label, for_training=False)
        module.init_params(self.initializer, **self._values())
        return module

    def predict(
        self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True
    ) -> Any:
        """Outputs as NumPy arrays, without padding rows; with `return_data` also data and labels."""
        batches = self._batches(X, None, is_train=False)
        rows: list[list[list[np.ndarray]]] = [[], [], []]
        for outputs, _, batch in self._predictor(batches).iter_predict(batches, num_batch, reset):
            kept = batch.data[0].shape[0] - (batch.pad or 0)
            for part, arrays in zip(rows, (outputs, batch.data, batch.label or []), strict=True):
                part.append([x.asnumpy()[:kept] for x in arrays])
        merged = [[np.concatenate(p) for p in zip(*part, strict=True)] for part in rows]
        found = [m[0] if len(m) == 1 else m for m in merged]
        return found if return_data else found[0]

    def score(
        self,
        X: Any,
        eval_metric: Any = "acc",
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        reset: bool = True,
    ) -> Any:
        """The value of a metric over an iterator; padding rows are part of it."""
        metric = metric_module.create(eval_metric)
        batches = self._batches(X, None, is_train=False)
        module = self._predictor(batches)
        module.score(batches, metric, num_batch, batch_end_callback, reset=reset)
        return metric.get()[1]

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Writes a checkpoint, by default with the number of epochs."""
        number = self.num_epoch if epoch is None else epoch
        if number is None:
            raise ValueError("save needs an epoch where num_epoch is None")
        args, aux = self.arg_params or {}, self.aux_params or {}
        save_checkpoint(prefix, number, self.symbol, args, aux, remove_amp_cast)

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """A model from a checkpoint; training goes on with epoch `epoch`."""
        symbol, args, aux = load_checkpoint(prefix, epoch)
        given: dict[str, Any] = {"arg_params": args, "aux_params": aux, "begin_epoch": epoch}
        return FeedForward(symbol, ctx, **(given | kwargs))

    @staticmethod
    def create(
        symbol: Any, X: Any, y: Any = None, ctx: Any = None, num_epoch: int | None = None,
        epoch_size: int | None = None, optimizer: Any = "sgd",
        initializer: Any = Uniform(0.01),  # noqa: B008
        eval_data: Any = None, eval_metric: Any = "acc", epoch_end_callback: Any = None,
        batch_end_callback: Any = None, kvstore: Any = "local", logger: Any = None,
        work_load_list: Any = None, eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None, **kwargs: Any,
    ) -> FeedForward:  # fmt: skip
        """A trained model: the constructor, then `fit`."""
        model = FeedForward(symbol, ctx, num_epoch, epoch_size, optimizer, initializer, **kwargs)
        model.fit(
            X, y, eval_data, eval_metric, epoch_end_callback, batch_end_callback, kvstore, logger,
            work_load_list, None, eval_end_callback, eval_batch_end_callback,
        )  # fmt: skip
        return model
