"""`BucketingModule`: one set of parameters for symbols of several lengths."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..base import MXNetError
from ..initializer import Uniform
from ..io import DataBatch, DataDesc
from ..name import NameManager
from ..ndarray import NDArray
from .base import BaseModule
from .module import Module

__all__ = ["BucketingModule"]


class BucketingModule(BaseModule):
    """A module for every bucket key; all share the parameters and the optimizer.

    Parameters
    ----------
    sym_gen : callable
        Returns (symbol, data names, label names) for a bucket key.
    default_bucket_key : object
        The key of the bucket that is bound first. It has all the parameters, and should be the
        largest.
    logger, context, fixed_param_names, state_names, group2ctxs
        As for `Module`.
    """

    def __init__(
        self,
        sym_gen: Callable[[Any], tuple[Any, Sequence[str], Sequence[str]]],
        default_bucket_key: Any = None,
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
    ) -> None:
        super().__init__(logger)
        if default_bucket_key is None:
            raise ValueError("invalid default_bucket_key None: expected a bucket key")
        self._sym_gen = sym_gen
        self._default_bucket_key = default_bucket_key
        self._options = {
            "logger": logger,
            "context": context,
            "work_load_list": work_load_list,
            "fixed_param_names": fixed_param_names,
            "state_names": state_names,
            "group2ctxs": group2ctxs,
            "compression_params": compression_params,
        }
        self._buckets: dict[Any, Module] = {}
        self._current_key = default_bucket_key
        self._grad_req: Any = None
        self._monitor: Any = None
        self._module(default_bucket_key)  # refuses wrong names at once

    def _module(self, key: Any) -> Module:
        """A new, unbound module for a key."""
        with NameManager():
            symbol, data_names, label_names = self._sym_gen(key)
        return Module(symbol, data_names, label_names, **self._options)

    def _bound(self) -> Module:
        """The module of the current bucket."""
        self._expect("binded")
        return self._buckets[self._current_key]

    @property
    def symbol(self) -> Any:
        return self._bound().symbol

    @property
    def data_names(self) -> list[str]:
        key = self._current_key if self.binded else self._default_bucket_key
        return list(self._buckets[key].data_names if self.binded else self._sym_gen(key)[1])

    @property
    def output_names(self) -> list[str]:
        if self.binded:
            return self._bound().output_names
        return self._module(self._default_bucket_key).output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        return self._bound().data_shapes

    @property
    def label_shapes(self) -> list[DataDesc]:
        return self._bound().label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._bound().output_shapes

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
        """Binds the default bucket; the others are bound when their first batch comes."""
        if shared_module is not None:
            raise MXNetError("BucketingModule does not take a shared_module")
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        values = self.get_params() if self.params_initialized else None
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._grad_req = grad_req
        module = self._module(self._default_bucket_key)
        module.bind(data_shapes, label_shapes, for_training, inputs_need_grad, grad_req=grad_req)
        self._buckets = {self._default_bucket_key: module}
        self._current_key = self._default_bucket_key
        self.binded = True
        if values is not None:
            module.init_params(None, *values)

    def switch_bucket(self, bucket_key: Any, data_shapes: Any, label_shapes: Any = None) -> None:
        """Makes another bucket the current one, and binds it where it is new."""
        self._expect("binded")
        if bucket_key not in self._buckets:
            module = self._module(bucket_key)
            default = self._buckets[self._default_bucket_key]
            module.bind(
                data_shapes,
                label_shapes,
                self.for_training,
                self.inputs_need_grad,
                shared_module=default,
                grad_req=self._grad_req,
            )
            if self._monitor is not None:
                module.install_monitor(self._monitor)
            self._buckets[bucket_key] = module
        self._current_key = bucket_key

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        self._expect("binded", "params_initialized")
        return self._buckets[self._default_bucket_key].get_params()

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008  (an initializer has no state)
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        if self.params_initialized and not force_init:
            warnings.warn(
                "Parameters already initialized and force_init=False. init_params call ignored.",
                stacklevel=2,
            )
            return
        self._expect("binded")
        self._buckets[self._default_bucket_key].init_params(
            initializer, arg_params, aux_params, allow_missing, force_init, allow_extra
        )
        for module in self._buckets.values():
            module.params_initialized = True
        self.params_initialized = True

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        self._expect("binded", "params_initialized")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        default = self._buckets[self._default_bucket_key]
        default.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        for module in self._buckets.values():
            if module is not default:
                module.borrow_optimizer(default)
        self.optimizer_initialized = True

    def prepare(self, data_batch: DataBatch, sparse_row_id_fn: Any = None) -> None:
        """Binds the bucket of the next batch, while the current batch is computed."""
        super().prepare(data_batch, sparse_row_id_fn)
        self._expect("binded", "params_initialized")
        current = self._current_key
        self._switch(data_batch)
        self._current_key = current

    def _switch(self, batch: DataBatch) -> None:
        key = self._default_bucket_key if batch.bucket_key is None else batch.bucket_key
        known = self._buckets.get(key)
        if known is None and not batch.provide_data:
            raise ValueError(f"the first batch of bucket {key!r} has no provide_data")
        self.switch_bucket(key, batch.provide_data, batch.provide_label)

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        self._expect("binded", "params_initialized")
        self._switch(data_batch)
        self._bound().forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        self._bound().backward(out_grads)

    def update(self) -> None:
        self._expect("binded", "params_initialized", "optimizer_initialized")
        module = self._bound()
        if not module.optimizer_initialized:
            module.borrow_optimizer(self._buckets[self._default_bucket_key])
        module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        return self._bound().get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        return self._bound().get_input_grads(merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        return self._bound().get_states(merge_multi_context)

    def set_states(self, states: Any = None, value: float | None = None) -> None:
        self._bound().set_states(states, value)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._bound().update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        self._expect("binded")
        self._monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)
