"""`FeedForward`: the estimator of the first MXNet programs, over `Module`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import metric as _metric
from .. import ndarray as nd
from .._checkpoint import load_checkpoint, save_checkpoint
from .._warnings import warn
from ..context import current_context
from ..io import DataIter, NDArrayIter
from ..ndarray import NDArray
from ..symbol import Symbol
from .arguments import as_list, call_all
from .bucketing_module import BucketingModule
from .interface import DEFAULT_INITIALIZER
from .module import Module

__all__ = ["FeedForward"]


class FeedForward:
    """A network with `fit`, `predict` and `score` on arrays or iterators. Deprecated: use `Module`.

    Parameters
    ----------
    symbol : Symbol or callable
        Its arguments that end in `data` and `label` are the inputs. A function makes the symbol of
        the bucket whose key it is given; the iterator says which is the largest
        (`default_bucket_key`), and each batch, which one it belongs to (`bucket_key`).
    ctx : Context or list of Context, optional
    num_epoch : int, optional
        Number of the epoch before which training ends.
    epoch_size : int, optional
        Batches an epoch; None: as many as the iterator gives.
    optimizer : str or Optimizer
    initializer : Initializer
    numpy_batch_size : int
        Rows a batch where arrays are given.
    arg_params, aux_params : dict of str to NDArray, optional
        First values.
    allow_extra_params : bool
        May these have names that the symbol does not have?
    begin_epoch : int
        Number of the first epoch.
    **kwargs
        Arguments of the optimizer.

    Examples
    --------
    >>> import warnings, numpy as np, rsnet as mx
    >>> x = np.random.uniform(-1, 1, (64, 4))
    >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     model = mx.model.FeedForward(mx.sym.SoftmaxOutput(net, name="softmax"), num_epoch=20,
    ...         learning_rate=0.5, numpy_batch_size=16)
    >>> model.fit(x, x.sum(axis=1) > 0)
    >>> model.predict(x).shape
    (64, 2)
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = DEFAULT_INITIALIZER,
        numpy_batch_size: int = 128,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        warn("FeedForward is deprecated. Please use Module instead.", DeprecationWarning)
        self.sym_gen = None if isinstance(symbol, Symbol) or not callable(symbol) else symbol
        self.symbol: Any = None if self.sym_gen else symbol
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
        self.kwargs = dict(kwargs)

    # ---- data ----------------------------------------------------------------------------------

    def _iterator(self, x: Any, y: Any, is_train: bool) -> Any:
        """Batches of rows of arrays, or `x` itself if it is an iterator."""
        if isinstance(x, DataIter) or hasattr(x, "provide_data"):
            return x
        if not isinstance(x, (np.ndarray, NDArray)):
            raise TypeError(f"invalid data {x!r:.100}: expected an array or an iterator of batches")
        if y is None:
            if is_train:
                raise ValueError("invalid y None: expected labels, as X is an array")
            y = np.zeros(x.shape[0])
        labels = y.asnumpy() if isinstance(y, NDArray) else np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels.ravel()
        if labels.ndim != 1 or x.shape[0] != labels.shape[0]:
            raise ValueError(
                f"invalid shape {labels.shape} of y: expected ({x.shape[0]},), a label for each row"
            )
        size = min(x.shape[0], self.numpy_batch_size)
        last = "roll_over" if is_train else "pad"
        return NDArrayIter(x, labels, size, shuffle=is_train, last_batch_handle=last)

    @staticmethod
    def _inputs(symbol: Any, data: Any) -> tuple[list[str], list[str]]:
        """The names of data and of labels that the iterator gives and the symbol has."""
        arguments = symbol.list_arguments()
        names = [d[0] for d in data.provide_data]
        labels = [d[0] for d in data.provide_label or [] if d[0] in arguments]
        return names, labels or [n for n in arguments if n.endswith("label") and n not in names]

    def _module(self, data: Any, **options: Any) -> Module:
        return Module(self.symbol, *self._inputs(self.symbol, data), context=self.ctx, **options)

    def _buckets(self, data: Any, sym_gen: Callable[[Any], Any], **options: Any) -> BucketingModule:
        """The modules of all buckets; `symbol` is now that of the largest one."""

        def generate(key: Any) -> tuple[Any, list[str], list[str]]:
            symbol = sym_gen(key)
            names, labels = self._inputs(symbol, data)
            arguments = symbol.list_arguments()
            return symbol, [n for n in names if n in arguments], labels

        module = BucketingModule(generate, data.default_bucket_key, context=self.ctx, **options)
        self.symbol = generate(data.default_bucket_key)[0]
        return module

    def _params(self) -> tuple[Any, Any]:
        if not self.allow_extra_params or self.arg_params is None:
            return self.arg_params, self.aux_params
        known = {*self.symbol.list_arguments(), *self.symbol.list_auxiliary_states()}
        arg = {n: a for n, a in self.arg_params.items() if n in known}
        return arg, {n: a for n, a in (self.aux_params or {}).items() if n in known}

    def _bound(self, data: Any) -> Module:
        """The module bound for inference over the parameters."""
        if self.arg_params is None:
            raise AssertionError("the model has no parameters: call fit or load first")
        if self.symbol is None and self.sym_gen is not None:
            self.symbol = self.sym_gen(data.default_bucket_key)
        module = self._module(data)
        labels = [d for d in data.provide_label or [] if d[0] in module.label_names]
        module.bind(data.provide_data, labels or None, for_training=False)
        known = {*self.symbol.list_arguments(), *self.symbol.list_auxiliary_states()}
        extra = [n for n in (*self.arg_params, *(self.aux_params or {})) if n not in known]
        if extra and not self.allow_extra_params:
            raise ValueError(
                f'Find name "{extra[0]}" that is not in the arguments: expected one of '
                f"{', '.join(sorted(known))} "
                "(allow_extra_params=True ignores it)"
            )
        module.init_params(None, *self._params(), allow_extra=self.allow_extra_params)
        return module

    # ---- what users call -----------------------------------------------------------------------

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
        """Trains; `X` and `eval_data` are iterators, or arrays (`eval_data` a pair of them)."""
        data = self._iterator(X, y, is_train=True)
        if isinstance(eval_data, (tuple, list)):
            x, y = eval_data
            # In any order, as in MXNet, so that the same seed shuffles the training data alike.
            eval_data = self._iterator(np.array(x) if isinstance(x, list) else x, y, is_train=True)
        options = {"logger": logger or logging, "work_load_list": work_load_list}
        module: Module | BucketingModule
        if self.sym_gen is None:
            module = self._module(data, **options)
        else:
            module = self._buckets(data, self.sym_gen, **options)
        arg_params, aux_params = self._params()

        # Iterators are reset when MXNet does it: a shuffled one then draws the same orders.
        def keep(epoch: int, symbol: Any, arg: Any, aux: Any) -> None:
            if self.epoch_size is None:
                data.reset()
            self.arg_params, self.aux_params = dict(arg), dict(aux)
            call_all(epoch_end_callback, epoch, self.symbol, arg, aux)

        def count_from_one(param: Any) -> None:
            call_all(batch_end_callback, param._replace(nbatch=param.nbatch + 1))

        def after_evaluation(param: Any) -> None:
            call_all(eval_end_callback, param)
            eval_data.reset()

        module.logger.info("Start training with %s", as_list(self.ctx or current_context()))
        data.reset()
        module.fit(
            _Epochs(data, self.epoch_size), eval_data, eval_metric=eval_metric,
            epoch_end_callback=keep, batch_end_callback=count_from_one, kvstore=kvstore,
            optimizer=self.optimizer,
            optimizer_params=self.kwargs or {"learning_rate": 0.01},
            eval_end_callback=after_evaluation, eval_batch_end_callback=eval_batch_end_callback,
            initializer=self.initializer, arg_params=arg_params, aux_params=aux_params,
            allow_missing=True, begin_epoch=self.begin_epoch, num_epoch=self.num_epoch,
            monitor=monitor,
        )  # fmt: skip

    def predict(
        self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True
    ) -> Any:
        """The outputs for all rows, as NumPy arrays.

        Parameters
        ----------
        X : array or DataIter
        num_batch : int, optional
            Maximum number of batches.
        return_data : bool
            Return the data and the labels, too?
        reset : bool
            Start the iterator from its beginning?

        Returns
        -------
        numpy.ndarray or list of numpy.ndarray
            One array an output; with `return_data` a tuple of outputs, data and labels.
        """
        data = self._iterator(X, None, is_train=False)
        outputs: list[list[NDArray]] = []
        inputs: list[list[NDArray]] = []
        labels: list[list[NDArray]] = []
        for out, _, batch in self._bound(data).iter_predict(data, num_batch, reset):
            rows = batch.data[0].shape[0] - (batch.pad or 0)
            outputs.append([o.copy() for o in out])
            inputs.append([d[0:rows].copy() for d in batch.data])
            labels.append([x[0:rows].copy() for x in batch.label or []])
        merged = _merged(outputs)
        return (merged, _merged(inputs), _merged(labels)) if return_data else merged

    def score(
        self,
        X: Any,
        eval_metric: Any = "acc",
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        reset: bool = True,
    ) -> Any:
        """The value of a metric over an iterator."""
        data = self._iterator(X, None, is_train=False)
        metric = _metric.create(eval_metric)
        self._bound(data).score(
            data, metric, num_batch, batch_end_callback=batch_end_callback, reset=reset
        )
        return metric.get()[1]

    # ---- files ---------------------------------------------------------------------------------

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Writes a checkpoint; without `epoch` under the number of the last epoch."""
        number = self.num_epoch if epoch is None else epoch
        if number is None or self.arg_params is None:
            raise AssertionError("save: expected parameters (of fit), and an epoch, got none")
        save_checkpoint(
            prefix, number, self.symbol, self.arg_params, self.aux_params or {}, remove_amp_cast
        )

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """The model of a checkpoint; training goes on at `epoch`."""
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        return FeedForward(
            symbol, ctx=ctx, arg_params=arg_params, aux_params=aux_params, begin_epoch=epoch,
            **kwargs,
        )  # fmt: skip

    @staticmethod
    def create(
        symbol: Any,
        X: Any,
        y: Any = None,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = DEFAULT_INITIALIZER,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Any = None,
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
        **kwargs: Any,
    ) -> FeedForward:
        """Makes a model and trains it."""
        model = FeedForward(
            symbol, ctx=ctx, num_epoch=num_epoch, epoch_size=epoch_size, optimizer=optimizer,
            initializer=initializer, **kwargs,
        )  # fmt: skip
        model.fit(
            X, y, eval_data=eval_data, eval_metric=eval_metric, kvstore=kvstore, logger=logger,
            epoch_end_callback=epoch_end_callback, batch_end_callback=batch_end_callback,
            work_load_list=work_load_list, eval_end_callback=eval_end_callback,
            eval_batch_end_callback=eval_batch_end_callback,
        )  # fmt: skip
        return model


def _merged(batches: list[list[NDArray]]) -> Any:
    """Arrays of all batches one after the other; a single array stands alone."""
    arrays = [nd.concat(*as_list(parts), dim=0).asnumpy() for parts in zip(*batches, strict=True)]
    return arrays[0] if len(arrays) == 1 else arrays


class _Epochs(DataIter):
    """Epochs of an iterator that its owner resets: all its batches, or always `size` of them.

    With a size, an epoch goes on where the last one ended, and the iterator begins again where it
    ends. Batches are asked for by `for`: programs write iterators that define `__iter__` alone.
    """

    def __init__(self, data: Any, size: int | None) -> None:
        super().__init__(getattr(data, "batch_size", 0))
        self._data, self._size = data, size
        self.provide_data, self.provide_label = data.provide_data, data.provide_label

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data) if self._size is None else self._sized(self._size)

    def _sized(self, size: int) -> Iterator[Any]:
        given, fresh = 0, False
        while given < size:
            start = given
            for batch in self._data:
                given += 1
                yield batch
                if given == size:
                    return
            if fresh and given == start:
                raise ValueError("invalid X: expected an iterator with batches, got none")
            self._data.reset()
            fresh = True
