"""A module whose executors are a group: what it shows of the group and has the group do."""

from __future__ import annotations

import logging
from typing import Any

from .base_module import BaseModule
from .executor_group import DataParallelExecutorGroup
from .properties import delegated

__all__ = ["GroupModule"]


class GroupModule(BaseModule):
    """Base of modules over a `DataParallelExecutorGroup`, which `bind` of a subclass makes."""

    def __init__(self, logger: Any = logging) -> None:
        super().__init__(logger=logger)
        self._exec_group: DataParallelExecutorGroup | None = None

    def _group(self, what: str) -> DataParallelExecutorGroup:
        self._require(what, "binded")
        assert self._exec_group is not None
        return self._exec_group

    @property
    def executors(self) -> DataParallelExecutorGroup:
        """The executors of all devices."""
        return self._group("executors")

    data_shapes = delegated("data_shapes", _group, "Descriptions of the data.")
    label_shapes = delegated(
        "label_shapes", _group, "Descriptions of the labels; None if the module was bound without."
    )

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the outputs."""
        return self._group("output_shapes").get_output_shapes()

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradients; `out_grads` are required where the outputs are not losses."""
        self._require("backward", "binded", "params_initialized")
        self._group("backward").backward(out_grads)

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
