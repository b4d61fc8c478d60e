"""The store that a training loop needs, by its number of devices and its parameters."""

from __future__ import annotations

import os
from typing import Any

from ..base import shown
from ..ndarray import NDArray
from .base import KVStoreBase
from .store import maker

__all__ = ["choose_store"]

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
