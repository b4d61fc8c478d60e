"""`BaseModule`: training, scoring and prediction in terms of forward, backward and update."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import metric as metric_module
from .. import ndarray as nd
from ..base import MXNetError
from ..callback import BatchEndParam
from ..initializer import Uniform
from ..io import DataBatch, DataDesc, DataIter, NDArrayIter
from ..ndarray import NDArray

__all__ = ["BaseModule"]

Callback = Callable[..., None]


def as_list(value: Any) -> list[Any]:
    """`value` as a list: itself, nothing for `None`, else its only element."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def as_descs(shapes: Any) -> list[DataDesc]:
    """Descriptions from `DataDesc`s or tuples (name, shape)."""
    return [d if isinstance(d, DataDesc) else DataDesc(*d) for d in shapes or []]


def check_names(names: Sequence[str], arguments: Sequence[str], what: str, throw: bool) -> None:
    """Refuses names that the symbol does not have as arguments; with `throw` off, warns."""
    for name in names:
        if name in arguments:
            continue
        endings = ("_weight", "_bias", "_gamma", "_beta")
        candidates = [a for a in arguments if not a.endswith(endings)]
        text = (
            f"You created Module with Module(..., {what}_names={list(names)}) but input with name "
            f"'{name}' is not found in symbol.list_arguments(). Did you mean one of:\n\t"
            + "\n\t".join(candidates)
        )
        if throw:
            raise ValueError(text)
        warnings.warn(text, stacklevel=3)


