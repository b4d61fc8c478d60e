"""Data-parallel training before modules: `DataParallelExecutorManager` and its groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ._mxnet_names import module_getattr
from .module.arguments import as_descs
from .module.batch_rows import batch_size_of, split_batch
from .module.executor_group import DataParallelExecutorGroup as _Group
from .ndarray import NDArray

__all__ = ["DataParallelExecutorGroup", "DataParallelExecutorManager"]


def _split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """The rows of a batch that each device takes."""
    return split_batch(batch_size, work_load_list)


def _check_arguments(symbol: Any) -> None:
    """Checks that no two arguments or auxiliary states have one name.

    Raises
    ------
    ValueError
        A name occurs twice.
    """
    for what, names in (
        ("argument", symbol.list_arguments()),
        ("auxiliary state", symbol.list_auxiliary_states()),
    ):
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            raise ValueError(f"invalid {what} name '{double[0]}': expected it once in {names}")


class DataParallelExecutorGroup:
    """Executors of one symbol on several devices.

    Parameters
    ----------
    sym : Symbol
    arg_names, param_names : list of str
        All arguments, and those that are parameters.
    ctx : list of Context
    slices : list of slice
        The rows of a batch that each device takes.
    train_data : DataIter or DataBatch
        Its shapes are those of the executors.
    shared_group : DataParallelExecutorGroup, optional
        The parameters and the memory are its own.

    Attributes
    ----------
    group : rsnet.module.executor_group.DataParallelExecutorGroup
        The same as modules have it.
    """

    def __init__(
        self,
        sym: Any,
        arg_names: Sequence[str],
        param_names: Sequence[str],
        ctx: Sequence[Any],
        slices: Sequence[slice],
        train_data: Any,
        shared_group: DataParallelExecutorGroup | None = None,
    ) -> None:
        _check_arguments(sym)
        if len(slices) != len(ctx):
            raise ValueError(f"invalid slices {slices!r}: expected {len(ctx)}, one per device")
        self.arg_names, self.param_names = list(arg_names), list(param_names)
        self.aux_names, self.slices = sym.list_auxiliary_states(), list(slices)
        data = as_descs(train_data.provide_data)
        label = as_descs(train_data.provide_label or [])
        shared: _Group | None = None if shared_group is None else shared_group.group
        self.group: _Group = _Group(
            sym, list(ctx), [rows.stop - rows.start for rows in slices], data, label or None,
            self.param_names, True, False, shared,
        )  # fmt: skip
        self._batch: Any = None

    @property
    def train_execs(self) -> list[Any]:
        """The executors, one per device."""
        return self.group.execs

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """The arrays of each parameter, one per device."""
        return self.group.param_arrays

    @property
    def grad_arrays(self) -> list[list[NDArray | None]]:
        """The gradients of each parameter, one per device."""
        return self.group.grad_arrays

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """The arrays of each auxiliary state, one per device."""
        return self.group.aux_arrays

    def load_data_batch(self, data_batch: Any) -> None:
        """Keeps a batch for `forward`."""
        self._batch = data_batch

    def forward(self, is_train: bool = False) -> None:
        """Computes the outputs of the batch that was loaded last."""
        if self._batch is None:
            raise AssertionError("forward: call load_data_batch first")
        self.group.forward(self._batch, is_train)

    def backward(self) -> None:
        """Computes the gradients."""
        self.group.backward()

    def update_metric(self, metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric by the outputs of the last forward."""
        self.group.update_metric(metric, labels, pre_sliced)


