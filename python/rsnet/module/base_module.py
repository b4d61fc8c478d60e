"""`BaseModule`: what every module can do once it can bind, run and update; above all `fit`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import metric as _metric
from .. import ndarray as nd
from .._checkpoint import params_of_file, save_params
from ..base import shown
from ..callback import BatchEndParam
from ..io import DataBatch, DataIter
from ..ndarray import NDArray
from .arguments import (
    Callbacks,
    call_all,
    check_batches,
    check_num_batch,
    epochs_of_fit,
    next_batch,
    refuse_sparse,
)
from .interface import DEFAULT_INITIALIZER, ModuleInterface
from .progress import Progress

__all__ = ["BaseModule"]


class BaseModule(ModuleInterface):
    """Base of all modules: what can be written in terms of what a subclass defines.

    A subclass defines `bind`, `init_params`, `init_optimizer`, `forward`, `backward`, `update`,
    `get_outputs`, `get_input_grads`, `update_metric`, `get_params` and the properties that describe
    inputs and outputs.

    Attributes
    ----------
    binded, for_training, inputs_need_grad, params_initialized, optimizer_initialized : bool
        How far the module has come: bind, then parameters, then the optimizer.
    """

    # ---- running over an iterator --------------------------------------------------------------

    def forward_backward(self, data_batch: DataBatch) -> None:
        """Forward as for training, then backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def score(
        self,
        eval_data: DataIter,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Callbacks = None,
        score_end_callback: Callbacks = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Any = None,
    ) -> list[tuple[str, float]]:
        """Evaluates a metric over an iterator; padded rows count too.

        Parameters
        ----------
        eval_data : DataIter
        eval_metric : EvalMetric, name, function or list of these
        num_batch : int, optional
            Maximum number of batches.
        batch_end_callback, score_end_callback : callable or list
            Called with a `BatchEndParam`.
        reset : bool
            Start the iterator from its beginning?
        epoch : int
            Number that callbacks are given.

        Returns
        -------
        list of (str, float)
            Name and value of each metric.
        """
        self._require("score", "binded", "params_initialized")
        check_num_batch(num_batch)
        refuse_sparse(sparse_row_id_fn)
        check_batches("eval_data", eval_data, "reset")
        if reset:
            eval_data.reset()
        metric = _metric.create(eval_metric)
        metric.reset()
        count = 0
        for nbatch, batch in enumerate(eval_data):
            if nbatch == num_batch:
                break
            self.prepare(batch, sparse_row_id_fn=sparse_row_id_fn)
            self.forward(batch, is_train=False)
            if isinstance(batch, list):
                self.update_metric(metric, [b.label for b in batch], pre_sliced=True)
            else:
                self.update_metric(metric, batch.label)
            call_all(batch_end_callback, BatchEndParam(epoch, nbatch, metric, locals()))
            count += 1
        call_all(score_end_callback, BatchEndParam(epoch, count, metric, locals()))
        return metric.get_global_name_value()

    def iter_predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        reset: bool = True,
        sparse_row_id_fn: Any = None,
    ) -> Iterator[tuple[list[NDArray], int, DataBatch]]:
        """Yields the outputs of each batch without its padding, its number, and the batch."""
        self._require("iter_predict", "binded", "params_initialized")
        check_num_batch(num_batch)
        refuse_sparse(sparse_row_id_fn)
        if reset:
            eval_data.reset()
        for nbatch, batch in enumerate(eval_data):
            if nbatch == num_batch:
                break
            self.prepare(batch, sparse_row_id_fn=sparse_row_id_fn)
            self.forward(batch, is_train=False)
            pad = batch.pad or 0
            rows = batch.data[0].shape[0]
            if not 0 <= pad <= rows:
                raise ValueError(f"invalid pad {pad!r}: expected 0 to {rows}, the batch's rows")
            outputs = [out[0 : out.shape[0] - pad] for out in self.get_outputs()]
            yield outputs, nbatch, batch

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Any = None,
    ) -> Any:
        """The outputs for all rows of an iterator, without padding.

        Parameters
        ----------
        eval_data : DataIter, NDArray or numpy.ndarray
            An array is one batch.
        num_batch : int, optional
            Maximum number of batches.
        merge_batches : bool
            Concatenate the batches? Otherwise a list of outputs for each batch.
        reset : bool
            Start the iterator from its beginning?
        always_output_list : bool
            A list also where there is one output.

        Raises
        ------
        ValueError
            `eval_data` is neither an array nor an iterator, or batches differ in their number of
            outputs.
        """
        self._require("predict", "binded", "params_initialized")
        if isinstance(eval_data, (NDArray, np.ndarray)):
            array = nd.array(eval_data) if isinstance(eval_data, np.ndarray) else eval_data
            self.forward(DataBatch([array]), is_train=False)
            return self.get_outputs()[0]
        if not isinstance(eval_data, DataIter) and not hasattr(eval_data, "reset"):
            raise ValueError(
                f"invalid eval_data {shown(eval_data)}: expected an NDArray or a DataIter"
            )
        batches = [
            [out.copy() for out in outputs]
            for outputs, _, _ in self.iter_predict(eval_data, num_batch, reset, sparse_row_id_fn)
        ]
        if not batches or not merge_batches:
            return batches
        if len({len(outputs) for outputs in batches}) != 1:
            raise ValueError(
                "predict: the batches have different numbers of outputs, as buckets may have: "
                "expected merge_batches=False"
            )
        merged = [nd.concat(*parts, dim=0) for parts in zip(*batches, strict=True)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    def fit(
        self,
        train_data: Any,
        eval_data: DataIter | None = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Callbacks = None,
        batch_end_callback: Callbacks = None,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        eval_end_callback: Callbacks = None,
        eval_batch_end_callback: Callbacks = None,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_rebind: bool = False,
        force_init: bool = False,
        begin_epoch: int = 0,
        num_epoch: int | None = None,
        validation_metric: Any = None,
        monitor: Any = None,
        sparse_row_id_fn: Any = None,
        *,
        progress: bool | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        """Trains: binds, initialises and runs `num_epoch - begin_epoch` epochs.

        Parameters
        ----------
        train_data, eval_data : DataIter
            Batches to learn from, and batches to validate with after each epoch.
        eval_metric, validation_metric : EvalMetric, name, function or list of these
            Metric of the training, and of the validation (the same if None).
        epoch_end_callback : callable or list
            Called with `(epoch, symbol, arg_params, aux_params)`.
        batch_end_callback, eval_batch_end_callback, eval_end_callback : callable or list
            Called with a `BatchEndParam`.
        kvstore : str or KVStore
            How gradients of several devices are summed.
        optimizer : str or Optimizer
        optimizer_params : dict or sequence of pairs
            Arguments of the optimizer, if it is given by name.
        initializer : Initializer
            For parameters that `arg_params` and `aux_params` do not give.
        arg_params, aux_params : dict of str to NDArray
            First values, for example of a checkpoint.
        allow_missing : bool
            May `arg_params` lack parameters?
        force_rebind, force_init : bool
            Bind, initialise again where that was done before?
        begin_epoch, num_epoch : int
            Number of the first epoch, and of the epoch before which training ends.
        monitor : Monitor, optional
        progress : bool, optional
            Show rate, metric and time left on standard error: one line on a terminal, else one for
            each epoch that the logger does not report? Default: yes, unless `RSNET_PROGRESS` is 0.
        memory_limit : int or str, optional
            As for `Module.bind`.

        Raises
        ------
        AssertionError
            `num_epoch` is missing.
        TypeError
            `train_data` or `eval_data` gives no batches, or an argument is of a wrong kind.
        """
        epochs = epochs_of_fit(
            begin_epoch, num_epoch, train_data=train_data, eval_data=eval_data, monitor=monitor,
            sparse_row_id_fn=sparse_row_id_fn,
        )  # fmt: skip
        # Not all kinds of modules take one.
        limit: dict[str, Any] = {} if memory_limit is None else {"memory_limit": memory_limit}
        self.bind(
            data_shapes=train_data.provide_data, label_shapes=train_data.provide_label,
            for_training=True, force_rebind=force_rebind, **limit,
        )  # fmt: skip
        if monitor is not None:
            self.install_monitor(monitor)
        if force_init or not self.params_initialized or arg_params or aux_params:
            self.init_params(
                initializer=initializer, arg_params=arg_params, aux_params=aux_params,
                allow_missing=allow_missing, force_init=force_init,
            )  # fmt: skip
        self.init_optimizer(kvstore=kvstore, optimizer=optimizer, optimizer_params=optimizer_params)
        metric = _metric.create(eval_metric)
        validation_metric = metric if validation_metric is None else validation_metric
        display = Progress(progress, epochs, train_data, self.logger, batch_end_callback)
        for epoch in epochs:
            tic = time.time()
            try:
                values = self._train_epoch(
                    train_data, metric, epoch, batch_end_callback, monitor, display, locals()
                )
            finally:
                display.clear()
            scores: list[tuple[str, float]] = []
            if not display.epoch_batches:
                self.logger.warning(
                    "Epoch[%d]: train_data gave no batch (reset it before fit, if it is used up)",
                    epoch,
                )
            for name, value in values:
                self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
            self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - tic)
            arg_params, aux_params = self.get_params()
            self.set_params(arg_params, aux_params)
            call_all(epoch_end_callback, epoch, self.symbol, arg_params, aux_params)
            if eval_data is not None:
                scores = self.score(
                    eval_data, validation_metric, score_end_callback=eval_end_callback,
                    batch_end_callback=eval_batch_end_callback, epoch=epoch,
                )  # fmt: skip
                for name, value in scores:
                    self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
            display.epoch_done(epoch, values, scores)
            train_data.reset()
        nd.waitall()  # a program may fork now, and go on in the child

    def _train_epoch(
        self,
        train_data: Any,
        eval_metric: Any,
        epoch: int,
        callbacks: Callbacks,
        monitor: Any,
        display: Progress,
        more: dict[str, Any],
    ) -> list[tuple[str, float]]:
        """Runs one epoch, a batch read ahead; the metric's values at its end, before callbacks.

        These find `more`, the variables of `fit`, in `locals`, beside those of this method.
        """
        eval_metric.reset()
        display.start_epoch()
        data_iter = iter(train_data)
        next_data_batch = next_batch(data_iter)
        values: list[tuple[str, float]] = eval_metric.get_global_name_value()
        nbatch = 0
        while next_data_batch is not None:
            data_batch = next_data_batch
            if monitor is not None:
                monitor.tic()
            self.forward_backward(data_batch)
            self.update()
            next_data_batch = next_batch(data_iter)
            end_of_batch = next_data_batch is None
            if next_data_batch is not None:
                self.prepare(next_data_batch)
            if isinstance(data_batch, list):
                self.update_metric(eval_metric, [b.label for b in data_batch], pre_sliced=True)
            else:
                self.update_metric(eval_metric, data_batch.label)
            if monitor is not None:
                monitor.toc_print()
            if end_of_batch:
                values = eval_metric.get_global_name_value()
            if callbacks is not None:
                display.clear()  # callbacks may log
                call_all(callbacks, BatchEndParam(epoch, nbatch, eval_metric, {**more, **locals()}))
            display.batch_done(epoch, eval_metric)
            nbatch += 1
        return values

    # ---- parameters ----------------------------------------------------------------------------

    def set_params(
        self,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Assigns parameters and auxiliary states.

        Raises
        ------
        RuntimeError
            A parameter is missing, unless `allow_missing`.
        ValueError
            A name that the module does not have, with `allow_missing` and without `allow_extra`.
        """
        # Modules of programs from before 0.12 define init_params without allow_extra.
        more = {"allow_extra": True} if allow_extra else {}
        self.init_params(
            initializer=None, arg_params=arg_params, aux_params=aux_params,
            allow_missing=allow_missing, force_init=force_init, **more,
        )  # fmt: skip

    def save_params(self, fname: str) -> None:
        """Writes the parameters (`arg:name`) and auxiliary states (`aux:name`) to a file."""
        save_params(fname, *self.get_params())

    def load_params(self, fname: str) -> None:
        """Assigns what `save_params` wrote.

        Raises
        ------
        ValueError
            The file's arrays are not named `arg:` or `aux:`.
        """
        self.set_params(*params_of_file(fname))