class BaseModule:
    """A computation with parameters; a subclass defines how it is bound, run and updated.

    The order of calls is `bind`, `init_params`, `init_optimizer`, then `forward`, `backward` and
    `update` for every batch. `fit`, `score` and `predict` make these calls.

    Attributes
    ----------
    binded, for_training, inputs_need_grad, params_initialized, optimizer_initialized : bool
        State of the module.
    """

    def __init__(self, logger: Any = logging) -> None:
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None

    # ---- what a subclass defines ---------------------------------------------------------------

    def _undefined(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} does not define '{name}'")

    @property
    def data_names(self) -> list[str]:
        """Names of the data inputs."""
        raise self._undefined("data_names")

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        raise self._undefined("output_names")

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Descriptions of the data inputs."""
        raise self._undefined("data_shapes")

    @property
    def label_shapes(self) -> list[DataDesc]:
        """Descriptions of the label inputs."""
        raise self._undefined("label_shapes")

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Pairs (name, shape) of the outputs."""
        raise self._undefined("output_shapes")

    @property
    def symbol(self) -> Any:
        """The symbol of the computation, if there is one."""
        return self._symbol

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: BaseModule | None = None,
        grad_req: Any = "write",
    ) -> None:
        """Allocates memory for inputs of the given shapes."""
        raise self._undefined("bind")

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008  (an initializer has no state)
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Fills the parameters, from the given values or by the initializer."""
        raise self._undefined("init_params")

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Creates the optimizer."""
        raise self._undefined("init_optimizer")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of the parameters and of the auxiliary states."""
        raise self._undefined("get_params")

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Computes the outputs of a batch."""
        raise self._undefined("forward")

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradients of the last batch."""
        raise self._undefined("backward")

    def update(self) -> None:
        """Changes the parameters by their gradients."""
        raise self._undefined("update")

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Outputs of the last batch; lists of one array each without `merge_multi_context`."""
        raise self._undefined("get_outputs")

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Gradients of the data inputs."""
        raise self._undefined("get_input_grads")

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Adds the outputs of the last batch to a metric."""
        raise self._undefined("update_metric")

    def install_monitor(self, mon: Any) -> None:
        """Lets a monitor watch the computation."""
        raise self._undefined("install_monitor")

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Values of the states; there are none by default."""
        self._expect("binded", "params_initialized")
        return []

    def set_states(self, states: Any = None, value: float | None = None) -> None:
        """Sets the states from arrays or to a number; there are none by default."""
        self._expect("binded", "params_initialized")
        if states or value:
            raise ValueError(f"{type(self).__name__} has no states")

    def prepare(self, data_batch: DataBatch, sparse_row_id_fn: Any = None) -> None:
        """Called with the next batch while the current one is computed."""
        _refuse_sparse(sparse_row_id_fn)

    # ---- what all modules share ----------------------------------------------------------------

    def _expect(self, *flags: str) -> None:
        """Refuses a call that comes before those that it depends on."""
        calls = {
            "binded": "bind",
            "params_initialized": "init_params",
            "optimizer_initialized": "init_optimizer",
        }
        for flag in flags:
            if not getattr(self, flag):
                raise MXNetError(f"{type(self).__name__}: call '{calls[flag]}' first")

    def forward_backward(self, data_batch: DataBatch) -> None:
        """`forward` in training mode, then `backward`."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def set_params(
        self,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Sets parameters and auxiliary states from the given values."""
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def save_params(self, fname: str) -> None:
        """Saves parameters and auxiliary states to a file."""
        arg_params, aux_params = self.get_params()
        arrays = {f"arg:{k}": v for k, v in arg_params.items()}
        nd.save(fname, arrays | {f"aux:{k}": v for k, v in aux_params.items()})

    def load_params(self, fname: str) -> None:
        """Sets parameters and auxiliary states from a file of `save_params`.

        Raises
        ------
        ValueError
            The file's arrays are not named `arg:` or `aux:`.
        """
        found: dict[str, dict[str, Any]] = {"arg": {}, "aux": {}}
        loaded = nd.load(fname)
        for key, value in loaded.items() if isinstance(loaded, dict) else [("", None)]:
            kind, _, name = key.partition(":")
            if kind not in found or not name:
                raise ValueError(f"Invalid param file {fname}: '{key}' is not 'arg:' or 'aux:'")
            found[kind][name] = value
        self.set_params(found["arg"], found["aux"])

    def score(
        self,
        eval_data: Any,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        score_end_callback: Any = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Any = None,
    ) -> list[tuple[str, float]]:
        """Pairs (name, value) of a metric over the batches of `eval_data`.

        Padding rows of the last batch are part of the metric.
        """
        self._expect("binded", "params_initialized")
        _refuse_sparse(sparse_row_id_fn)
        if reset:
            eval_data.reset()
        eval_metric = metric_module.create(eval_metric)
        eval_metric.reset()
        count = 0
        for nbatch, eval_batch in enumerate(eval_data):
            if nbatch == num_batch:
                break
            self.prepare(eval_batch)
            self.forward(eval_batch, is_train=False)
            self.update_metric(eval_metric, eval_batch.label)
            param = BatchEndParam(epoch, nbatch, eval_metric, locals())
            _call_all(batch_end_callback, param)
            count += 1
        if score_end_callback:
            _call_all(score_end_callback, BatchEndParam(epoch, count, eval_metric, locals()))
        return eval_metric.get_name_value()

    def iter_predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        reset: bool = True,
        sparse_row_id_fn: Any = None,
    ) -> Iterator[tuple[list[NDArray], int, DataBatch]]:
        """Yields (outputs without padding rows, number of the batch, batch)."""
        self._expect("binded", "params_initialized")
        _refuse_sparse(sparse_row_id_fn)
        if reset:
            eval_data.reset()
        for nbatch, eval_batch in enumerate(eval_data):
            if nbatch == num_batch:
                break
            self.prepare(eval_batch)
            self.forward(eval_batch, is_train=False)
            pad = eval_batch.pad or 0
            yield [out[: len(out) - pad] for out in self.get_outputs()], nbatch, eval_batch

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Any = None,
    ) -> Any:
        """Outputs for all batches of `eval_data`, without padding rows.

        Parameters
        ----------
        eval_data : DataIter, NDArray or numpy.ndarray
            Batches, or the rows of one batch.
        num_batch : int, optional
            Number of batches at most.
        merge_batches : bool
            Concatenate the batches; otherwise a list of lists is returned, one per batch.
        always_output_list : bool
            Return a list also where there is one output.
        """
        self._expect("binded", "params_initialized")
        if isinstance(eval_data, (NDArray, np.ndarray)):
            eval_data = NDArrayIter(eval_data, batch_size=len(eval_data))
        if not isinstance(eval_data, DataIter) and not hasattr(eval_data, "__iter__"):
            raise TypeError(f"invalid eval_data: expected a DataIter, got {type(eval_data)}")
        batches = [
            [out.copy() for out in outputs]
            for outputs, _, _ in self.iter_predict(eval_data, num_batch, reset, sparse_row_id_fn)
        ]
        if not batches or not merge_batches:
            return batches
        if len({len(outputs) for outputs in batches}) != 1:
            raise ValueError(
                "Cannot merge batches, as num of outputs is not the same in mini-batches. Maybe "
                "bucketing is used?"
            )
        merged = [nd.concat(*parts, dim=0) for parts in zip(*batches, strict=True)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    def fit(
        self,
        train_data: Any,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
        initializer: Any = Uniform(0.01),  # noqa: B008
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
    ) -> None:
        """Trains the module; parameters, optimizer and memory are set up where they are not yet.

        Parameters
        ----------
        train_data, eval_data : DataIter
            Batches for training, and for validation after every epoch.
        eval_metric, validation_metric : EvalMetric or anything that `metric.create` accepts
            Metrics of the two; the second is the first by default.
        batch_end_callback, eval_batch_end_callback, eval_end_callback : callable or list
            Called with a `BatchEndParam`.
        epoch_end_callback : callable or list
            Called with epoch, symbol, parameters and auxiliary states.
        begin_epoch, num_epoch : int
            Epochs `begin_epoch` to `num_epoch - 1` are run.
        """
        if num_epoch is None:
            raise ValueError("please specify number of epochs: fit(num_epoch=...)")
        _refuse_sparse(sparse_row_id_fn)
        self.bind(
            train_data.provide_data, train_data.provide_label, True, force_rebind=force_rebind
        )
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(initializer, arg_params, aux_params, allow_missing, force_init)
        self.init_optimizer(kvstore, optimizer, optimizer_params)
        eval_metric = metric_module.create(eval_metric)
        validation_metric = validation_metric or eval_metric
        for epoch in range(begin_epoch, num_epoch):
            start = time.perf_counter()
            values = self._train_epoch(train_data, eval_metric, epoch, batch_end_callback, monitor)
            for name, value in values:
                self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
            self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.perf_counter() - start)
            arg_params, aux_params = self.get_params()
            for callback in as_list(epoch_end_callback):
                callback(epoch, self.symbol, arg_params, aux_params)
            if eval_data is not None:
                for name, value in self.score(
                    eval_data,
                    validation_metric,
                    batch_end_callback=eval_batch_end_callback,
                    score_end_callback=eval_end_callback,
                    epoch=epoch,
                ):
                    self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
            train_data.reset()

    def _train_epoch(
        self, train_data: Any, eval_metric: Any, epoch: int, callbacks: Any, monitor: Any
    ) -> list[tuple[str, float]]:
        """Runs one epoch; returns the metric's values before the last callbacks can reset it."""
        eval_metric.reset()
        values: list[tuple[str, float]] = []
        batches = iter(train_data)
        upcoming = next(batches, None)
        nbatch = 0
        while upcoming is not None:
            data_batch = upcoming
            if monitor is not None:
                monitor.tic()
            self.forward_backward(data_batch)
            self.update()
            self.update_metric(eval_metric, data_batch.label)
            upcoming = next(batches, None)
            if upcoming is not None:
                self.prepare(upcoming)
            if monitor is not None:
                monitor.toc_print()
            if upcoming is None:
                values = eval_metric.get_global_name_value()
            _call_all(callbacks, BatchEndParam(epoch, nbatch, eval_metric, locals()))
            nbatch += 1
        if nbatch == 0:
            raise ValueError(f"train_data has no batch in epoch {epoch}")
        return values


def _call_all(callbacks: Any, param: BatchEndParam) -> None:
    for callback in as_list(callbacks):
        callback(param)


def _refuse_sparse(sparse_row_id_fn: Any) -> None:
    if sparse_row_id_fn is not None:
        raise MXNetError("sparse_row_id_fn is given, but parameters have only dense storage")
