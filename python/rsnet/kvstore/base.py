"""The interface of key-value stores, and the registry of their names."""

from __future__ import annotations

from typing import Any

__all__ = ["KVStoreBase", "TestStore"]


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

    #: What updates stored weights; None if nothing does, or if the store keeps it to itself.
    updater: Any = None

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Stores the values and copies them to `out`."""
        raise NotImplementedError

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sums the values of each key over the workers and writes the sums to `out`."""
        raise NotImplementedError

    def assign(self, key: Any, arrays: Any) -> None:
        """Replaces the values of a key that `broadcast` was called for by equal `arrays`, one per
        device: training goes on from them. Calls `broadcast` again, where a store has no better
        way.
        """
        self.broadcast(key, arrays[0], arrays)

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Compresses pushed gradients."""
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


@KVStoreBase.register
class TestStore(KVStoreBase):
    """A store that only sums: the smallest one that trains, for tests and as an example."""

    __test__ = False

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Copies the value to every array of `out`."""
        for array in _listed(out):
            array[:] = value

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Writes the sum of the values to `out`, or to the values themselves."""
        values = _listed(value)
        total = sum((v.as_in_context(values[0].context) for v in values[1:]), values[0])
        for array in values if out is None else _listed(out):
            array[:] = total

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False

    @property
    def type(self) -> str:
        return "teststore"

    @property
    def rank(self) -> int:
        return 0

    @property
    def num_workers(self) -> int:
        return 1


def _listed(arrays: Any) -> list[Any]:
    return list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
