"""The key-value store of one process."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

from .. import ndarray as nd
from .. import optimizer as opt
from .._class_registry import class_named
from .._whole_files import replacing
from ..base import MXNetError, shown
from ..context import cpu
from ..ndarray import NDArray
from ..optimizer.updater import load_states
from .base import KVStoreBase, TestStore
from .compression import TwoBitCompression, create_compression

__all__ = ["KVStore", "create"]

Updater = Callable[[Any, NDArray, NDArray], None]


def _pairs(key: Any, value: Any, what: str) -> list[tuple[Any, Any]]:
    """`(key, value)` pairs from a key and its value, or from equally long lists of both."""
    if isinstance(key, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(key):
            got = len(value) if isinstance(value, (list, tuple)) else type(value).__name__
            raise ValueError(f"{what}: {len(key)} keys and {got} values, expected as many of both")
        return list(zip(key, value, strict=True))
    return [(key, value)]


def _arrays(key: Any, value: Any, what: str) -> list[NDArray]:
    """The arrays of one key: one, or a list with one per device."""
    arrays = list(value) if isinstance(value, (list, tuple)) else [value]
    for array in arrays:
        if not isinstance(array, NDArray):
            raise TypeError(
                f"{what}: invalid value of key {key!r} {shown(array)}: expected an NDArray"
            )
    if not arrays:
        raise ValueError(f"{what}: invalid value [] of key {key!r}: expected one array at least")
    return arrays


class KVStore(KVStoreBase):
    """Sums pushed values and keeps one array per key. Made by `rsnet.kv.create`.

    Keys are integers or strings, not both in one store. Operations are pushed to the engine like
    any other, so `push` and `pull` return at once.
    """

    def __init__(self, name: str = "local") -> None:
        self._type = name
        self._stored: dict[Any, NDArray] = {}
        self.updater: Updater | None = None
        self._compression: TwoBitCompression | None = None

    # ---- keys and values -----------------------------------------------------------------------

    def _check_kind(self, key: Any) -> None:
        if isinstance(key, bool) or not isinstance(key, (int, str)):
            raise TypeError(f"invalid key {key!r}: expected an integer or a string")
        for known in self._stored:
            if isinstance(known, str) != isinstance(key, str):
                raise ValueError(
                    f"invalid key {key!r}: expected {type(known).__name__}, like {known!r}"
                )
            return

    def _known(self, key: Any) -> NDArray:
        self._check_kind(key)
        stored = self._stored.get(key)
        if stored is None:
            raise MXNetError(f"unknown key {key!r}: expected one that init was called for")
        return stored

    def init(self, key: Any, value: Any) -> None:
        """Stores first values; each key is initialised once.

        Parameters
        ----------
        key : int, str or list of these
        value : NDArray or list of NDArray

        Raises
        ------
        MXNetError
            A key is there already.
        ValueError
            Keys of mixed types, or not as many keys as values.
        """
        for one, given in _pairs(key, value, "init"):
            self._check_kind(one)
            if one in self._stored:
                raise MXNetError(
                    f"init: invalid key {one!r}, which has a value: expected a new one"
                )
            self._store(one, given, "init")

    def _store(self, key: Any, value: Any, what: str) -> None:
        array = _arrays(key, value, what)[0]
        self._stored[key] = array.copy() if self._is_on_device else array.copyto(cpu())

    def assign(self, key: Any, arrays: list[NDArray]) -> None:
        """Replaces the stored array, also by one of another dtype."""
        self._known(key)
        self._store(key, arrays, "assign")

    @property
    def _is_on_device(self) -> bool:
        return "device" in self._type or self._type == "nccl"

    def _sum(self, key: Any, values: list[NDArray]) -> NDArray:
        ctx = values[0].context if self._is_on_device else cpu()
        shape = self._stored[key].shape
        for value in values:
            if value.shape != shape:
                what = f"invalid shape of key {key!r}"
                raise ValueError(f"push: {what} {value.shape}: expected {shape}")
        if self._compression is not None:
            values = [self._compression((key, i), v) for i, v in enumerate(values)]
        here = [v.as_in_context(ctx) for v in values]
        return here[0].copy() if len(here) == 1 else nd.add_n(*here)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sums the values of each key; the sum updates the stored array or replaces it.

        Parameters
        ----------
        key : int, str or list of these
            A repeated key counts like a list of values.
        value : NDArray, list of NDArray or list of lists
            The values of each key.
        priority : int
            Accepted for compatibility: the order follows from what each operation reads and writes.

        Raises
        ------
        MXNetError
            A key that was not initialised.
        """
        gathered: dict[Any, list[NDArray]] = {}
        for one, given in _pairs(key, value, "push"):
            self._known(one)
            gathered.setdefault(one, []).extend(_arrays(one, given, "push"))
        for one, values in gathered.items():
            total = self._sum(one, values)
            stored = self._stored[one]
            if self.updater is None:
                self._stored[one] = total.astype(stored.dtype, copy=False)
            else:
                self.updater(one, total.as_in_context(stored.context), stored)

    def pull(
        self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Copies the stored array of each key to `out`.

        Parameters
        ----------
        key : int, str or list of these
        out : NDArray, list of NDArray or list of lists
            Destinations of each key.

        Raises
        ------
        MXNetError
            A key that was not initialised.
        """
        if out is None:
            raise ValueError("pull: out is None, expected the arrays to copy to")
        for one, given in _pairs(key, out, "pull"):
            stored = self._known(one)
            for array in _arrays(one, given, "pull"):
                stored.copyto(array)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` to `out` (to `value` itself if `out` is None)."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull` to `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> None:
        """Raises: sparse arrays are not supported."""
        raise NotImplementedError("row_sparse_pull: sparse arrays are not supported; use pull")

    # ---- updates -------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Updates stored weights by `optimizer` whenever gradients are pushed."""
        if not isinstance(optimizer, opt.Optimizer):
            raise TypeError(f"invalid optimizer {shown(optimizer)}: expected an Optimizer")
        self._set_updater(opt.get_updater(optimizer))

    def set_updater(self, updater: Updater) -> None:
        """Calls `updater(key, pushed, stored)` for each pushed key; it changes `stored`."""
        if not callable(updater):
            raise TypeError(
                f"invalid updater {shown(updater)}: expected a function of key, pushed and stored"
            )
        self.updater = updater

    _set_updater = set_updater

    @property
    def _updater(self) -> Updater | None:
        """MXNet's name of `updater`."""
        return self.updater

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Compresses pushed gradients.

        Parameters
        ----------
        compression_params : dict
            ``{"type": "2bit", "threshold": 0.5}``.

        Raises
        ------
        ValueError
            The store is not of the type 'device', or the parameters are unknown.
        """
        if not self._is_on_device:
            raise ValueError(
                f"set_gradient_compression: invalid type of kvstore '{self._type}': "
                "expected 'device'"
            )
        self._compression = create_compression(compression_params)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Returns whether the store can update weights (`KVStoreBase.OPTIMIZER`)."""
        if capability.lower() != KVStoreBase.OPTIMIZER:
            raise MXNetError(f"unknown capability '{capability}', expected 'optimizer'")
        return True

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Writes the optimizer's states (with the optimizer itself if asked for) to a file."""
        with replacing(fname) as file:
            file.write(self._states_of("save").get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Reads states that `save_optimizer_states` wrote. They are pickled: load only files that
        you trust.
        """
        updater = self._states_of("load")
        load_states(updater, fname)

    def _states_of(self, verb: str) -> Any:
        if not isinstance(self.updater, opt.Updater):
            raise MXNetError(
                f"{verb}_optimizer_states: expected an optimizer in this store (set_optimizer)"
            )
        return self.updater

    # ---- the group of workers ------------------------------------------------------------------

    @property
    def type(self) -> str:
        """The name with which the store was created."""
        return self._type

    @property
    def rank(self) -> int:
        """0: a store of one process has one worker."""
        return 0

    @property
    def num_workers(self) -> int:
        """1: a store of one process has one worker."""
        return 1

    def barrier(self) -> None:
        """Waits for all workers: there is one."""

    _barrier = barrier

    def __reduce__(self) -> Any:
        raise pickle.PicklingError(
            "invalid object to pickle, a KVStore, which holds the arrays of one process: expected "
            "its arrays"
        )


BUILT_IN = (
    "local", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device", "device", "nccl",
)  # fmt: skip


def maker(name: str) -> Callable[[], KVStoreBase]:
    """What makes the store of that name; errors as of `create`."""
    if not isinstance(name, str):
        raise TypeError(f"invalid name {shown(name)}: expected a string")
    lower = name.lower()
    if lower in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[lower]
    if "dist" in lower or lower in ("horovod", "byteps"):
        raise NotImplementedError(
            f"kvstore '{name}': distributed stores are not in rsnet yet (they are "
            "planned over MPI, with the package mpi4py); for several devices of one "
            "machine use 'local' or 'device'"
        )
    if lower in BUILT_IN:
        return functools.partial(KVStore, lower)
    makers: dict[str, Callable[[], KVStoreBase]] = {"local": KVStore, "device": KVStore}
    makers |= {n: c for n, c in KVStoreBase.kv_registry.items() if c is not TestStore}
    return class_named(makers, "kvstore", name)


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
    return maker(name)()
