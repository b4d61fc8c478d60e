"""`Trainer`: updates parameters by their gradients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .. import autograd
from .. import optimizer as opt
from .._pytorch_names import HINTS
from .._whole_files import replacing
from ..base import MXNetError, add_foreign_names, shown
from ..context import Context
from ..kvstore.choice import choose_store
from ..optimizer.updater import load_states
from .parameter import Parameter
from .parameter_dict import ParameterDict

__all__ = ["Trainer"]


class Trainer:
    """Updates parameters by an optimizer, with gradients summed over devices by a key-value store.

    Parameters
    ----------
    params : ParameterDict, dict or list of Parameter
        What to train, such as ``net.collect_params()``. Those with ``grad_req='null'`` are left
        alone.
    optimizer : str or Optimizer
    optimizer_params : dict, optional
        Arguments of the optimizer, such as ``{"learning_rate": 0.1}``; not with an instance.
    kvstore : str, KVStore or None
        Sums gradients over devices. With one device and a local store there is none.
    compression_params : dict, optional
        Compression of gradients, see `KVStore.set_gradient_compression`.
    update_on_kvstore : bool, optional
        Update weights in the store (True) or on each device (False)? If None, as
        ``MXNET_UPDATE_ON_KVSTORE`` says, where there is a store.

    Raises
    ------
    ValueError
        `params` holds something else than Parameters.
    RuntimeError
        A parameter is not initialised, or parameters are on different devices.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet import autograd, gluon
    >>> net = gluon.nn.Dense(1, in_units=2)
    >>> net.initialize(init="ones")
    >>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    >>> with autograd.record():
    ...     loss = net(mx.nd.ones((4, 2)))
    >>> loss.backward()
    >>> trainer.step(batch_size=4)
    >>> net.weight.data().asnumpy().tolist()
    [[0.5, 0.5]]
    """

    # Of what rsnet does not have; trainers that programs derive ask.
    _distributed = _contains_sparse_weight = _contains_sparse_grad = False

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: dict[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        if isinstance(params, (dict, ParameterDict)):
            params = [params[key] for key in sorted(params.keys())]
        if not isinstance(params, (list, tuple)):
            raise ValueError(
                f"invalid params: expected a list or dict of Parameters, got "
                f"{type(params).__name__}"
            )
        self._params: list[Parameter] = []
        self._index: dict[int, int] = {}
        for i, param in enumerate(params):
            if not isinstance(param, Parameter):
                raise ValueError(
                    f"invalid params: expected a list or dict of Parameters, entry {i} is a "
                    f"{type(param).__name__}"
                )
            if id(param) in self._index:
                raise ValueError(f"Parameter '{param.name}' is given twice, expected once")
            self._index[id(param)] = i
            self._params.append(param)
        self._contexts = self._check_contexts()
        self._compression_params = compression_params
        self._init_optimizer(optimizer, optimizer_params or {})
        self._scale = self._optimizer.rescale_grad
        # Programs change these before the first step.
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        self._kvstore: Any = None
        self._update_on_kvstore = False
        self._kv_initialized = False
        self._params_to_init: list[Parameter] = list(self._params)
        for param in self._params:
            param._trainer = self

    def _check_contexts(self) -> list[Context]:
        contexts: list[Context] | None = None
        for param in self._params:
            own = param.list_ctx()
            if contexts is not None and contexts != own:
                raise AssertionError(
                    f"Parameter '{param.name}' is initialized on {own}, expected {contexts} as "
                    "the parameters before it"
                )
            contexts = own
        return contexts or []

    def _init_optimizer(self, optimizer: Any, optimizer_params: dict[str, Any]) -> None:
        by_index = dict(enumerate(self._params))
        if not isinstance(optimizer_params, Mapping):
            given = shown(optimizer_params)
            raise TypeError(f"invalid optimizer_params {given}: expected a dict by argument name")
        if isinstance(optimizer, opt.Optimizer):
            if optimizer_params:
                raise AssertionError(
                    f"invalid optimizer_params {optimizer_params!r}: expected None, as the "
                    "optimizer is an object that has its parameters already"
                )
            self._optimizer = optimizer
            self._optimizer.param_dict = by_index
        else:
            self._optimizer = opt.create(optimizer, param_dict=by_index, **optimizer_params)
        self._updaters = [opt.get_updater(self._optimizer) for _ in self._contexts]

    # ---- the store -----------------------------------------------------------------------------

    def _init_kvstore(self) -> None:
        arrays = {p.name: p.data(self._contexts[0]) for p in self._params if p._data is not None}
        store, on_store = choose_store(self._kvstore_params["kvstore"], len(self._contexts), arrays)
        asked = self._kvstore_params["update_on_kvstore"]
        if asked is not None:
            if asked and store is None and self._kvstore_params["kvstore"] is not None:
                # One device needs no store: the update there is the same.
                asked = False
            if asked and store is None:
                raise ValueError("invalid kvstore None: expected one, as update_on_kvstore=True")
            on_store = asked
        if store is not None and self._compression_params:
            store.set_gradient_compression(self._compression_params)
        self._kvstore = store
        self._update_on_kvstore = on_store and store is not None
        if store is not None and self._update_on_kvstore:
            store.set_optimizer(self._optimizer)
        self._kv_initialized = True

    def _init_params(self) -> None:
        """Stores the first values of parameters that have values by now."""
        if not self._kv_initialized:
            self._init_kvstore()
        waiting = []
        for param in self._params_to_init:
            if param._deferred_init:
                waiting.append(param)
            elif self._kvstore is not None:
                index = self._index[id(param)]
                arrays = param.list_data()
                self._kvstore.broadcast(index, arrays[0], arrays, priority=-index)
        self._params_to_init = waiting

    def _values_changed(self, param: Parameter) -> None:
        """A parameter has new values, perhaps of another dtype: the store goes on from them."""
        if self._kvstore is None or any(param is waiting for waiting in self._params_to_init):
            return
        with autograd.pause():
            self._kvstore.assign(self._index[id(param)], param.list_data())

    # ---- rates ---------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The learning rate."""
        return self._optimizer.learning_rate

    @property
    def optimizer(self) -> opt.Optimizer:
        """The optimizer."""
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate.

        Raises
        ------
        UserWarning
            A scheduler decides it.
        """
        self._optimizer.set_learning_rate(lr)

    # ---- steps ---------------------------------------------------------------------------------

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """One update: sums gradients over devices, divides them by `batch_size`, updates.

        Parameters
        ----------
        batch_size : float
            The gradients are divided by it.
        ignore_stale_grad : bool
            Leave parameters alone whose gradient no backward pass wrote since the last step?

        Raises
        ------
        UserWarning
            A gradient was not written since the last step.
        DeferredInitializationError
            A parameter has no values yet.
        """
        self._start(batch_size)
        if not ignore_stale_grad:
            self._check_fresh()  # before gradients are summed, in place
        self._allreduce_grads()
        self._update(ignore_stale_grad=True)

    def _start(self, batch_size: float) -> None:
        if self._params_to_init or not self._kv_initialized:
            self._init_params()
        try:
            scale = self._scale / batch_size
        except (TypeError, ZeroDivisionError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            given = shown(batch_size)
            raise kind(f"invalid batch_size {given}: expected a number greater than 0") from error
        self._check_and_rescale_grad(scale)

    def _check_and_rescale_grad(self, scale: float) -> None:
        # A store that updates weights has this very optimizer.
        self._optimizer.rescale_grad = scale

    @property
    def _param2idx(self) -> dict[str, int]:
        """Numbers of the parameters, for trainers that programs derive from this one."""
        return {param.name: i for i, param in enumerate(self._params)}

    def allreduce_grads(self) -> None:
        """Sums gradients over devices, for `update`: what `step` does first.

        Raises
        ------
        AssertionError
            Weights are updated in the store.
        """
        self._init_params()
        if self._kvstore is not None and self._update_on_kvstore:
            raise AssertionError(
                "allreduce_grads: the key-value store updates the parameters: expected a Trainer "
                "made with update_on_kvstore=False"
            )
        self._allreduce_grads()

    def _allreduce_grads(self) -> None:
        if self._kvstore is None or self._update_on_kvstore:  # `_update` pushes gradients there
            return
        for i, param in self._trained():
            grads = param.list_grad()
            self._kvstore.pushpull(i, grads, grads, priority=-i)

    def _trained(self) -> list[tuple[int, Parameter]]:
        """The parameters that have gradients, with their numbers."""
        return [(i, p) for i, p in enumerate(self._params) if p.grad_req != "null"]

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Updates by the gradients as they are: what `step` does after `allreduce_grads`.

        Raises
        ------
        AssertionError
            Weights are updated in the store.
        UserWarning
            A gradient was not written since the last step.
        """
        self._start(batch_size)
        if self._kvstore is not None and self._update_on_kvstore:
            raise AssertionError(
                "invalid call of update(), as the store updates the parameters: expected a Trainer "
                "made with update_on_kvstore=False"
            )
        self._update(ignore_stale_grad)

    def _check_fresh(self) -> None:
        for _, param in self._trained():
            for data in param.list_data():
                if not data._fresh_grad:
                    raise UserWarning(
                        f"the gradient of Parameter '{param.name}' on {data.context} is that of an "
                        "earlier step: expected a new one by backward, so the loss may not depend "
                        "on it; step(ignore_stale_grad=True) leaves such parameters alone"
                    )

    def _update(self, ignore_stale_grad: bool = False) -> None:
        scaler = getattr(self, "_amp_loss_scaler", None)
        if scaler is not None and scaler.has_overflow(self._params):
            return
        if not ignore_stale_grad:
            self._check_fresh()
        if self._kvstore is not None and self._update_on_kvstore:
            self._update_in_store()
            return
        # What each device's updater gets: numbers, gradients and weights.
        steps: list[tuple[list[int], list[Any], list[Any]]] = [([], [], []) for _ in self._updaters]
        for i, param in self._trained():
            for step, data, grad in zip(steps, param.list_data(), param.list_grad()):
                if data._fresh_grad:
                    for part, value in zip(step, (i, grad, data)):
                        part.append(value)
        for updater, (indices, grads, weights) in zip(self._updaters, steps):
            if indices:
                updater(indices, grads, weights)
                for data in weights:
                    data._fresh_grad = False

    def _update_in_store(self) -> None:
        fresh = []
        for i, param in self._trained():
            copies = zip(param.list_data(), param.list_grad())
            grads = [grad for data, grad in copies if data._fresh_grad]
            if grads:  # the rest are those of earlier steps
                fresh.append((i, param))
                self._kvstore.push(i, grads, priority=-i)
        for i, param in fresh:
            self._kvstore.pull(i, param.list_data(), priority=-i)
            for data in param.list_data():
                data._fresh_grad = False

    # ---- mixed precision, see `contrib.amp` ----------------------------------------------------

    def _take_loss_scaler(self, scaler: Any) -> None:
        """From now on updates are left out where `scaler` finds gradients that overflowed."""
        if self._update_on_kvstore or self._kvstore_params["update_on_kvstore"]:
            raise ValueError(
                "amp.init_trainer: invalid Trainer, which updates the parameters in its key-value "
                "store: expected one made with update_on_kvstore=False"
            )
        self._kvstore_params["update_on_kvstore"] = False
        # By these names programs set and store them; only a trainer that scales has them.
        self._amp_loss_scaler: Any = scaler
        self._amp_original_scale: float = self._scale

    def _loss_was_scaled(self, factor: float) -> None:
        """The gradients are `factor` times those of the loss: steps divide by it."""
        self._scale = self._amp_original_scale / factor

    def _unscale_gradients(self) -> None:
        """Divides the gradients here and now, and no longer in steps."""
        factor = self._scale / self._amp_original_scale
        for _, param in self._trained():
            for grad in param.list_grad():
                grad *= factor
        self._scale = self._amp_original_scale

    # ---- files ---------------------------------------------------------------------------------

    def save_states(self, fname: str) -> None:
        """Writes the optimizer's states to a file."""
        self._init_params()
        if self._params_to_init:
            raise MXNetError(
                f"save_states: Parameter '{self._params_to_init[0].name}' has no values yet: call "
                "the network first, which gives it its shape"
            )
        if self._kvstore is not None and self._update_on_kvstore:
            self._kvstore.save_optimizer_states(fname, dump_optimizer=True)
            return
        with replacing(os.fspath(fname)) as file:
            file.write(self._updaters[0].get_states(dump_optimizer=True))

    def load_states(self, fname: str) -> None:
        """Reads states that `save_states` wrote.

        They are pickled: load only files that you trust.
        """
        self._init_params()
        if self._kvstore is not None and self._update_on_kvstore:
            self._kvstore.load_optimizer_states(fname)
            updater = self._kvstore.updater
            if isinstance(updater, opt.Updater):
                self._optimizer = updater.optimizer
        else:
            for updater in self._updaters:
                load_states(updater, fname)
                updater.optimizer = self._updaters[0].optimizer
            self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))


add_foreign_names(Trainer, "Trainer", HINTS["Trainer"])
