"""`SequentialModule`: modules in a row, each fed by the outputs of the one before."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from ..initializer import Uniform
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from .base import BaseModule

__all__ = ["SequentialModule"]


class SequentialModule(BaseModule):
    """Modules in a row.

    Examples
    --------
    >>> import rsnet as mx
    >>> x = mx.sym.Variable("data")
    >>> first = mx.mod.Module(mx.sym.FullyConnected(x, num_hidden=3, name="fc"), label_names=None)
    >>> second = mx.mod.Module(mx.sym.SoftmaxOutput(x, name="softmax"))
    >>> both = mx.mod.SequentialModule().add(first).add(second, take_labels=True, auto_wiring=True)
    >>> both.bind([("data", (4, 2))], [("softmax_label", (4,))])
    >>> both.output_shapes
    [('softmax_output', (4, 3))]
    """

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging) -> None:
        super().__init__(logger)
        self._modules: list[BaseModule] = []
        self._metas: list[dict[str, Any]] = []
        self._label_shapes: list[DataDesc] = []

    def add(self, module: BaseModule, **kwargs: Any) -> SequentialModule:
        """Appends a module; returns the sequence.

        Parameters
        ----------
        take_labels : bool
            Whether the module gets the labels of a batch.
        auto_wiring : bool
            Whether the outputs of the module before are renamed to the data names of this one.
        """
        known = (self.META_TAKE_LABELS, self.META_AUTO_WIRING)
        for key in kwargs:
            if key not in known:
                raise ValueError(f"Unknown meta '{key}', a typo? Expected one of {known}")
        self._modules.append(module)
        self._metas.append(kwargs)
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    @property
    def data_names(self) -> list[str]:
        return self._modules[0].data_names if self._modules else []

    @property
    def output_names(self) -> list[str]:
        return self._modules[-1].output_names if self._modules else []

    @property
    def data_shapes(self) -> list[DataDesc]:
        self._expect("binded")
        return self._modules[0].data_shapes

    @property
    def label_shapes(self) -> list[DataDesc]:
        self._expect("binded")
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        self._expect("binded")
        return self._modules[-1].output_shapes

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
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if shared_module is not None:
            raise ValueError("SequentialModule does not take a shared_module")
        if not self._modules:
            raise ValueError("a SequentialModule without modules cannot be bound")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        shapes, taken = data_shapes, False
        for i, (module, meta) in enumerate(zip(self._modules, self._metas, strict=True)):
            labels = label_shapes if meta.get(self.META_TAKE_LABELS) else None
            taken = taken or labels is not None
            if meta.get(self.META_AUTO_WIRING):
                names = module.data_names
                if len(names) != len(shapes):
                    raise ValueError(f"module {i} has data {names}, but is given {len(shapes)}")
                shapes = [(name, tuple(d[1])) for name, d in zip(names, shapes, strict=True)]
            module.bind(
                shapes,
                labels,
                for_training,
                for_training and (inputs_need_grad or i > 0),
                force_rebind,
                grad_req=grad_req,
            )
            shapes = module.output_shapes
        self._label_shapes = list(label_shapes or []) if taken else []
        self.binded = True

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        self._expect("binded", "params_initialized")
        args: dict[str, NDArray] = {}
        aux: dict[str, NDArray] = {}
        for module in self._modules:
            own_args, own_aux = module.get_params()
            args |= own_args
            aux |= own_aux
        return args, aux

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
        owners: dict[str, int] = {}
        for i, module in enumerate(self._modules):
            # A module is given the values of all, of which it takes its own.
            module.init_params(initializer, arg_params, aux_params, allow_missing, force_init, True)
            for name in (n for part in module.get_params() for n in part):
                if name in owners:
                    raise ValueError(
                        f"Duplicated parameter names: '{name}' in modules {owners[name]} and {i}"
                    )
                owners[name] = i
        extra = sorted({*(arg_params or {}), *(aux_params or {})} - set(owners))
        if extra and not allow_extra:
            raise ValueError(f"{extra} are not parameters; expected some of {sorted(owners)}")
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
        for module in self._modules:
            module.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        self.optimizer_initialized = True

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        self._expect("binded", "params_initialized")
        batch = data_batch
        for module in self._modules:
            module.forward(batch, is_train)
            if module is self._modules[-1]:
                break
            outputs = module.get_outputs()
            batch = DataBatch(outputs, data_batch.label, data_batch.pad, data_batch.index)

    def backward(self, out_grads: Any = None) -> None:
        self._expect("binded", "params_initialized")
        for module in reversed(self._modules):
            module.backward(out_grads)
            if module is not self._modules[0]:
                out_grads = module.get_input_grads()

    def update(self) -> None:
        self._expect("binded", "params_initialized", "optimizer_initialized")
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        self._expect("binded", "params_initialized")
        return self._modules[-1].get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        self._expect("binded", "params_initialized")
        return self._modules[0].get_input_grads(merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._expect("binded", "params_initialized")
        for module, meta in zip(self._modules, self._metas, strict=True):
            if meta.get(self.META_TAKE_LABELS):
                module.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        self._expect("binded")
        for module in self._modules:
            module.install_monitor(mon)
