"""`PythonModule`: modules that are computed in Python, and have no parameters by default."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from .. import ndarray as nd
from ..initializer import Uniform
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from .base import BaseModule, as_descs

__all__ = ["PythonLossModule", "PythonModule"]


class PythonModule(BaseModule):
    """Base of modules written in Python; a subclass defines `forward`, `backward`, `get_outputs`,
    `get_input_grads` and `_compute_output_shapes`.

    Parameters
    ----------
    data_names, label_names, output_names : list of str
        Names of inputs and outputs.
    """

    def __init__(
        self,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        output_names: Sequence[str],
        logger: Any = logging,
    ) -> None:
        super().__init__(logger)
        self._data_names = list(data_names)
        self._label_names = list(label_names or [])
        self._output_names = list(output_names)
        self._data_shapes: list[DataDesc] = []
        self._label_shapes: list[DataDesc] = []
        self._output_shapes: list[tuple[str, tuple[int, ...]]] = []

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc]:
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._output_shapes

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Pairs (name, shape) of the outputs, from the bound shapes."""
        raise self._undefined("_compute_output_shapes")

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
        if grad_req != "write":
            raise ValueError(f"invalid grad_req {grad_req!r}: PythonModule supports only 'write'")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._data_shapes, self._label_shapes = as_descs(data_shapes), as_descs(label_shapes)
        if [d.name for d in self._data_shapes] != self._data_names:
            raise ValueError(f"data_shapes {self._data_shapes}, expected {self._data_names}")
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        return {}, {}

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008  (an initializer has no state)
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        self.params_initialized = True

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        self.optimizer_initialized = True

    def update(self) -> None:
        """Does nothing: there are no parameters."""

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        if self._label_shapes:
            eval_metric.update(labels, self.get_outputs())

    def install_monitor(self, mon: Any) -> None:
        """Does nothing: there is no executor to watch."""


class PythonLossModule(PythonModule):
    """A loss whose outputs are its data; its gradient is a function of scores and labels.

    Parameters
    ----------
    name : str
        The output is called `name` + "_output".
    grad_func : callable
        `grad_func(scores, labels)` returns the gradient of the scores, an NDArray or array.
    """

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] = ("softmax_label",),
        logger: Any = logging,
        grad_func: Callable[[NDArray, NDArray], Any] | None = None,
    ) -> None:
        super().__init__(data_names, label_names, [f"{name}_output"], logger)
        if len(self._data_names) != 1 or len(self._label_names) != 1:
            raise ValueError("PythonLossModule expects one data name and one label name")
        if grad_func is not None and not callable(grad_func):
            raise TypeError(f"grad_func is {grad_func!r}, expected a function")
        self._grad_func = grad_func
        self._scores: NDArray | None = None
        self._labels: NDArray | None = None
        self._scores_grad: NDArray | None = None

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(self._output_names[0], self._data_shapes[0].shape)]

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        self._scores = data_batch.data[0]
        if self.for_training if is_train is None else is_train:
            self._labels = data_batch.label[0] if data_batch.label else None

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        return [self._scores] if merge_multi_context else [[self._scores]]

    def backward(self, out_grads: Any = None) -> None:
        if out_grads is not None:
            raise ValueError("For a loss module, out_grads should be None")
        self._backward_impl()

    def _backward_impl(self) -> None:
        """Computes the gradient of the scores; a subclass may override it."""
        if self._grad_func is None:
            raise self._undefined("_backward_impl")
        if self._scores is None or self._labels is None:
            raise ValueError("PythonLossModule: call 'forward' with labels before 'backward'")
        grad = self._grad_func(self._scores, self._labels)
        self._scores_grad = grad if isinstance(grad, NDArray) else nd.array(grad)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        grad = self._scores_grad
        return [grad] if merge_multi_context else [[grad]]
