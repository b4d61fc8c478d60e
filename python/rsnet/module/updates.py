"""How a module updates its parameters: in the key-value store, or separately on every device."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from .. import optimizer as opt
from .._warnings import warn
from .._whole_files import replacing
from ..base import shown
from ..kvstore import KVStoreBase
from ..ndarray import NDArray
from ..optimizer.updater import load_states

__all__ = [
    "GradientUpdate",
    "checked_optimizer",
    "names_of_indices",
    "part_of_update",
]


def checked_optimizer(
    optimizer: Any, params: Any, symbol: Any, names: dict[int, str], batch_size: int
) -> opt.Optimizer:
    """An optimizer by name, or the given one, which then knows the parameters' names.

    Raises
    ------
    TypeError
        `optimizer` is neither a name nor an optimizer.
    """
    rescale_grad = 1.0 / batch_size if batch_size else 1.0
    if isinstance(optimizer, str):
        try:
            given = dict(params)
        except (TypeError, ValueError):
            raise TypeError(
                f"invalid optimizer_params {params!r}: expected a dict or a sequence of pairs"
            ) from None
        arguments = {"rescale_grad": rescale_grad, **given}
        return opt.create(optimizer, sym=symbol, param_idx2name=names, **arguments)
    if not isinstance(optimizer, opt.Optimizer):
        raise TypeError(f"invalid optimizer {shown(optimizer)}: expected a name or an Optimizer")
    if optimizer.rescale_grad != rescale_grad:
        warn(
            f"Optimizer created manually outside Module but rescale_grad is not normalized to "
            f"1.0/batch_size/num_workers ({optimizer.rescale_grad} vs. {rescale_grad}). "
            "Is this intended?"
        )
    if not optimizer.idx2name:
        optimizer.idx2name = names.copy()
    return optimizer


def names_of_indices(names: Sequence[str], devices: int, on_store: bool) -> dict[int, str]:
    """Maps each index of the optimizer to a parameter's name: one index per parameter or, without a
    store that updates, one per parameter and device.
    """
    if on_store:
        return dict(enumerate(names))
    return {i * devices + k: name for i, name in enumerate(names) for k in range(devices)}


def with_gradients(names: Sequence[str], grads: Sequence[Sequence[NDArray | None]]) -> list[str]:
    """The parameters that have gradients."""
    return [name for name, block in zip(names, grads, strict=True) if block[0] is not None]


class GradientUpdate:
    """One step of an optimizer on all parameters of all devices.

    Parameters
    ----------
    optimizer : Optimizer or None
        None until it is set, see `part_of_update`.
    store : KVStore or None
        Sums gradients over devices.
    on_store : bool
        Update the weights in the store, and copy them to the devices?
    names : list of str
        Keys of the store, one per parameter.
    indices : dict of int to str
        The parameter of each index of an updater outside of the store.
    """

    def __init__(
        self,
        optimizer: opt.Optimizer | None,
        store: KVStoreBase | None,
        on_store: bool,
        names: Sequence[str],
        indices: dict[int, str],
    ) -> None:
        self.optimizer = optimizer
        self.store = store
        self.on_store = on_store and self.store is not None
        self.names = list(names)
        self.indices = indices
        self.trained = self.names  # those that have gradients
        self.updater = None if self.on_store or optimizer is None else opt.get_updater(optimizer)
        if store is not None and self.on_store:
            store.set_optimizer(optimizer)

    def start(
        self,
        blocks: Sequence[Sequence[NDArray]],
        grads: Sequence[Sequence[NDArray | None]],
        arg_params: dict[str, NDArray],
    ) -> None:
        """Stores first values, and copies them to the devices; `grads` is as for a step."""
        self.trained = with_gradients(self.names, grads)
        if self.store is None:
            return
        for index, (name, block) in enumerate(zip(self.names, blocks, strict=True)):
            self.store.broadcast(name, arg_params[name], list(block), priority=-index)

    def restart(self, blocks: Sequence[Sequence[NDArray]]) -> None:
        """The devices have new values: a store that updates weights goes on from them."""
        if self.store is None or not self.on_store:
            return
        for name, block in zip(self.names, blocks, strict=True):
            self.store.assign(name, list(block))

    def __call__(
        self, blocks: Sequence[Sequence[NDArray]], grads: Sequence[Sequence[NDArray | None]]
    ) -> None:
        """Updates the arrays of every parameter; those without gradient are left alone."""
        indices, weights, gradients = [], [], []
        for index, (name, block, grad) in enumerate(zip(self.names, blocks, grads, strict=True)):
            if grad[0] is None:
                continue
            if self.store is not None:
                into = block if self.on_store else grad
                self.store.pushpull(name, list(grad), list(into), priority=-index)
            for k, weight in enumerate(block):
                indices.append(index * len(block) + k)
                weights.append(weight)
                gradients.append(grad[k])
        if self.updater is not None and indices:
            self.updater(indices, gradients, weights)

    def save_states(self, fname: str) -> None:
        """Writes the optimizer's states to a file."""
        if self.on_store and self.store is not None:
            self.store.save_optimizer_states(fname)
        elif self.updater is not None:
            with replacing(fname) as file:
                file.write(self.updater.get_states())

    def load_states(self, fname: str) -> None:
        """Reads states that `save_states` wrote, also for another number of devices.

        Raises
        ------
        ValueError
            The file has something else, or states of other parameters than the module trains.
        """
        updater = self.updater
        if self.on_store and self.store is not None:
            self.store.load_optimizer_states(fname)
            updater = self.store.updater
        elif updater is not None:
            load_states(updater, fname)
        if isinstance(updater, opt.Updater):
            updater.states = self._keyed(updater.states, fname)
            updater.states_synced = dict.fromkeys(updater.states, False)

    def _keyed(self, states: dict[Any, Any], fname: str) -> dict[Any, Any]:
        """States by the keys that the updater gets: names in a store, indices outside."""
        devices = self._devices_of(states, fname)
        by_name = {}
        for key, state in states.items():
            name = self.names[key // devices] if isinstance(key, int) else key
            if name not in self.names:
                raise ValueError(
                    f"file '{fname}': invalid state of {name!r}: expected states of the module's "
                    f"parameters {self.names}"
                )
            by_name[name] = state
        if self.on_store:
            return by_name
        if devices == len(self.indices) // max(len(self.names), 1):
            return states  # those of each device, as they were
        return {index: by_name[name] for index, name in self.indices.items() if name in by_name}

    def _devices_of(self, states: dict[Any, Any], fname: str) -> int:
        """The number of devices of the module that wrote the states, each of which has one of every
        trained parameter; 0 where they have names.
        """
        keys = {key for key in states if isinstance(key, int)}
        if not keys:
            return 0
        trained = [i for i, name in enumerate(self.names) if name in self.trained]
        devices = len(keys) // max(len(trained), 1)
        expected = {i * devices + k for i in trained for k in range(devices)}
        if keys != expected:
            raise ValueError(
                f"file '{fname}': invalid states of the parameters by number {sorted(keys)}: "
                f"expected states of each parameter that the module trains, {self.trained}"
            )
        return devices


def part_of_update(name: str) -> Any:
    """A property over an attribute of a module's `GradientUpdate`.

    A program whose module defines `init_optimizer` sets the parts one by one.
    """

    def get(self: Any) -> Any:
        return getattr(self._update, name, None)

    def put(self: Any, value: Any) -> None:
        # Modules that share an update keep theirs.
        update = copy.copy(self._update)
        if update is None:
            names = self._param_names
            indices = names_of_indices(names, len(self._context), on_store=False)
            update = GradientUpdate(None, None, False, names, indices)
            if self._exec_group is not None:
                update.trained = with_gradients(names, self._exec_group.grad_arrays)
        setattr(update, name, value)
        self._update = update

    return property(get, put)
