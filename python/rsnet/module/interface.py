"""What every kind of module defines, and how far a module has come."""

from __future__ import annotations

import logging
from typing import Any

from ..initializer import Uniform
from ..io import DataBatch
from ..ndarray import NDArray
from .arguments import refuse_sparse
from .properties import kept

__all__ = ["DEFAULT_INITIALIZER", "ModuleInterface"]

DEFAULT_INITIALIZER = Uniform(0.01)


class ModuleInterface:
    """The methods and properties by which `BaseModule` runs a module, for a subclass to define."""

    def __init__(self, logger: Any = logging) -> None:
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None

    def _require(self, what: str, *states: str) -> None:
        """Raises where a step that `what` needs was not taken."""
        steps = {
            "binded": "bind", "params_initialized": "init_params",
            "optimizer_initialized": "init_optimizer",
            "inputs_need_grad": "bind(inputs_need_grad=True)",
        }  # fmt: skip
        missing = [steps[s] for s in states if not getattr(self, s)]
        if missing:
            raise AssertionError(
                f"{type(self).__name__}.{what}: call {' and '.join(missing)} first"
            )

    def _stays_bound(self, force_rebind: bool) -> bool:
        """Whether `bind` leaves the module as it is, with a warning."""
        stays = self.binded and not force_rebind
        if stays:
            self.logger.warning("Already bound, ignoring bind()")
        return stays

    def _keeps_optimizer(self, force_init: bool) -> bool:
        """Whether `init_optimizer` leaves the optimizer as it is, with a warning."""
        self._require("init_optimizer", "binded", "params_initialized")
        keeps = self.optimizer_initialized and not force_init
        if keeps:
            self.logger.warning("optimizer already initialized, ignoring...")
        return keeps

    @property
    def symbol(self) -> Any:
        """The symbol, or None for a module that has none."""
        return self._symbol

    data_names = kept("data_names", "Names of the data that the module takes.")
    output_names = kept("output_names", "Names of the outputs.")
    data_shapes = kept("data_shapes", "Descriptions of the data.")
    label_shapes = kept("label_shapes", "Descriptions of the labels; None if it takes none.")
    output_shapes = kept("output_shapes", "Names and shapes of the outputs.")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """The parameters and the auxiliary states by name. A module may give its own dicts, which
        change with the next call.
        """
        raise NotImplementedError

    def init_params(
        self,
        initializer: Any = DEFAULT_INITIALIZER,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Gives the parameters their first values."""
        raise NotImplementedError

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
    ) -> None:
        """Allocates memory for the given shapes."""
        raise NotImplementedError

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Chooses how parameters are updated."""
        raise NotImplementedError

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Gets ready for a batch that is about to be run."""
        refuse_sparse(sparse_row_id_fn)

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Computes the outputs."""
        raise NotImplementedError

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradients."""
        raise NotImplementedError

    def update(self) -> None:
        """Updates the parameters by their gradients."""
        raise NotImplementedError

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The outputs of the last forward."""
        raise NotImplementedError

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradients of the data, computed by the last backward."""
        raise NotImplementedError

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The states that are carried from batch to batch; none here."""
        self._require("get_states", "binded", "params_initialized")
        return []

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Sets the states that are carried from batch to batch; there are none here."""
        self._require("set_states", "binded", "params_initialized")
        if states or value:
            raise ValueError(f"set_states: expected none, as {type(self).__name__} has no states")

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric by the outputs of the last forward."""
        raise NotImplementedError

    def install_monitor(self, mon: Any) -> None:
        """Lets a monitor watch the executors."""
        raise NotImplementedError
