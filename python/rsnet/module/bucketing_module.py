"""`BucketingModule`: one module for each input length, over shared parameters and memory.

All buckets use the memory of the largest one so far. When a larger one comes, those before it give
their executors up, and are bound again over its memory when they are next run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from .. import ndarray as nd
from .. import symbol as sym
from .._checkpoint import load_params
from .._warnings import warn
from ..base import shown
from ..context import current_context
from ..io import DataBatch
from ..name import NameManager
from ..ndarray import NDArray
from .base_module import BaseModule
from .interface import DEFAULT_INITIALIZER
from .module import Module
from .properties import delegated, within

__all__ = ["BucketingModule"]


class BucketingModule(BaseModule):
    """Modules of one network for different inputs, one for each bucket key that batches bring.

    Parameters
    ----------
    sym_gen : callable
        `sym_gen(bucket_key)` returns the symbol, the names of the data and the names of the labels.
    default_bucket_key : hashable
        Key of the bucket that is bound first, usually the largest.
    logger, context, work_load_list, fixed_param_names, state_names, group2ctxs, compression_params
        As for `Module`.

    Examples
    --------
    >>> import rsnet as mx
    >>> def sym_gen(length):
    ...     net = mx.sym.sum(mx.sym.Variable("data"), axis=1, keepdims=True)
    ...     net = mx.sym.FullyConnected(net, num_hidden=2, name="fc")
    ...     return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)
    >>> mod = mx.mod.BucketingModule(sym_gen, default_bucket_key=10)
    >>> mod.bind([("data", (4, 10))], [("softmax_label", (4,))])
    >>> mod.init_params()
    >>> batch = mx.io.DataBatch([mx.nd.ones((4, 6))], [mx.nd.zeros((4,))], bucket_key=6,
    ...     provide_data=[("data", (4, 6))], provide_label=[("softmax_label", (4,))])
    >>> mod.forward(batch)
    >>> mod.get_outputs()[0].shape
    (4, 2)
    """

    def __init__(
        self,
        sym_gen: Callable[[Any], Any],
        default_bucket_key: Any = None,
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(logger=logger)
        if default_bucket_key is None:
            raise AssertionError(
                "default_bucket_key is None, expected the key of the largest bucket"
            )
        self._sym_gen = sym_gen
        self._default_bucket_key = default_bucket_key
        # Programs read these by their names, and a module made later has them.
        self._context = current_context() if context is None else context
        self._work_load_list = work_load_list
        self._fixed_param_names = list(fixed_param_names or [])
        self._state_names = list(state_names or [])
        self._group2ctxs = group2ctxs
        self._compression_params = compression_params
        # The current bucket; the default one is there before it is bound.
        self._curr_module = self._default = self._new_module(default_bucket_key)
        self._curr_bucket_key = default_bucket_key
        self._buckets: dict[Any, Module] = {}
        self._largest = self._default  # whose memory the others use
        self._grad_req: Any = None  # until it is bound
        self._monitor: Any = None
        self._memory_limit: int | str | None = None
        self._outgrown: list[Module] = []  # bound over memory of their own, which is too small

    def _call_sym_gen(self, key: Any) -> Any:
        with NameManager():  # equal names in every bucket, whatever was composed before
            return self._sym_gen(key)

    def _new_module(self, key: Any) -> Module:
        made = self._call_sym_gen(key)
        if not isinstance(made, (tuple, list)) or len(made) != 3:
            raise TypeError(
                f"sym_gen({key!r}) returned {shown(made)}, expected (symbol, data_names, "
                "label_names)"
            )
        symbol, data_names, label_names = made
        return Module(
            symbol, data_names, label_names, self.logger, self._context, self._work_load_list,
            self._fixed_param_names, self._state_names, self._group2ctxs, self._compression_params,
        )  # fmt: skip

    def _module(self, what: str) -> Module:
        self._require(what, "binded")
        return self._curr_module

    # ---- what the module is: as the current bucket ---------------------------------------------

    def _named(self, what: str) -> Module:
        return self._curr_module

    symbol = delegated("symbol", _module, "The symbol of the current bucket.")
    data_names = delegated("data_names", _named, "Names of the data.")
    output_names = delegated("output_names", _named, "Names of the outputs.")
    data_shapes = delegated("data_shapes", _module, "Descriptions of the current bucket's data.")
    label_shapes = delegated("label_shapes", _module, "Descriptions of its labels.")
    output_shapes = delegated("output_shapes", _module, "Names and shapes of its outputs.")
    executors = delegated("executors", _module, "The executors of the current bucket.")
    _params_dirty = within("_default", "_params_dirty")  # of the parameters that all share

    # ---- binding and parameters ----------------------------------------------------------------

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: BaseModule | None = None,
        grad_req: Any = "write",
        memory_limit: int | str | None = None,
    ) -> None:
        """Binds the default bucket; the others are bound when a batch first needs them, each within
        `memory_limit`.
        """
        if shared_module is not None:
            raise AssertionError(
                "shared_module for BucketingModule is not supported: expected None (its buckets "
                "share their memory)"
            )
        if self._stays_bound(force_rebind):
            return
        if self.binded and self.params_initialized:
            self.get_params()  # of the current bucket, to the arrays that all share
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._grad_req, self._memory_limit = grad_req, memory_limit
        self._default.bind(
            data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind=force_rebind,
            grad_req=grad_req, memory_limit=memory_limit,
        )  # fmt: skip
        self._buckets = {self._default_bucket_key: self._default}
        self._largest = self._default
        self._outgrown = []
        self._curr_module, self._curr_bucket_key = self._default, self._default_bucket_key
        self.binded = True

    def switch_bucket(self, bucket_key: Any, data_shapes: Any, label_shapes: Any = None) -> None:
        """Makes a bucket the current one; binds it first if it is new."""
        self._require("switch_bucket", "binded")
        module = self._buckets.get(bucket_key)
        if module is None:
            module = self._new_module(bucket_key)
            module.bind(
                data_shapes, label_shapes, self.for_training, self.inputs_need_grad,
                shared_module=self._largest, grad_req=self._grad_req,
                memory_limit=self._memory_limit,
            )  # fmt: skip
            self._share_the_larger(module)
            if self._monitor is not None:
                module.install_monitor(self._monitor)
            self._buckets[bucket_key] = module
        elif not module.executors.execs:
            module.executors.bind_again(self._largest.executors)
        self._curr_module, self._curr_bucket_key = module, bucket_key

    def _switch_to(self, batch: DataBatch) -> None:
        """Makes the bucket of a batch the current one."""
        key = batch.bucket_key
        if key is None:
            raise ValueError("the batch has bucket_key None, expected the key of its bucket")
        if key not in self._buckets and not batch.provide_data:
            raise ValueError(
                "the batch has no provide_data, expected the names and shapes to bind bucket "
                f"{key!r}"
            )
        self.switch_bucket(key, batch.provide_data, batch.provide_label)

    def _share_the_larger(self, module: Module) -> None:
        """From now on buckets use the memory of a new module, if it has more.

        Those that are bound keep theirs until another is run (`_release_outgrown`): the outputs of
        the current one may still be asked for.
        """
        if self._state_names:
            return  # states live in the executors
        known = set(module.executors.param_names)
        larger = module.executors.planned_bytes > self._largest.executors.planned_bytes
        if larger and known.issuperset(self._largest.executors.param_names):
            self._largest = module
            self._outgrown = [m for m in self._buckets.values() if m.executors.execs]

    def _release_outgrown(self) -> None:
        """Gives up small memory; its buckets are bound again when they are next run."""
        for module in self._outgrown:
            if module is not self._curr_module:
                module.executors.release()
        self._outgrown = [m for m in self._outgrown if m is self._curr_module]

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Parameters and auxiliary states."""
        self._require("get_params", "params_initialized")
        return self._module("get_params").get_params()

    def init_params(
        self,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """As `Module.init_params`; all buckets share the parameters."""
        if self.params_initialized and not force_init:
            return
        module = self._module("init_params")
        module.init_params(
            initializer, arg_params, aux_params, allow_missing, force_init, allow_extra
        )
        self.params_initialized = True

    def set_params(
        self,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """As `Module.set_params`; all buckets share the parameters."""
        if self.params_initialized and not force_init:
            warn("Parameters already initialized and force_init=False. set_params call ignored.")
            return
        self._module("set_params").set_params(
            arg_params, aux_params, allow_missing, force_init, allow_extra
        )
        self.params_initialized = True

    # ---- optimizer -----------------------------------------------------------------------------

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """As `Module.init_optimizer`; all buckets share the optimizer."""
        if self._keeps_optimizer(force_init):
            return
        module = self._module("init_optimizer")
        module.init_optimizer(kvstore, optimizer, optimizer_params, force_init=force_init)
        for other in self._buckets.values():
            if other is not module:
                other.borrow_optimizer(module)
        self.optimizer_initialized = True

    # ---- running -------------------------------------------------------------------------------

    def prepare(self, data_batch: DataBatch, sparse_row_id_fn: Any = None) -> None:
        """Binds the bucket of a batch ahead of time; the current bucket stays."""
        super().prepare(data_batch, sparse_row_id_fn)
        self._require("prepare", "binded", "params_initialized")
        current = self._curr_bucket_key
        self._switch_to(data_batch)
        self.switch_bucket(current, None, None)

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Switches to the bucket of the batch and computes the outputs."""
        self._require("forward", "binded", "params_initialized")
        self._switch_to(data_batch)
        self._release_outgrown()
        self._module("forward").forward(data_batch, is_train=is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradients."""
        self._module("backward").backward(out_grads)

    def update(self) -> None:
        """Updates the parameters, which all buckets share."""
        self._require("update", "binded", "params_initialized", "optimizer_initialized")
        module = self._module("update")
        if not module.optimizer_initialized:
            module.borrow_optimizer(self._default)
        module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The outputs of the last forward."""
        return self._module("get_outputs").get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradients of the data."""
        return self._module("get_input_grads").get_input_grads(merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arguments that are carried from batch to batch."""
        return self._module("get_states").get_states(merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Sets the arguments that are carried from batch to batch."""
        self._module("set_states").set_states(states, value)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric by the outputs of the last forward."""
        self._module("update_metric").update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Lets a monitor watch every bucket, also those that are bound later."""
        self._require("install_monitor", "binded")
        self._monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)

    # ---- files ---------------------------------------------------------------------------------

    def save_checkpoint(
        self,
        prefix: str,
        epoch: int,
        save_optimizer_states: bool = False,
        remove_amp_cast: bool = False,
    ) -> None:
        """Writes `prefix-<key>-symbol.json` for every bucket, `prefix-0001.params` and
        `prefix.buckets`.
        """
        self._require("save_checkpoint", "binded", "params_initialized")
        for key in self._buckets:
            symbol = self._call_sym_gen(key)[0]
            symbol.save(f"{prefix}-{key}-symbol.json", remove_amp_cast=remove_amp_cast)
        self.save_params(f"{prefix}-{epoch:04d}.params")
        keys = list(self._buckets)
        if all(isinstance(k, int) for k in keys):
            nd.save(f"{prefix}.buckets", nd.array(keys, dtype="int32"))
        if save_optimizer_states:
            self._module("save_checkpoint").save_optimizer_states(f"{prefix}-{epoch:04d}.states")

    @staticmethod
    def load(
        prefix: str,
        epoch: int,
        sym_gen: Callable[[Any], Any] | None = None,
        default_bucket_key: Any = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """A module with the parameters of a checkpoint; the symbols come from `sym_gen`."""
        if sym_gen is None:
            raise AssertionError(
                "BucketingModule.load: invalid sym_gen None: expected a function of bucket keys"
            )
        arg_params, aux_params = load_params(prefix, epoch)
        return BucketingModule.load_dict(
            None, sym_gen, default_bucket_key, arg_params, aux_params, **kwargs
        )

    @staticmethod
    def load_dict(
        sym_dict: dict[Any, Any] | None = None,
        sym_gen: Callable[[Any], Any] | None = None,
        default_bucket_key: Any = None,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """A module with given parameters; symbols by bucket key, or from `sym_gen`."""
        if sym_dict is not None:
            known = dict(sym_dict)

            def sym_gen(key: Any) -> Any:
                found = known[key]
                if isinstance(found, sym.Symbol):
                    raise TypeError(
                        f"invalid value of {key!r} in sym_dict, a Symbol: expected (symbol, "
                        "data_names, label_names)"
                    )
                return found

        if sym_gen is None:
            raise AssertionError(
                "BucketingModule.load_dict: expected sym_dict or sym_gen, got none"
            )
        module = BucketingModule(sym_gen, default_bucket_key, **kwargs)
        module._default._params.take(arg_params or {}, aux_params or {})
        module.params_initialized = True
        return module
