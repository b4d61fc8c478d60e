"""`SequentialModule`: modules in a chain, each fed with the outputs of the one before."""

from __future__ import annotations

import copy
import logging
from typing import Any

from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from .arguments import refuse_input_gradients
from .base_module import BaseModule
from .interface import DEFAULT_INITIALIZER
from .properties import delegated

__all__ = ["SequentialModule"]


class SequentialModule(BaseModule):
    """A chain of modules: outputs become the data of the next, its data gradients the head
    gradients.

    Examples
    --------
    >>> import rsnet as mx
    >>> first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    >>> last = mx.sym.FullyConnected(mx.sym.Variable("hidden"), num_hidden=2, name="fc2")
    >>> mod = mx.mod.SequentialModule()
    >>> mod = mod.add(mx.mod.Module(first, label_names=None))
    >>> last = mx.mod.Module(mx.sym.SoftmaxOutput(last, name="softmax"), data_names=["hidden"])
    >>> mod = mod.add(last, take_labels=True, auto_wiring=True)
    >>> mod.bind([("data", (4, 3))], [("softmax_label", (4,))])
    >>> mod.output_shapes
    [('softmax_output', (4, 2))]
    """

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging) -> None:
        super().__init__(logger=logger)
        self._modules: list[BaseModule] = []
        self._metas: list[dict[str, Any]] = []
        self._label_shapes: list[DataDesc] | None = None

    def add(self, module: BaseModule, **kwargs: Any) -> SequentialModule:
        """Appends a module.

        Parameters
        ----------
        module : BaseModule
        take_labels : bool
            Does it take the labels of the batch?
        auto_wiring : bool
            Whether the outputs of the module before it are assigned to its data by position,
            regardless of names.

        Returns
        -------
        SequentialModule
            Itself, so that calls can be chained.

        Raises
        ------
        ValueError
            Another keyword.
        """
        allowed = (self.META_TAKE_LABELS, self.META_AUTO_WIRING)
        for key in kwargs:
            if key not in allowed:
                raise ValueError(f"invalid keyword '{key}': expected one of {allowed}")
        self._modules.append(module)
        self._metas.append(kwargs)
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    def _ends(self, what: str) -> tuple[BaseModule, BaseModule]:
        if not self._modules:
            raise AssertionError(f"SequentialModule.{what}: there is no module yet, call add first")
        return self._modules[0], self._modules[-1]

    def _bound_first(self, what: str) -> BaseModule:
        self._require(what, "binded")
        return self._ends(what)[0]

    def _bound_last(self, what: str) -> BaseModule:
        self._require(what, "binded")
        return self._ends(what)[1]

    @property
    def data_names(self) -> list[str]:
        """Names of the data of the first module."""
        return self._modules[0].data_names if self._modules else []

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs of the last module."""
        return self._modules[-1].output_names if self._modules else []

    data_shapes = delegated("data_shapes", _bound_first, "Descriptions of the first module's data.")
    output_shapes = delegated(
        "output_shapes", _bound_last, "Names and shapes of the last module's outputs."
    )

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        """Descriptions of the labels; None if no module takes them."""
        self._require("label_shapes", "binded")
        return self._label_shapes

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Parameters and auxiliary states of all modules."""
        self._require("get_params", "binded", "params_initialized")
        arg_params: dict[str, NDArray] = {}
        aux_params: dict[str, NDArray] = {}
        for module in self._modules:
            arg, aux = module.get_params()
            arg_params.update(arg)
            aux_params.update(aux)
        return arg_params, aux_params

    def init_params(
        self,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Gives the parameters of all modules their first values.

        Raises
        ------
        AssertionError
            Two modules have a parameter of the same name.
        """
        if self.params_initialized and not force_init:
            return
        self._require("init_params", "binded")
        for module in self._modules:
            module.init_params(
                initializer=initializer, arg_params=arg_params, aux_params=aux_params,
                allow_missing=allow_missing, force_init=force_init, allow_extra=True,
            )  # fmt: skip
        self._check_names()
        self.params_initialized = True

    def _check_names(self) -> None:
        owner: dict[str, int] = {}
        for i, module in enumerate(self._modules):
            for name in (*module.get_params()[0], *module.get_params()[1]):
                if name in owner:
                    raise AssertionError(
                        f'Duplicated parameter names: name "{name}" in layer {i} '
                        f"({type(module).__name__}) is already used in layer {owner[name]}: "
                        "expected symbols whose parameters have different names"
                    )
                owner[name] = i

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
        """Binds the modules one after the other, each to the outputs of the one before."""
        if self._stays_bound(force_rebind):
            return
        refuse_input_gradients(for_training, inputs_need_grad)
        if shared_module is not None:
            raise AssertionError("SequentialModule.bind: invalid shared_module: expected None")
        self._ends("bind")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        shapes = data_shapes
        takes_labels = False
        for i, (module, meta) in enumerate(zip(self._modules, self._metas, strict=True)):
            takes = bool(meta.get(self.META_TAKE_LABELS))
            takes_labels |= takes
            if meta.get(self.META_AUTO_WIRING):
                names = module.data_names
                if len(names) != len(shapes):
                    raise AssertionError(
                        f"layer {i}: invalid number of data arrays {len(shapes)} of the layer "
                        f"before: expected {len(names)}"
                    )
                shapes = [(name, tuple(desc[1])) for name, desc in zip(names, shapes, strict=True)]
            module.bind(
                data_shapes=shapes, label_shapes=label_shapes if takes else None,
                for_training=for_training, grad_req=grad_req, force_rebind=force_rebind,
                inputs_need_grad=for_training and (inputs_need_grad or i > 0),
            )  # fmt: skip
            shapes = module.output_shapes
        self._label_shapes = label_shapes if takes_labels else None
        self.binded = True

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Chooses how the parameters of all modules are updated."""
        if self._keeps_optimizer(force_init):
            return
        for module in self._modules:
            module.init_optimizer(kvstore, optimizer, optimizer_params, force_init=force_init)
        self.optimizer_initialized = True

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Runs the modules one after the other."""
        self._require("forward", "binded", "params_initialized")
        batch = copy.copy(data_batch)
        for i, module in enumerate(self._modules):
            module.forward(batch, is_train=is_train)
            if i + 1 < len(self._modules):
                outputs = module.get_outputs()
                names = self._modules[i + 1].data_names
                shapes = [DataDesc(n, o.shape) for n, o in zip(names, outputs, strict=False)]
                batch.data, batch.provide_data = outputs, shapes

    def backward(self, out_grads: Any = None) -> None:
        """Runs the backward passes from the last module to the first."""
        self._require("backward", "binded", "params_initialized")
        for i, module in reversed(list(enumerate(self._modules))):
            module.backward(out_grads=out_grads)
            if i > 0:
                out_grads = module.get_input_grads()

    def update(self) -> None:
        """Updates the parameters of all modules."""
        self._require("update", "binded", "params_initialized", "optimizer_initialized")
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The outputs of the last module."""
        self._require("get_outputs", "binded", "params_initialized")
        return self._ends("get_outputs")[1].get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradients of the data of the first module."""
        self._require("get_input_grads", "binded", "params_initialized", "inputs_need_grad")
        return self._ends("get_input_grads")[0].get_input_grads(merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric by the outputs of the modules that take labels."""
        self._require("update_metric", "binded", "params_initialized")
        for module, meta in zip(self._modules, self._metas, strict=True):
            if meta.get(self.META_TAKE_LABELS):
                module.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Lets a monitor watch all modules."""
        self._require("install_monitor", "binded")
        for module in self._modules:
            module.install_monitor(mon)
