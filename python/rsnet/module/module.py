"""`Module`: a symbol, its executor and its optimizer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import optimizer as optimizer_module
from ..base import MXNetError
from ..context import Context, cpu
from ..initializer import InitDesc, Uniform
from ..io import DataBatch, DataDesc
from ..model import load_checkpoint, save_checkpoint
from ..ndarray import NDArray
from .base import BaseModule, as_descs, as_list, check_names

__all__ = ["Module"]


class Module(BaseModule):
    """A symbol with parameters that are trained.

    Parameters
    ----------
    symbol : Symbol
        The computation.
    data_names, label_names : list of str
        Arguments that are filled from batches.
    logger : Logger
        Target of the lines that `fit` writes.
    context : Context or list of one Context
        The device. Several devices are refused.
    fixed_param_names : list of str, optional
        Parameters that are not trained.
    state_names : list of str, optional
        Arguments that are kept between batches, see `set_states`.
    group2ctxs : dict of str to Context, optional
        Devices of context groups.

    Raises
    ------
    ValueError
        A data, state or fixed name is not an argument of the symbol.
    MXNetError
        There are several contexts, or gradient compression is asked for.
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
        compression_params: Any = None,
    ) -> None:
        super().__init__(logger)
        contexts: list[Context] = as_list(context) or [cpu()]
        if len(contexts) > 1:
            raise MXNetError(f"Module with {len(contexts)} contexts is not in rsnet yet")
        if compression_params:
            raise MXNetError("gradient compression is not in rsnet yet")
        self._context = contexts[0]
        self._group2ctx = as_list(group2ctxs)[0] if group2ctxs else None
        self._symbol = symbol
        self._data_names = list(data_names or [])
        self._label_names = list(label_names or [])
        self._state_names = list(state_names or [])
        self._fixed_param_names = list(fixed_param_names or [])
        arguments = symbol.list_arguments()
        check_names(self._data_names, arguments, "data", True)
        check_names(self._label_names, arguments, "label", False)
        check_names(self._state_names, arguments, "state", True)
        check_names(self._fixed_param_names, arguments, "fixed_param", True)
        inputs = {*self._data_names, *self._label_names, *self._state_names}
        self._param_names = [a for a in arguments if a not in inputs]
        self._aux_names = symbol.list_auxiliary_states()
        self._exec: Any = None
        self._data_shapes: list[DataDesc] = []
        self._label_shapes: list[DataDesc] = []
        self._optimizer: Any = None
        self._updater: Any = None
        self._loaded: tuple[dict[str, NDArray], dict[str, NDArray]] | None = None
        self._loaded_states: str | None = None

    # ---- checkpoints ---------------------------------------------------------------------------

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module from the files that `save_checkpoint` wrote; `kwargs` are those of `Module`."""
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        module = Module(symbol, **kwargs)
        module._loaded = (arg_params, aux_params)
        module.params_initialized = True
        if load_optimizer_states:
            module._loaded_states = f"{prefix}-{epoch:04d}.states"
        return module

    def save_checkpoint(
        self,
        prefix: str,
        epoch: int,
        save_optimizer_states: bool = False,
        remove_amp_cast: bool = True,
    ) -> None:
        """Writes the symbol, the parameters and, where asked for, the optimizer's states."""
        save_checkpoint(prefix, epoch, self._symbol, *self.get_params(), remove_amp_cast)
        if save_optimizer_states:
            name = f"{prefix}-{epoch:04d}.states"
            self.save_optimizer_states(name)
            self.logger.info('Saved optimizer state to "%s"', name)

    def save_optimizer_states(self, fname: str) -> None:
        """Writes the states of the optimizer to a file."""
        self._expect("optimizer_initialized")
        Path(fname).write_bytes(self._updater.get_states())

    def load_optimizer_states(self, fname: str) -> None:
        """Reads the states of the optimizer from a file of `save_optimizer_states`."""
        self._expect("optimizer_initialized")
        self._updater.set_states(Path(fname).read_bytes())

    # ---- shapes --------------------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the label inputs."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        return self._symbol.list_outputs()

    @property
    def data_shapes(self) -> list[DataDesc]:
        self._expect("binded")
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc]:
        self._expect("binded")
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        self._expect("binded")
        shapes = {d.name: d.shape for d in self._data_shapes + self._label_shapes}
        _, outputs, _ = self._symbol.infer_shape(**shapes)
        return list(zip(self.output_names, outputs, strict=True))

    # ---- binding -------------------------------------------------------------------------------

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
        """Allocates memory for inputs of the given shapes.

        Parameters
        ----------
        data_shapes, label_shapes : list of DataDesc or of tuple (name, shape)
            Inputs of a batch.
        for_training : bool
            Whether gradients are computed.
        inputs_need_grad : bool
            Whether the data inputs get gradients, see `get_input_grads`.
        force_rebind : bool
            Bind again where the module is bound; parameters keep their values.
        shared_module : Module, optional
            A bound module whose parameters and memory this one uses.
        grad_req : str, list or dict
            Request for the parameters' gradients, or one per argument.
        """
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise ValueError("invalid inputs_need_grad True: expected for_training=True with it")
        if shared_module is not None and not isinstance(shared_module, Module):
            raise TypeError(f"shared_module is a {type(shared_module).__name__}, expected a Module")
        values = self.get_params() if self.binded and self.params_initialized else self._loaded
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._data_shapes, self._label_shapes = self._checked(data_shapes, label_shapes)
        shared = None
        if shared_module is not None:
            shared_module._expect("binded")
            shared = shared_module._exec
        inputs = self._data_shapes + self._label_shapes
        self._exec = self._symbol.simple_bind(
            self._context,
            grad_req=self._requests(grad_req),
            type_dict={d.name: d.dtype for d in inputs},
            group2ctx=self._group2ctx,
            shared_arg_names=None if shared is None else self._param_names,
            shared_exec=shared,
            **{d.name: d.shape for d in inputs},
        )
        self.binded = True
        if shared_module is not None and shared_module.params_initialized:
            self.params_initialized = True
        elif values is not None:
            self._exec.copy_params_from(*values)
            self._loaded = None
        if shared_module is not None and shared_module.optimizer_initialized:
            self.borrow_optimizer(shared_module)

    def _checked(self, data_shapes: Any, label_shapes: Any) -> tuple[list[Any], list[Any]]:
        """Both lists as descriptions; labels that the symbol does not use are left out."""
        data, labels = as_descs(data_shapes), as_descs(label_shapes)
        if sorted(d.name for d in data) != sorted(self._data_names):
            raise ValueError(
                f"Data provided by data_shapes don't match names specified by data_names "
                f"({data} vs. {self._data_names})"
            )
        arguments = self._symbol.list_arguments()
        if labels and sorted(d.name for d in labels) != sorted(self._label_names):
            warnings.warn(
                f"Data provided by label_shapes don't match names specified by label_names "
                f"({labels} vs. {self._label_names})",
                stacklevel=4,
            )
        return data, [d for d in labels if d.name in arguments]

    def _requests(self, grad_req: Any) -> dict[str, str]:
        """The gradient request of every argument."""
        names = self._symbol.list_arguments()
        trained = set(self._param_names) - set(self._fixed_param_names)
        if isinstance(grad_req, (list, tuple)):
            if len(grad_req) != len(names):
                raise ValueError(f"grad_req has {len(grad_req)} values for {len(names)} arguments")
            given = dict(zip(names, grad_req, strict=True))
        elif isinstance(grad_req, dict):
            given = grad_req
        else:
            given = dict.fromkeys(trained, grad_req)
            if self.inputs_need_grad:
                given |= dict.fromkeys(self._data_names, grad_req)
        default = dict.fromkeys(names, "null")
        if isinstance(grad_req, dict):
            default |= dict.fromkeys(trained, "write")
            if self.inputs_need_grad:
                default |= dict.fromkeys(self._data_names, "write")
        if not self.for_training:
            return dict.fromkeys(names, "null")
        return default | {name: given[name] for name in names if name in given}

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Binds the module for inputs of other shapes; it shares memory where it can."""
        self._expect("binded")
        data, labels = self._checked(data_shapes, label_shapes)
        if (data, labels) == (self._data_shapes, self._label_shapes):
            return
        self._data_shapes, self._label_shapes = data, labels
        shapes = {d.name: d.shape for d in data + labels}
        self._exec = self._exec.reshape(partial_shaping=True, allow_up_sizing=True, **shapes)

    # ---- parameters ----------------------------------------------------------------------------

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        self._expect("params_initialized")
        if not self.binded:
            return self._loaded or ({}, {})
        args, aux = self._exec.arg_dict, self._exec.aux_dict
        return (
            {name: args[name].copyto(cpu()) for name in self._param_names},
            {name: aux[name].copyto(cpu()) for name in self._aux_names},
        )

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008  (an initializer has no state)
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Fills parameters and auxiliary states.

        Parameters
        ----------
        initializer : Initializer or None
            Fills what `arg_params` and `aux_params` do not have.
        arg_params, aux_params : dict of str to NDArray, optional
            Values by name.
        allow_missing : bool
            Whether names may be missing in the given values.
        force_init : bool
            Fill parameters that are initialized, too.
        allow_extra : bool
            Whether the given values may have other names.

        Raises
        ------
        RuntimeError
            A name is missing.
        ValueError
            A name is unknown, or a value has another shape.
        """
        if self.params_initialized and not force_init:
            warnings.warn(
                "Parameters already initialized and force_init=False. init_params call ignored.",
                stacklevel=2,
            )
            return
        self._expect("binded")
        attributes = self._symbol.attr_dict()
        for own, given in (
            ({n: self._exec.arg_dict[n] for n in self._param_names}, arg_params),
            (self._exec.aux_dict, aux_params),
        ):
            extra = sorted(set(given or {}) - set(own))
            if extra and not allow_extra:
                raise ValueError(f"{extra} are not parameters; expected some of {sorted(own)}")
            for name in sorted(own):
                self._fill(name, own[name], given, initializer, allow_missing, attributes)
        self.params_initialized = True

    def _fill(
        self,
        name: str,
        arr: NDArray,
        given: dict[str, NDArray] | None,
        initializer: Any,
        allow_missing: bool,
        attributes: dict[str, dict[str, str]],
    ) -> None:
        """Fills one parameter from the given values or by the initializer."""
        if given is not None and name in given:
            if given[name].shape != arr.shape:
                raise ValueError(
                    f"parameter '{name}' has shape {given[name].shape}, expected {arr.shape}"
                )
            if given[name] is not arr:
                given[name].copyto(arr)
        elif given is not None and not allow_missing:
            raise RuntimeError(f"{name} is not presented")
        elif initializer is not None:
            initializer(InitDesc(name, attributes.get(name)), arr)

    # ---- optimizer -----------------------------------------------------------------------------

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Creates the optimizer.

        Parameters
        ----------
        kvstore : str or None
            'local', 'device' or `None`, which mean the same on one device.
        optimizer : str or Optimizer
            The rule. One that is made from a name divides gradients by the size of a batch.
        optimizer_params : dict or list of pairs
            Parameters of a rule that is made from a name.
        force_init : bool
            Replace the optimizer that there is.
        """
        self._expect("binded", "params_initialized")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        if kvstore not in (None, "local", "device"):
            raise MXNetError(
                f"kvstore {kvstore!r} is not in rsnet yet: expected 'local', 'device' or None"
            )
        first = self._data_shapes[0]
        scale = 1.0 / first.shape[max(DataDesc.get_batch_axis(first.layout), 0)]
        names = dict(enumerate(self._param_names))
        if isinstance(optimizer, str):
            params = {"rescale_grad": scale} | dict(optimizer_params)
            optimizer = optimizer_module.create(
                optimizer, sym=self._symbol, param_idx2name=names, **params
            )
        else:
            if optimizer.rescale_grad != scale:
                warnings.warn(
                    f"Optimizer created manually outside Module but rescale_grad is not "
                    f"normalized to 1.0/batch_size ({optimizer.rescale_grad} vs. {scale}). Is this "
                    "intended?",
                    stacklevel=2,
                )
            if not optimizer.idx2name:
                optimizer.idx2name = names
        self._optimizer = optimizer
        self._updater = optimizer_module.get_updater(optimizer)
        self.optimizer_initialized = True
        if self._loaded_states is not None:
            self.load_optimizer_states(self._loaded_states)
            self._loaded_states = None

    def borrow_optimizer(self, shared_module: BaseModule) -> None:
        """Uses the optimizer of another module, with its states."""
        shared_module._expect("optimizer_initialized")
        if not isinstance(shared_module, Module):
            raise TypeError(f"shared_module is a {type(shared_module).__name__}, expected a Module")
        self._optimizer, self._updater = shared_module._optimizer, shared_module._updater
        self.optimizer_initialized = True

    def update(self) -> None:
        self._expect("binded", "params_initialized", "optimizer_initialized")
        args, grads = self._exec.arg_dict, self._exec.grad_dict
        for index, name in enumerate(self._param_names):
            if grads[name] is not None:
                self._updater(index, grads[name], args[name])

    # ---- running -------------------------------------------------------------------------------

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Computes the outputs of a batch; a batch of other shapes reshapes the module."""
        self._expect("binded", "params_initialized")
        self._follow(data_batch)
        values = dict(zip((d.name for d in self._data_shapes), data_batch.data, strict=True))
        if data_batch.label:
            labels = dict(zip(self._given_labels(data_batch), data_batch.label, strict=False))
            bound = {d.name for d in self._label_shapes}
            values |= {name: value for name, value in labels.items() if name in bound}
        self._exec.forward(self.for_training if is_train is None else is_train, **values)

    def _given_labels(self, batch: DataBatch) -> list[str]:
        """Names of a batch's labels."""
        if batch.provide_label:
            return [d[0] for d in batch.provide_label]
        return [d.name for d in self._label_shapes] or self._label_names

    def _follow(self, batch: DataBatch) -> None:
        """Reshapes the module where a batch has other shapes than the bound inputs."""
        shapes = [x.shape for x in batch.data]
        if shapes == [d.shape for d in self._data_shapes]:
            return
        if len(shapes) != len(self._data_shapes):
            raise ValueError(f"a batch has {len(shapes)} data arrays, expected {self._data_names}")
        data = batch.provide_data or _with_shapes(self._data_shapes, shapes)
        labels = batch.provide_label
        if not labels:
            given = [x.shape for x in batch.label or []]
            if self._label_shapes and not given:  # prediction without labels
                rows = shapes[0][0]
                given = [(rows, *d.shape[1:]) for d in self._label_shapes]
            labels = _with_shapes(self._label_shapes, given)
        self.reshape(data, labels)

    def backward(self, out_grads: Any = None) -> None:
        self._expect("binded", "params_initialized")
        if not self.for_training:
            raise MXNetError("Module: backward needs bind(for_training=True)")
        self._exec.backward(out_grads)

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        self._expect("binded", "params_initialized")
        outputs = self._exec.outputs
        return outputs if merge_multi_context else [[out] for out in outputs]

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        self._expect("binded", "params_initialized")
        if not self.inputs_need_grad:
            raise MXNetError("Module: get_input_grads needs bind(inputs_need_grad=True)")
        grads = self._exec.grad_dict
        found = [grads[d.name] for d in self._data_shapes]
        return found if merge_multi_context else [[grad] for grad in found]

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        self._expect("binded", "params_initialized")
        states = [self._exec.arg_dict[name] for name in self._state_names]
        return states if merge_multi_context else [[state] for state in states]

    def set_states(self, states: Any = None, value: float | None = None) -> None:
        self._expect("binded", "params_initialized")
        if (states is None) == (value is None):
            raise ValueError("expected one of states and value")
        for i, name in enumerate(self._state_names):
            target = self._exec.arg_dict[name]
            if value is not None:
                target[:] = value
            else:
                given = states[i]
                (given[0] if isinstance(given, (list, tuple)) else given).copyto(target)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        names = [d.name for d in self._label_shapes] or self._label_names
        outputs = dict(zip(self.output_names, self._exec.outputs, strict=True))
        eval_metric.update_dict(dict(zip(names, labels or [], strict=False)), outputs)

    def install_monitor(self, mon: Any) -> None:
        self._expect("binded")
        mon.install(self._exec)


def _with_shapes(descs: list[DataDesc], shapes: Sequence[tuple[int, ...]]) -> list[DataDesc]:
    """The descriptions with other shapes."""
    return [
        DataDesc(d.name, shape, d.dtype, d.layout) for d, shape in zip(descs, shapes, strict=False)
    ]