class DataParallelExecutorManager:
    """Executors of a symbol on several devices, one set for each bucket.

    Parameters
    ----------
    symbol : Symbol
    ctx : list of Context
    train_data : DataIter
        Its shapes are those of the executors.
    arg_names, param_names, aux_names : list of str, optional
        The symbol's own if None; the parameters are the arguments that `train_data` does not give.
    work_load_list : list of float, optional
        Share of each device; equal if None.
    logger : Logger, optional
    sym_gen : callable, optional
        The symbol of a batch's `bucket_key`.

    Examples
    --------
    >>> import numpy as np, rsnet as mx
    >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    >>> batches = mx.io.NDArrayIter(np.ones((4, 3)), np.zeros(4), batch_size=4)
    >>> manager = DataParallelExecutorManager(
    ...     mx.sym.SoftmaxOutput(net, name="softmax"), [mx.cpu(0), mx.cpu(1)], batches
    ... )
    >>> manager.load_data_batch(next(batches))
    >>> manager.forward(is_train=True)
    >>> manager.backward()
    >>> [grads[0].shape for grads in manager.grad_arrays]
    [(2, 3), (2,)]
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Sequence[Any],
        train_data: Any,
        arg_names: Sequence[str] | None = None,
        param_names: Sequence[str] | None = None,
        aux_names: Sequence[str] | None = None,
        work_load_list: Sequence[float] | None = None,
        logger: Any = None,
        sym_gen: Callable[[Any], Any] | None = None,
    ) -> None:
        if work_load_list is not None and len(work_load_list) != len(ctx):
            raise ValueError(
                f"invalid work_load_list {list(work_load_list)}: expected {len(ctx)} numbers, "
                "one for each device"
            )
        self.symbol, self.ctx, self.sym_gen = symbol, list(ctx), sym_gen
        self.logger = logging if logger is None else logger
        self.arg_names = list(arg_names or symbol.list_arguments())
        self.aux_names = list(aux_names or symbol.list_auxiliary_states())
        given = {desc[0] for desc in (*train_data.provide_data, *(train_data.provide_label or []))}
        self.param_names = list(param_names or [n for n in self.arg_names if n not in given])
        rows = batch_size_of(as_descs(train_data.provide_data))
        self.slices = split_batch(rows, work_load_list or [1] * len(self.ctx))
        self._first = self._group_of(symbol, train_data)
        self._groups = {getattr(train_data, "default_bucket_key", None): self._first}
        self._current = self._first

    def _group_of(
        self, symbol: Any, train_data: Any, shared: DataParallelExecutorGroup | None = None
    ) -> DataParallelExecutorGroup:
        return DataParallelExecutorGroup(
            symbol, symbol.list_arguments(), self.param_names, self.ctx, self.slices, train_data,
            shared,
        )  # fmt: skip

    def install_monitor(self, monitor: Any) -> None:
        """Lets a monitor watch the executors."""
        if self.sym_gen is not None:
            raise NotImplementedError(
                "install_monitor: expected no sym_gen, which makes executors on demand"
            )
        self._first.group.install_monitor(monitor)

    def set_params(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Copies values to the parameters of every device."""
        self._first.group.set_params(arg_params, aux_params)

    def copy_to(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Fills the given dicts with the mean over devices of every parameter."""
        self._first.group.get_params(arg_params, aux_params)

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """The arrays of each parameter, one per device."""
        return self._first.param_arrays

    @property
    def grad_arrays(self) -> list[list[NDArray | None]]:
        """The gradients of each parameter, one per device."""
        return self._first.grad_arrays

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """The arrays of each auxiliary state, one per device."""
        return self._first.aux_arrays

    def load_data_batch(self, data_batch: Any) -> None:
        """Chooses the executors for a batch, and keeps it for `forward`."""
        if self.sym_gen is not None:
            key = data_batch.bucket_key
            if key not in self._groups:
                symbol = self.sym_gen(key)
                self._groups[key] = self._group_of(symbol, data_batch, self._first)
            self._current = self._groups[key]
        self._current.load_data_batch(data_batch)

    def forward(self, is_train: bool = False) -> None:
        """Computes the outputs of the batch that was loaded last."""
        self._current.forward(is_train)

    def backward(self) -> None:
        """Computes the gradients."""
        self._current.backward()

    def update_metric(self, metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric by the outputs of the last forward."""
        self._current.update_metric(metric, labels, pre_sliced)


__getattr__ = module_getattr(__name__)
