"""What `mxnet.executor_manager` has for training loops that programs write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import module_executor_group as _group

__all__ = ["_bind_exec", "_load_data", "_load_general", "_load_label"]


def _load_general(data: Sequence[Any], targets: Sequence[Any]) -> None:
    """Copies arrays to devices, which divide the first axis.

    Parameters
    ----------
    data : list of NDArray
    targets : list
        For each of `data` one NDArray, or a list of (slice, NDArray), one per device.
    """
    _group._load_general(data, targets, [0] * len(data))


def _load_data(batch: Any, targets: Sequence[Any]) -> None:
    """Copies the data of a batch to devices, see `_load_general`."""
    _load_general(batch.data, targets)


def _load_label(batch: Any, targets: Sequence[Any]) -> None:
    """Copies the labels of a batch to devices, see `_load_general`."""
    _load_general(batch.label, targets)


def _bind_exec(
    sym: Any,
    ctx: Any,
    input_shapes: dict[str, tuple[int, ...]],
    param_names: Sequence[str],
    need_grad: Any = False,
    base_exec: Any = None,
    shared_data_arrays: dict[str, Any] | None = None,
    input_types: dict[str, Any] | None = None,
    logger: Any = None,
) -> Any:
    """Binds an executor whose parameters are zeros, or those of `base_exec`.

    Parameters
    ----------
    sym : Symbol
    ctx : Context
    input_shapes : dict of str to tuple
    param_names : list of str
    need_grad : bool or set of str
        Whether parameters have gradients, or which do; other arguments have none.
    base_exec : Executor, optional
        Its parameters, gradients and memory are shared.
    shared_data_arrays : dict of str to NDArray, optional
        Arrays of the inputs for executors that are bound after each other.
    input_types : dict of str to dtype, optional
    logger : Logger, optional
        Accepted for compatibility.
    """
    wanted = need_grad if isinstance(need_grad, (set, frozenset)) else set(param_names)
    with_grad = wanted & set(param_names) if need_grad else set()
    requests = {n: "write" if n in with_grad else "null" for n in sym.list_arguments()}
    return sym.simple_bind(
        ctx, grad_req=requests, type_dict=input_types, shared_exec=base_exec,
        shared_arg_names=list(param_names), shared_buffer=shared_data_arrays, **input_shapes,
    )  # fmt: skip
