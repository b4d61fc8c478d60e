"""`Module`: a symbol, its parameters and its optimizer, on one device or several."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

from .. import context as ctx
from .. import initializer as init
from .. import ndarray as nd
from .. import optimizer as opt
from ..initializer import InitDesc
from ..io import DataBatch, DataDesc
from ..model import load_checkpoint
from ..ndarray import NDArray
from .base_module import DEFAULT_INITIALIZER, BaseModule, as_list, check_input_names, parse_descs
from .executor_group import DataParallelExecutorGroup
from .updates import GradientUpdate, choose_store

__all__ = ["Module"]


class Module(BaseModule):
    """A symbol with parameters that can be trained.

    Parameters
    ----------
    symbol : Symbol
        Its arguments other than data, labels and states are the parameters.
    data_names, label_names : list of str
        Arguments that each batch gives.
    logger : Logger
    context : Context or list of Context
        Devices; each takes a slice of every batch.
    work_load_list : list of float, optional
        Share of each device; equal if None.
    fixed_param_names : list of str, optional
        Parameters that are not trained.
    state_names : list of str, optional
        Arguments that are carried from batch to batch.
    group2ctxs : dict or list of dict, optional
        Devices of the `ctx_group` attributes, for model parallelism.
    compression_params : dict, optional
        Gradient compression, for example ``{"type": "2bit", "threshold": 0.5}``.

    Raises
    ------
    ValueError
        A name that is no argument of the symbol.

    Examples
    --------
    >>> import numpy as np, rsnet as mx
    >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    >>> mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    >>> x = np.random.uniform(-1, 1, (64, 4)).astype("float32")
    >>> batches = mx.io.NDArrayIter(x, (x.sum(axis=1) > 0).astype("float32"), batch_size=16)
    >>> mod.fit(batches, num_epoch=20, optimizer_params={"learning_rate": 0.5})
    >>> mod.score(batches, "acc")[0][1] > 0.9
    True
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(logger=logger)
        self._context = as_list(ctx.current_context() if context is None else context)
        self._work_load_list = list(work_load_list or [1] * len(self._context))
        if len(self._work_load_list) != len(self._context):
            raise ValueError(
                f"work_load_list has {len(self._work_load_list)} entries, "
                f"expected {len(self._context)}: one a context"
            )
        self._symbol = symbol
        self._data_names = list(data_names or [])
        self._label_names = list(label_names or [])
        self._state_names = list(state_names or [])
        self._fixed_param_names = list(fixed_param_names or [])
        check_input_names(symbol, self._data_names, "data", True)
        check_input_names(symbol, self._label_names, "label", False)
        check_input_names(symbol, self._state_names, "state", True)
        check_input_names(symbol, self._fixed_param_names, "fixed_param", True)
        given = {*self._data_names, *self._label_names, *self._state_names}
        self._param_names = [n for n in symbol.list_arguments() if n not in given]
        self._aux_names = symbol.list_auxiliary_states()
        self._output_names: list[str] = symbol.list_outputs()
        self._group2ctxs = group2ctxs
        self._compression_params = compression_params
        self._arg_params: dict[str, NDArray] = {}
        self._aux_params: dict[str, NDArray] = {}
        self._params_dirty = False
        self._exec_group: DataParallelExecutorGroup | None = None
        self._update: GradientUpdate | None = None
        self._preload_opt_states: str | None = None

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module with the symbol and the parameters of a checkpoint; the rest is given as to
        `Module`.
        """
        symbol, args, auxs = load_checkpoint(prefix, epoch)
        mod = Module(symbol=symbol, **kwargs)
        mod._arg_params, mod._aux_params = args, auxs
        mod.params_initialized = True
        if load_optimizer_states:
            mod._preload_opt_states = f"{prefix}-{epoch:04d}.states"
        return mod

    def save_checkpoint(
        self,
        prefix: str,
        epoch: int,
        save_optimizer_states: bool = False,
        remove_amp_cast: bool = True,
    ) -> None:
        """Writes `prefix-symbol.json`, `prefix-0001.params` and, if asked for,
        `prefix-0001.states`.
        """
        self._symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
        self.save_params(f"{prefix}-{epoch:04d}.params")
        self.logger.info('Saved checkpoint to "%s-%04d.params"', prefix, epoch)
        if save_optimizer_states:
            self.save_optimizer_states(f"{prefix}-{epoch:04d}.states")
            self.logger.info('Saved optimizer state to "%s-%04d.states"', prefix, epoch)

    # ---- what the module is --------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        """Names of the data."""
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return self._output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Descriptions of the data."""
        return self._group("data_shapes").data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        """Descriptions of the labels; None if the module was bound without."""
        return self._group("label_shapes").label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the outputs."""
        return self._group("output_shapes").get_output_shapes()

    def _group(self, what: str) -> DataParallelExecutorGroup:
        self._require(what, "binded")
        assert self._exec_group is not None
        return self._exec_group

    # ---- bind ----------------------------------------------------------------------------------

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
        """Allocates memory for the given shapes.

        Parameters
        ----------
        data_shapes, label_shapes : list of DataDesc or (str, tuple)
            Usually the iterator's `provide_data` and `provide_label`.
        for_training : bool
            Allocate gradients?
        inputs_need_grad : bool
            Compute gradients of the data, too?
        force_rebind : bool
            Bind again if the module is bound already (otherwise it is left as it is, with a
            warning).
        shared_module : Module, optional
            Module whose parameters and memory are shared.
        grad_req : {'write', 'add', 'null'}, list or dict
            Request of the gradients, for all arguments or by name.

        Raises
        ------
        ValueError
            The shapes' names are not those of the module.
        """
        if force_rebind:
            self._reset_bind()
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise AssertionError("inputs_need_grad=True needs for_training=True")
        data, labels = parse_descs(self._data_names, self._label_names, data_shapes, label_shapes)
        shared_group = None
        if shared_module is not None:
            if not (isinstance(shared_module, Module) and shared_module.binded):
                raise AssertionError("shared_module must be a bound Module")
            shared_group = shared_module._exec_group
        self._exec_group = DataParallelExecutorGroup(
            self._symbol, self._context, self._work_load_list, data, labels, self._param_names,
            for_training, inputs_need_grad, shared_group, self._fixed_param_names, grad_req,
            self._state_names, self._group2ctxs,
        )  # fmt: skip
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self.binded = True
        if shared_module is not None:
            self._share_params(shared_module)
        elif self.params_initialized:  # loaded before binding
            self._exec_group.set_params(self._arg_params, self._aux_params)
        else:
            self._arg_params, self._aux_params = self._host_params(self._exec_group)

    def _host_params(
        self, group: DataParallelExecutorGroup
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Zero arrays on the CPU for every parameter and auxiliary state."""

        def blank(names: list[str], blocks: list[list[NDArray]]) -> dict[str, NDArray]:
            firsts = [block[0] for block in blocks]
            return {n: nd.zeros(b.shape, dtype=b.dtype) for n, b in zip(names, firsts, strict=True)}

        return blank(self._param_names, group.param_arrays), blank(
            self._aux_names, group.aux_arrays
        )

    def _share_params(self, other: BaseModule) -> None:
        assert isinstance(other, Module)
        self.params_initialized = other.params_initialized
        self._arg_params, self._aux_params = other._arg_params, other._aux_params
        if other.optimizer_initialized:
            self.borrow_optimizer(other)

    def _reset_bind(self) -> None:
        if self.binded and self.params_initialized and self._params_dirty:
            self._sync_params_from_devices()
        self.binded = False
        self._exec_group = None

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Binds for other shapes, over the same parameters, gradients and memory."""
        group = self._group("reshape")
        group.reshape(*parse_descs(self._data_names, self._label_names, data_shapes, label_shapes))

    # ---- parameters ----------------------------------------------------------------------------

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Parameters and auxiliary states as arrays on the CPU, the mean over devices."""
        self._require("get_params", "params_initialized")
        if self._params_dirty:
            self._sync_params_from_devices()
        return self._arg_params, self._aux_params

    def _sync_params_from_devices(self) -> None:
        self._group("get_params").get_params(self._arg_params, self._aux_params)
        self._params_dirty = False

    def init_params(
        self,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Gives the parameters their first values.

        Parameters
        ----------
        initializer : Initializer or None
            For what `arg_params` and `aux_params` do not give; with None that keeps its values.
        arg_params, aux_params : dict of str to NDArray, optional
        allow_missing : bool
            May a given dict lack names? They are then initialised by `initializer`.
        force_init : bool
            Initialise again if it was done already (otherwise the call is ignored, with a warning)?
        allow_extra : bool
            Without effect, as in MXNet: names that the module does not have are always ignored.

        Raises
        ------
        RuntimeError
            A given dict lacks a name, unless `allow_missing`.
        ValueError
            A given array has another shape than its parameter.
        """
        if self.params_initialized and not force_init:
            warnings.warn(
                "Parameters already initialized and force_init=False. init_params call ignored.",
                stacklevel=2,
            )
            return
        group = self._group("init_params")
        attrs = self._symbol.attr_dict()
        if isinstance(initializer, str):
            initializer = init.create(initializer)
        for own, given in ((self._arg_params, arg_params), (self._aux_params, aux_params)):
            for name, array in sorted(own.items()):
                self._fill(name, array, given, initializer, allow_missing, attrs.get(name))
        self.params_initialized = True
        self._params_dirty = False
        group.set_params(self._arg_params, self._aux_params, allow_extra=True)

    @staticmethod
    def _fill(
        name: str, array: NDArray, given: Any, initializer: Any, allow_missing: bool, attrs: Any
    ) -> None:
        """Gives one parameter its value: the given one, else the initializer's."""
        value = None if given is None else given.get(name)
        if value is not None:
            if value is not array:
                if tuple(value.shape) != array.shape:
                    raise ValueError(
                        f"parameter '{name}' has shape {tuple(value.shape)}, expected {array.shape}"
                    )
                array[:] = value
        elif given is not None and not allow_missing:
            raise RuntimeError(f"{name} is not presented")
        elif initializer is not None:
            initializer(InitDesc(name, attrs, global_init=initializer), array)

    def set_params(
        self,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Assigns parameters; with `allow_missing` those that are not given keep their values."""
        if not allow_missing or not self.params_initialized:
            super().set_params(arg_params, aux_params, allow_missing, force_init, allow_extra)
            return
        if self.params_initialized and not force_init:
            warnings.warn(
                "Parameters already initialized and force_init=False. set_params call ignored.",
                stacklevel=2,
            )
            return
        group = self._group("set_params")
        group.set_params(arg_params or {}, aux_params or {}, allow_extra=allow_extra)
        self._params_dirty = True

    # ---- the optimizer -------------------------------------------------------------------------

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Chooses how parameters are updated.

        Parameters
        ----------
        kvstore : str, KVStore or None
            How gradients of several devices are summed.
        optimizer : str or Optimizer
            By name, gradients are scaled by 1 / batch size unless `rescale_grad` is given.
        optimizer_params : dict or sequence of pairs
            Arguments of an optimizer that is given by name.
        force_init : bool
            Initialise again if it was done already (otherwise the call is ignored, with a warning)?
        """
        self._require("init_optimizer", "binded", "params_initialized")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        group = self._group("init_optimizer")
        if self._params_dirty:
            self._sync_params_from_devices()
        store, update_on_kvstore = choose_store(kvstore, len(self._context), self._arg_params)
        names = _names_of_indices(self._param_names, len(self._context), update_on_kvstore)
        optimizer = self._make_optimizer(optimizer, optimizer_params, names, group.batch_size)
        if store is not None and self._compression_params:
            store.set_gradient_compression(self._compression_params)
        self._update = GradientUpdate(optimizer, store, update_on_kvstore, self._param_names)
        self._update.start(group.param_arrays, self._arg_params)
        self.optimizer_initialized = True
        if self._preload_opt_states is not None:
            self.load_optimizer_states(self._preload_opt_states)
            self._preload_opt_states = None

    def _make_optimizer(
        self, optimizer: Any, params: Any, names: dict[int, str], batch_size: int
    ) -> opt.Optimizer:
        rescale_grad = 1.0 / batch_size if batch_size else 1.0
        if isinstance(optimizer, str):
            arguments = {"rescale_grad": rescale_grad, **dict(params)}
            return opt.create(optimizer, sym=self.symbol, param_idx2name=names, **arguments)
        if not isinstance(optimizer, opt.Optimizer):
            raise TypeError(
                f"optimizer is a {type(optimizer).__name__}, expected a name or an Optimizer"
            )
        if optimizer.rescale_grad != rescale_grad:
            warnings.warn(
                f"Optimizer created manually outside Module but rescale_grad is not normalized to "
                f"1.0/batch_size/num_workers ({optimizer.rescale_grad} vs. {rescale_grad}). "
                "Is this intended?",
                stacklevel=3,
            )
        if not optimizer.idx2name:
            optimizer.idx2name = names.copy()
        return optimizer

    def borrow_optimizer(self, shared_module: BaseModule) -> None:
        """Uses the optimizer of another module, and its states."""
        assert isinstance(shared_module, Module)
        shared_module._require("borrow_optimizer", "optimizer_initialized")
        self._update = shared_module._update
        self.optimizer_initialized = True

    @property
    def _optimizer(self) -> opt.Optimizer | None:
        return None if self._update is None else self._update.optimizer

    @property
    def _kvstore(self) -> Any:
        return None if self._update is None else self._update.store

    @property
    def _update_on_kvstore(self) -> bool:
        return self._update is not None and self._update.on_store

    @property
    def _updater(self) -> Any:
        return None if self._update is None else self._update.updater

    def save_optimizer_states(self, fname: str) -> None:
        """Writes the optimizer's states to a file."""
        self._require("save_optimizer_states", "optimizer_initialized")
        assert self._update is not None
        self._update.save_states(fname)

    def load_optimizer_states(self, fname: str) -> None:
        """Reads what `save_optimizer_states` wrote, by pickle: load only files that you trust."""
        self._require("load_optimizer_states", "optimizer_initialized")
        assert self._update is not None
        self._update.load_states(fname)

    # ---- running -------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Computes the outputs; a batch of another shape binds the module for it first.

        Parameters
        ----------
        data_batch : DataBatch or list of DataBatch
            A list gives each device its own.
        is_train : bool, optional
            As for training? If None, as the module was bound.
        """
        self._require("forward", "binded", "params_initialized")
        group = self._group("forward")
        if isinstance(data_batch, DataBatch) or hasattr(data_batch, "data"):
            self._follow_shapes(group, data_batch)
        group.forward(data_batch, is_train)

    def _follow_shapes(self, group: DataParallelExecutorGroup, batch: Any) -> None:
        shapes = [tuple(a.shape) for a in batch.data]
        if shapes == [tuple(d.shape) for d in group.data_shapes]:
            return
        if len(shapes) != len(group.data_shapes):
            raise ValueError(
                f"the batch has {len(shapes)} data arrays, "
                f"expected {len(group.data_shapes)}: {group.data_names}"
            )
        data = getattr(batch, "provide_data", None) or _resized_descs(group.data_shapes, shapes)
        labels = getattr(batch, "provide_label", None)
        if not labels and batch.label:
            labels = _resized_descs(group.label_shapes or [], [tuple(a.shape) for a in batch.label])
        elif not labels and group.label_shapes is not None:
            rows = shapes[0][0] if shapes[0] else 0
            labels = _resized_descs(
                group.label_shapes, [(rows, *d.shape[1:]) for d in group.label_shapes]
            )
        self.reshape(data, labels or None)

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradients; `out_grads` are needed where the outputs are no losses."""
        self._require("backward", "binded", "params_initialized")
        self._group("backward").backward(out_grads)

    def update(self) -> None:
        """Updates the parameters by the gradients of the last backward."""
        self._require("update", "binded", "params_initialized", "optimizer_initialized")
        group = self._group("update")
        assert self._update is not None
        self._params_dirty = True
        self._update(group.param_arrays, group.grad_arrays)

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The outputs of the last forward.

        Parameters
        ----------
        merge_multi_context : bool
            Concatenate what the devices computed? Otherwise a list for each output.
        """
        self._require("get_outputs", "binded", "params_initialized")
        return self._group("get_outputs").get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradients of the data, of the last backward."""
        self._require("get_input_grads", "binded", "params_initialized", "inputs_need_grad")
        return self._group("get_input_grads").get_input_grads(merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arguments that are carried from batch to batch."""
        self._require("get_states", "binded", "params_initialized")
        return self._group("get_states").get_states(merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Sets the arguments that are carried from batch to batch: to `states` or to `value`."""
        self._require("set_states", "binded", "params_initialized")
        self._group("set_states").set_states(states, value)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric by the outputs of the last forward."""
        self._group("update_metric").update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Lets a monitor watch the executors."""
        self._group("install_monitor").install_monitor(mon)


def _resized_descs(descs: Sequence[DataDesc], shapes: Sequence[tuple[int, ...]]) -> list[DataDesc]:
    return [DataDesc(d.name, s, d.dtype, d.layout) for d, s in zip(descs, shapes, strict=False)]


def _names_of_indices(names: Sequence[str], devices: int, on_store: bool) -> dict[int, str]:
    """The parameter of each index that the optimizer counts by: one a parameter, or one a device as
    well.
    """
    if on_store:
        return dict(enumerate(names))
    return {i * devices + k: name for i, name in enumerate(names) for k in range(devices)}
