"""How a module updates its parameters: in the key-value store, or separately on every device."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any

from .. import optimizer as opt
from .._warnings import warn
from ..base import shown
from ..kvstore import KVStoreBase
from ..kvstore.store import maker
from ..ndarray import NDArray
from ..optimizer.updater import load_states

__all__ = [
    "GradientUpdate",
    "checked_optimizer",
    "choose_store",
    "names_of_indices",
    "part_of_update",
]

# A parameter of more elements than this is updated on the devices, not in a local store.
LARGE = 16 << 20


def choose_store(
    kvstore: Any, num_devices: int, arg_params: dict[str, NDArray]
) -> tuple[KVStoreBase | None, bool]:
    """The store that training needs, and whether parameters are updated in it.

    One device needs none, unless the caller made one.

    Raises
    ------
    TypeError
        `kvstore` is neither a name nor a store.
    ValueError, NotImplementedError
        There is no store of that name.
    """
    on_store = os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1") not in ("0", "false", "False")
    if kvstore is None:
        return None, False
    store = kvstore
    if isinstance(kvstore, str):
        make = maker(kvstore)
        if num_devices == 1:
            return None, False
        if kvstore == "local" and any(p.size > LARGE for p in arg_params.values()):
            on_store = False
        store = make()
    if not isinstance(store, KVStoreBase):
        raise TypeError(f"invalid kvstore {shown(kvstore)}: expected a name, a KVStore or None")
    return store, on_store and store.is_capable(KVStoreBase.OPTIMIZER)


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
    """The parameter of each index that the optimizer counts by: one a parameter, or one a device as
    well.
    """
    if on_store:
        return dict(enumerate(names))
    return {i * devices + k: name for i, name in enumerate(names) for k in range(devices)}


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
        Keys of the store, one a parameter.
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
        self.updater = None if self.on_store or optimizer is None else opt.get_updater(optimizer)
        if store is not None and self.on_store:
            store.set_optimizer(optimizer)

    def start(self, blocks: Sequence[Sequence[NDArray]], arg_params: dict[str, NDArray]) -> None:
        """Stores first values, and copies them to the devices."""
        if self.store is None:
            return
        for index, (name, block) in enumerate(zip(self.names, blocks, strict=True)):
            self.store.broadcast(name, arg_params[name], list(block), priority=-index)

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
            with open(fname, "wb") as file:
                file.write(self.updater.get_states())

    def load_states(self, fname: str) -> None:
        """Reads states that `save_states` wrote, also for another number of devices.

        Raises
        ------
        ValueError
            The file has something else, or a state of a parameter that the module does not have.
        """
        updater = self.updater
        if self.on_store and self.store is not None:
            self.store.load_optimizer_states(fname)
            updater = getattr(self.store, "_updater", None)
        elif updater is not None:
            load_states(updater, fname)
        if isinstance(updater, opt.Updater):
            updater.states = self._keyed(updater.states, fname)
            updater.states_synced = dict.fromkeys(updater.states, False)

    def _keyed(self, states: dict[Any, Any], fname: str) -> dict[Any, Any]:
        """States by the keys that the updater gets: names in a store, indices outside."""
        highest = max((key for key in states if isinstance(key, int)), default=-1)
        devices = highest // len(self.names) + 1 if self.names else 0  # of the module that wrote
        by_name = {}
        for key, state in states.items():
            name = self.names[key // devices] if isinstance(key, int) and devices else key
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
        setattr(update, name, value)
        self._update = update

    return property(get, put)
