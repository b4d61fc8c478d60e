"""Key-value stores: where data-parallel training sums gradients and keeps weights.

``create("local")`` sums on the CPU, ``create("device")`` where the first value lies. A class that
is registered with `KVStoreBase.register` is created by its lower-case name.
"""

from .._mxnet_names import module_getattr
from .base import KVStoreBase
from .store import KVStore, create

__all__ = ["KVStore", "KVStoreBase", "create"]

__getattr__ = module_getattr(__name__)
