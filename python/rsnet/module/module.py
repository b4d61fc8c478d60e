"""`Module`: a symbol, its parameters and its optimizer, on one device or several."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from .. import context as ctx
from .. import initializer as init
from .._checkpoint import load_checkpoint, save_checkpoint
from .._warnings import warn
from ..base import MXNetError, listed, shown
from ..io import DataDesc
from ..kvstore.choice import choose_store
from ..ndarray import NDArray
from .arguments import (
    as_list,
    check_input_names,
    check_params,
    descs_of_batch,
    parse_descs,
    refuse_input_gradients,
)
from .base_module import BaseModule
from .executor_group import DataParallelExecutorGroup
from .group_module import GroupModule
from .interface import DEFAULT_INITIALIZER
from .parameters import Parameters
from .properties import within
from .updates import (
    GradientUpdate,
    checked_optimizer,
    names_of_indices,
    part_of_update,
)

__all__ = ["Module"]

_NAMES = "a list of names"


class Module(GroupModule):
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
        A name that is not an argument of the symbol.

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
        self._params = Parameters()
        super().__init__(logger=logger)
        devices = as_list(ctx.current_context() if context is None else context)
        self._context = [ctx.as_context(one, "context") for one in devices]
        self._work_load_list = list(work_load_list or [1] * len(self._context))
        if len(self._work_load_list) != len(self._context):
            raise ValueError(
                f"work_load_list has {len(self._work_load_list)} entries, "
                f"expected {len(self._context)}: one per context"
            )
        if not hasattr(symbol, "list_arguments"):
            raise TypeError(f"invalid symbol {shown(symbol)}: expected a Symbol")
        self._symbol = symbol
        self._data_names = listed(data_names or [], "data_names", _NAMES)
        self._label_names = listed(label_names or [], "label_names", _NAMES)
        self._state_names = listed(state_names or [], "state_names", _NAMES)
        self._fixed_param_names = listed(fixed_param_names or [], "fixed_param_names", _NAMES)
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
        self._grad_req: Any = None
        # Programs that bind modules themselves set these too.
        self._data_shapes: list[DataDesc] | None = None
        self._label_shapes: list[DataDesc] | None = None
        self._update: GradientUpdate | None = None
        self._preload_opt_states: str | None = None

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module with symbol and parameters of a checkpoint; the rest is as for `Module`."""
        symbol, args, auxs = load_checkpoint(prefix, epoch)
        mod = Module(symbol=symbol, **kwargs)
        mod._params.take(args, auxs)
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
        """Writes `prefix-symbol.json`, `prefix-0001.params` and, if so, `prefix-0001.states`."""
        save_checkpoint(prefix, epoch, self._symbol, *self.get_params(), remove_amp_cast)
        if save_optimizer_states:
            self.save_optimizer_states(f"{prefix}-{epoch:04d}.states")
            logging.info('Saved optimizer state to "%s-%04d.states"', prefix, epoch)

    # ---- what the module is --------------------------------------------------------------------

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names

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
        memory_limit: int | str | None = None,
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
        memory_limit : int or str, optional
            Most bytes of intermediate results on each device, see `Symbol.simple_bind`.

        Raises
        ------
        ValueError
            The shapes' names are not those of the module.
        """
        if self._stays_bound(force_rebind):
            return
        self._reset_bind()
        refuse_input_gradients(for_training, inputs_need_grad)
        data, labels = parse_descs(
            self._data_names, self._label_names, data_shapes, label_shapes,
            self._symbol.list_arguments(),
        )  # fmt: skip
        self._data_shapes, self._label_shapes = data, labels
        shared_group = None
        if shared_module is not None:
            if not (isinstance(shared_module, Module) and shared_module.binded):
                raise AssertionError(
                    f"bind: invalid shared_module {shown(shared_module)}: expected a bound Module"
                )
            shared_group = shared_module._exec_group
        self._exec_group = DataParallelExecutorGroup(
            self._symbol, self._context, self._work_load_list, data, labels, self._param_names,
            for_training, inputs_need_grad, shared_group, self.logger,
            self._fixed_param_names, grad_req, self._state_names, self._group2ctxs, memory_limit,
        )  # fmt: skip
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._grad_req = grad_req
        self.binded = True
        if shared_module is not None:
            self._params = shared_module._params
            if shared_module.optimizer_initialized:
                self.borrow_optimizer(shared_module)
        elif self.params_initialized:  # loaded before binding
            self._exec_group.set_params(self._params.arg, self._params.aux)
        else:
            self._params.allocate(self._param_names, self._aux_names, self._exec_group)

    def _reset_bind(self) -> None:
        if self.binded and self.params_initialized:
            self._sync_params_from_devices()
        self.binded = False
        self._exec_group = self._data_shapes = self._label_shapes = None

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Binds for other shapes, over the same parameters, gradients and memory."""
        group = self._group("reshape")
        data, labels = parse_descs(self._data_names, self._label_names, data_shapes, label_shapes)
        group.reshape(data, labels)
        self._data_shapes, self._label_shapes = data, labels

    # ---- parameters ----------------------------------------------------------------------------

    @property
    def params_initialized(self) -> bool:
        """Whether the parameters, which modules may share, have values."""
        return self._params.have_values

    @params_initialized.setter
    def params_initialized(self, value: bool) -> None:
        self._params.have_values = value

    # Programs that load or initialise modules themselves set these.
    _arg_params = within("_params", "arg")
    _aux_params = within("_params", "aux")
    _params_dirty = within("_params", "are_behind")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Parameters and auxiliary states as arrays on the CPU, the mean over devices."""
        self._require("get_params", "params_initialized")
        self._sync_params_from_devices()
        return self._params.arg, self._params.aux

    def _sync_params_from_devices(self) -> None:
        if self._params.are_behind:
            self._group("get_params").get_params(self._params.arg, self._params.aux)
            self._params.are_behind = False

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
        TypeError
            The initializer is none, or something else than arrays by name is given.
        ValueError
            A given array has another shape than its parameter.
        """
        if self.params_initialized and not force_init:
            warn("Parameters already initialized and force_init=False. init_params call ignored.")
            return
        group = self._group("init_params")
        if isinstance(initializer, str):
            initializer = init.create(initializer)
        if initializer is not None and not callable(initializer):
            kind = type(initializer).__name__
            raise TypeError(f"initializer is a {kind}, expected an Initializer, a name or None")
        check_params("arg_params", arg_params)
        check_params("aux_params", aux_params)
        attrs = self._symbol.attr_dict()
        self._params.fill(initializer, arg_params, aux_params, allow_missing, attrs)
        group.set_params(self._params.arg, self._params.aux, allow_extra=True)
        if self._update is not None:
            self._update.restart(group.param_arrays)

    def set_params(
        self,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Assigns parameters; with `allow_missing` those that are not given keep their values."""
        if not allow_missing:
            super().set_params(arg_params, aux_params, allow_missing, force_init, allow_extra)
            return
        if self.params_initialized and not force_init:
            warn("Parameters already initialized and force_init=False. set_params call ignored.")
            return
        group = self._group("set_params")
        group.set_params(arg_params or {}, aux_params or {}, allow_extra=allow_extra)
        self._params.have_values = self._params.are_behind = True
        if self._update is not None:
            self._update.restart(group.param_arrays)

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
        if self._keeps_optimizer(force_init):
            return
        group = self._group("init_optimizer")
        self._sync_params_from_devices()
        store, update_on_kvstore = choose_store(kvstore, len(self._context), self._params.arg)
        names = names_of_indices(self._param_names, len(self._context), update_on_kvstore)
        optimizer = checked_optimizer(
            optimizer, optimizer_params, self.symbol, names, group.batch_size
        )
        if store is not None and self._compression_params:
            store.set_gradient_compression(self._compression_params)
        self._update = GradientUpdate(optimizer, store, update_on_kvstore, self._param_names, names)
        self._update.start(group.param_arrays, group.grad_arrays, self._params.arg)
        self.optimizer_initialized = True
        if self._preload_opt_states is not None:
            self.load_optimizer_states(self._preload_opt_states)
            self._preload_opt_states = None

    def borrow_optimizer(self, shared_module: BaseModule) -> None:
        """Uses the optimizer of another module, and its states."""
        assert isinstance(shared_module, Module)
        shared_module._require("borrow_optimizer", "optimizer_initialized")
        self._update = shared_module._update
        self.optimizer_initialized = True

    # What `init_optimizer` of MXNet sets, and so does that of programs.
    _optimizer = part_of_update("optimizer")
    _kvstore = part_of_update("store")
    _update_on_kvstore = part_of_update("on_store")
    _updater = part_of_update("updater")

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
        if not isinstance(data_batch, (list, tuple)):
            descs = descs_of_batch(data_batch, group.data_shapes, group.label_shapes)
            if descs is not None:
                self._follow(descs[0], descs[1], group.data_shapes)
        group.forward(data_batch, is_train)

    def _follow(self, data: Any, labels: Any, bound: Sequence[DataDesc]) -> None:
        """Binds for the shapes of a batch."""
        try:
            self.reshape(data, labels)
        except MXNetError as error:
            given, before = ({d.name: tuple(d.shape) for d in ds} for ds in (data, bound))
            raise type(error)(
                f"invalid shapes {given} of the batch's data: expected {before}, for which the "
                f"module was bound; it cannot be bound for others ({error})"
            ) from error

    def update(self) -> None:
        """Updates the parameters by the gradients of the last backward."""
        self._require("update", "binded", "params_initialized", "optimizer_initialized")
        group = self._group("update")
        assert self._update is not None
        self._params.are_behind = True
        self._update(group.param_arrays, group.grad_arrays)
