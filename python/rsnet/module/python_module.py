"""Modules written in Python: no symbol, usually no parameters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from .. import ndarray as nd
from ..io import DataDesc
from ..ndarray import NDArray
from .arguments import parse_descs
from .base_module import BaseModule
from .interface import DEFAULT_INITIALIZER

__all__ = ["PythonLossModule", "PythonModule"]


class PythonModule(BaseModule):
    """Base of modules without parameters; a subclass defines `forward`, `backward` and the shapes
    of its outputs.

    Parameters
    ----------
    data_names : list of str
    label_names : list of str or None
    output_names : list of str
    """

    def __init__(
        self,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        output_names: Sequence[str],
        logger: Any = logging,
    ) -> None:
        super().__init__(logger=logger)
        self._data_names = list(data_names)
        self._label_names = list(label_names or [])
        self._output_names = list(output_names)
        self._data_shapes: list[DataDesc] = []
        self._label_shapes: list[DataDesc] | None = None
        self._output_shapes: list[tuple[str, tuple[int, ...]]] = []

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Two empty dicts: the module has no parameters."""
        return {}, {}

    def init_params(
        self,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Marks the module as initialised: it has no parameters."""
        self.params_initialized = True

    def update(self) -> None:
        """Does nothing: the module has no parameters."""

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric by the outputs, if the module takes labels."""
        if self._label_shapes is None:
            return
        if pre_sliced:
            raise RuntimeError(
                "PythonModule.update_metric: invalid pre_sliced True: expected False"
            )
        eval_metric.update_dict(
            dict(zip([d[0] for d in self._label_shapes], labels, strict=False)),
            dict(zip(self._output_names, self.get_outputs(), strict=True)),
        )

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
        """Takes over the shapes, and asks the subclass for those of its outputs."""
        if self._stays_bound(force_rebind):
            return
        if grad_req != "write":
            raise AssertionError(
                f"PythonModule.bind: invalid grad_req {grad_req!r}: expected 'write'"
            )
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._data_shapes, self._label_shapes = parse_descs(
            self._data_names, self._label_names, data_shapes, label_shapes
        )
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the outputs, given the shapes of data and labels."""
        raise NotImplementedError

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Marks the optimizer as initialised: there is nothing to optimise."""
        self.optimizer_initialized = True

    def install_monitor(self, mon: Any) -> None:
        """Does nothing: the module has no executor."""


class PythonLossModule(PythonModule):
    """A loss in Python: forward passes its data on, backward calls `grad_func(scores, labels)`.

    Parameters
    ----------
    name : str
        Prefix of the output's name.
    data_names, label_names : list of one str
    grad_func : callable, optional
        Returns the gradient of the scores; a subclass may define `_backward_impl` instead.
    """

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] = ("softmax_label",),
        logger: Any = logging,
        grad_func: Callable[[NDArray, NDArray], Any] | None = None,
    ) -> None:
        super().__init__(data_names, label_names, [f"{name}_output"], logger=logger)
        if len(self._data_names) != 1 or len(self._label_names) != 1:
            raise AssertionError(
                f"PythonLossModule: invalid names {self._data_names}, {self._label_names}: "
                "expected those of one data array and one label array"
            )
        if grad_func is not None and not callable(grad_func):
            raise AssertionError(
                f"invalid grad_func {grad_func!r}: expected a function of scores and labels"
            )
        self._name = name
        self._grad_func = grad_func
        self._scores: NDArray | None = None
        self._labels: NDArray | None = None
        self._scores_grad: NDArray | None = None

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(f"{self._name}_output", tuple(self._data_shapes[0].shape))]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Keeps the scores, and for training the labels."""
        self._scores = data_batch.data[0]
        if is_train if is_train is not None else self.for_training:
            self._labels = data_batch.label[0]

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The scores."""
        return [self._scores]

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradient of the scores."""
        if out_grads is not None:
            raise AssertionError(
                "PythonLossModule.backward: invalid out_grads: expected None, as it is a loss"
            )
        if not self.for_training:
            raise AssertionError("backward: expected a module bound with for_training=True")
        self._backward_impl()

    def _backward_impl(self) -> None:
        if self._grad_func is None or self._scores is None or self._labels is None:
            raise NotImplementedError(
                f"{type(self).__name__}.backward: expected grad_func, or a method _backward_impl"
            )
        grad = self._grad_func(self._scores, self._labels)
        self._scores_grad = grad if isinstance(grad, NDArray) else nd.array(grad)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradient of the scores."""
        return [self._scores_grad]
