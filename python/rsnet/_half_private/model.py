"""What `mxnet.model` has for training loops that programs write: stores and updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..kvstore import KVStoreBase
from ..kvstore.choice import choose_store
from ..ndarray import NDArray

__all__ = [
    "_create_kvstore",
    "_create_sparse_kvstore",
    "_initialize_kvstore",
    "_update_params",
    "_update_params_on_kvstore",
]

_Arrays = Sequence[Sequence[Any]]


def _create_kvstore(
    kvstore: Any, num_device: int, arg_params: dict[str, NDArray]
) -> tuple[KVStoreBase | None, bool]:
    """The store that training needs (None: none), and whether parameters are updated in it.

    Raises
    ------
    TypeError
        `kvstore` is neither a name nor a store.
    """
    return choose_store(kvstore, num_device, arg_params)


def _create_sparse_kvstore(kvstore: Any) -> NoReturn:
    """Raises: there is no sparse storage."""
    raise NotImplementedError(
        "_create_sparse_kvstore: rsnet has no sparse storage; use _create_kvstore and dense "
        "parameters"
    )


def _initialize_kvstore(
    kvstore: Any,
    param_arrays: _Arrays,
    arg_params: dict[str, NDArray],
    param_names: Sequence[str],
    update_on_kvstore: bool,
) -> None:
    """Stores first values by name; with `update_on_kvstore` also copies them to the devices.

    Parameters
    ----------
    kvstore : KVStore
    param_arrays : list of list of NDArray
        For each parameter its arrays, one per device.
    arg_params : dict of str to NDArray
        The first values.
    param_names : list of str
    update_on_kvstore : bool
    """
    for index, (name, block) in enumerate(zip(param_names, param_arrays, strict=False)):
        if update_on_kvstore:
            kvstore.broadcast(name, arg_params[name], out=list(block), priority=-index)
        else:
            kvstore.init(name, arg_params[name])


def _with_gradient(
    param_arrays: _Arrays, grad_arrays: _Arrays
) -> list[tuple[int, list[Any], list[Any]]]:
    """Number, arrays and gradients of the parameters that have gradients."""
    pairs = zip(param_arrays, grad_arrays, strict=False)
    return [(i, list(p), list(g)) for i, (p, g) in enumerate(pairs) if g[0] is not None]


def _update_params(
    param_arrays: _Arrays,
    grad_arrays: _Arrays,
    updater: Callable[..., Any],
    num_device: int,
    kvstore: Any = None,
    param_names: Sequence[str] | None = None,
) -> None:
    """Sums gradients in the store, if there is one, and updates every array on its device.

    Parameters
    ----------
    param_arrays, grad_arrays : list of list of NDArray
        For each parameter its arrays and gradients, one per device.
    updater : callable
        Called once per device, with tuples of numbers (of the parameter times `num_device`, plus
        that of the device), gradients and arrays.
    num_device : int
    kvstore : KVStore, optional
    param_names : list of str, optional
        The store's keys; only needed with a store.
    """
    steps: list[list[tuple[Any, ...]]] = [[] for _ in range(num_device)]
    for index, block, grads in _with_gradient(param_arrays, grad_arrays):
        if kvstore:
            key = index if param_names is None else param_names[index]
            kvstore.pushpull(key, grads, out=grads, priority=-index)
        for k, step in enumerate(steps):
            step.append((index * num_device + k, grads[k], block[k]))
    for step in filter(None, steps):
        updater(*zip(*step, strict=True))


def _update_params_on_kvstore(
    param_arrays: _Arrays, grad_arrays: _Arrays, kvstore: Any, param_names: Sequence[str]
) -> None:
    """Pushes gradients to a store that updates, and copies what it has then to the devices."""
    for index, block, grads in _with_gradient(param_arrays, grad_arrays):
        kvstore.pushpull(param_names[index], grads, out=block, priority=-index)
