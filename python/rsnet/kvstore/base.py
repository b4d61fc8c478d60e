"""The interface of key-value stores, and the registry of their names."""

from __future__ import annotations

from typing import Any

__all__ = ["KVStoreBase", "create"]


class KVStoreBase:
    """Base of key-value stores that programs define: subclass it, and register the class.

    Examples
    --------
    >>> import rsnet as mx
    >>> @mx.kv.KVStoreBase.register
    ... class Forgetful(mx.kv.KVStoreBase):
    ...     def broadcast(self, key, value, out, priority=0):
    ...         out[:] = value
    ...     def pushpull(self, key, value, out=None, priority=0):
    ...         pass
    >>> type(mx.kv.create("forgetful")).__name__
    'Forgetful'
    """

    OPTIMIZER = "optimizer"

    kv_registry: dict[str, type[KVStoreBase]] = {}

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Stores the values and copies them to `out`."""
        raise NotImplementedError

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sums the values of each key over the workers and writes the sums to `out`."""
        raise NotImplementedError

    def set_optimizer(self, optimizer: Any) -> None:
        """Updates stored weights by `optimizer` whenever gradients are pushed."""
        raise NotImplementedError

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Returns whether the store has a capability, such as `KVStoreBase.OPTIMIZER`."""
        raise NotImplementedError

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Writes the states of the optimizer to a file."""
        raise NotImplementedError

    def load_optimizer_states(self, fname: str) -> None:
        """Reads the states of the optimizer from a file."""
        raise NotImplementedError

    @property
    def type(self) -> str:
        """The name with which the store was created."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """Number of this worker among `num_workers`."""
        raise NotImplementedError

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        raise NotImplementedError

    @staticmethod
    def register(klass: Any) -> Any:
        """Class decorator: makes a store known to `create` by its lower-case name."""
        KVStoreBase.kv_registry[klass.__name__.lower()] = klass
        return klass


BUILT_IN = (
    "local", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device", "device", "nccl",
)  # fmt: skip


def create(name: str = "local") -> KVStoreBase:
    """A key-value store by name.

    Parameters
    ----------
    name : {'local', 'device', 'nccl'} or the name of a registered class
        'local' sums on the CPU, 'device' where the first value of a key lies; 'nccl' is 'device'.

    Raises
    ------
    TypeError
        The name is not a string.
    ValueError
        No store has that name.
    NotImplementedError
        The name is that of a distributed store.

    Examples
    --------
    >>> import rsnet as mx
    >>> store = mx.kv.create("local")
    >>> store.init("w", mx.nd.zeros((2,)))
    >>> store.push("w", [mx.nd.ones((2,)), mx.nd.ones((2,))])
    >>> out = mx.nd.empty((2,))
    >>> store.pull("w", out=out)
    >>> out.asnumpy().tolist()
    [2.0, 2.0]
    """
    from .store import KVStore

    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}, expected a string")
    lower = name.lower()
    if lower in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[lower]()
    if "dist" in lower or lower in ("horovod", "byteps"):
        raise NotImplementedError(
            f"kvstore '{name}': distributed stores are not in rsnet yet (they are "
            "planned over MPI, with the package mpi4py); for several devices of one "
            "machine use 'local' or 'device'"
        )
    if lower not in BUILT_IN:
        known = ", ".join(repr(n) for n in ("local", "device", *sorted(KVStoreBase.kv_registry)))
        raise ValueError(f"unknown kvstore '{name}', expected one of: {known}")
    return KVStore(lower)
