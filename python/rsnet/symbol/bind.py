"""The two ways to bind a symbol: to given arrays, or to arrays made from inferred shapes."""

from __future__ import annotations

import re
import warnings
from typing import Any, SupportsIndex

import numpy as np

from ..base import MXNetError, MXValueError
from ..context import Context
from ..executor import Executor, bind_handle
from ..ndarray import NDArray, zeros
from ..plan import MemoryPlan
from ..util import is_np_shape
from .infer import to_core_shape

_REQS = ("null", "write", "add")


def _check_context(ctx: Any) -> Context:
    if not isinstance(ctx, Context):
        raise TypeError(f"Context type error: ctx is a {type(ctx).__name__}, expected a Context")
    return ctx


def _argument_names(symbol: Any) -> list[str]:
    """The names of the arguments, each once: shapes and arrays are told apart by name."""
    names = symbol.list_arguments()
    if len(set(names)) != len(names):
        twice = min(name for name in names if names.count(name) > 1)
        raise MXValueError(f"duplicate argument name '{twice}': {names}")
    return names


def _arrays(what: str, given: Any, names: list[str], allow_missing: bool) -> list[NDArray | None]:
    """The arrays of a list (by position) or a dict (by name)."""
    if isinstance(given, dict):
        missing = [name for name in names if name not in given]
        if missing and not allow_missing:
            raise ValueError(f"key `{missing[0]}` is missing in `{what}`")
        found = [given.get(name) for name in names]
    elif isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise ValueError(
                f"Length of {what} does not match the number of arguments: {len(given)} given, "
                f"expected {len(names)}: {names}"
            )
        found = list(given)
    else:
        raise TypeError(f"Only accept list of NDArrays or dict of str to NDArray for {what}")
    for name, value in zip(names, found, strict=True):
        if not (isinstance(value, NDArray) or (value is None and allow_missing)):
            raise TypeError(f"`{what}`: '{name}' is a {type(value).__name__}, expected an NDArray")
    return found


def _warn_of_strangers(what: str, given: dict[str, Any], names: list[str]) -> None:
    """A misspelt name would silently have no effect; a longer list than needed is common, too."""
    strangers = [name for name in given if name not in names]
    if strangers:
        warnings.warn(
            f"{what} names {', '.join(map(repr, strangers))}, which the symbol does not have; its "
            f"arguments are {', '.join(names)}",
            stacklevel=5,
        )


def _bind_reqs(grad_req: Any, names: list[str], wrong: type[Exception]) -> list[str]:
    """One request an argument from the forms that `grad_req` may have."""
    if isinstance(grad_req, str):
        reqs = [grad_req] * len(names)
    elif isinstance(grad_req, (list, tuple)):
        if len(grad_req) != len(names):
            raise wrong(
                f"grad_req has {len(grad_req)} entries for the {len(names)} arguments {names}"
            )
        reqs = list(grad_req)
    elif isinstance(grad_req, dict):
        _warn_of_strangers("grad_req", grad_req, names)
        reqs = [grad_req.get(name, "null") for name in names]
    else:
        raise TypeError(f"grad_req is a {type(grad_req).__name__}, expected str, list or dict")
    for name, req in zip(names, reqs, strict=True):
        if req not in _REQS:
            raise wrong(f"grad_req of '{name}' is {req!r}, expected one of {_REQS}")
    return reqs


def _limit_bytes(limit: int | str | None) -> int | None:
    """Bytes of `memory_limit`: an integer, `"2GB"` (2e9) or `"2GiB"` (2**31)."""
    if limit is None:
        return None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?\s*", limit)
        if not match:
            raise ValueError(
                f"memory_limit {limit!r}: expected bytes, or a text such as '2GB' or '2GiB'"
            )
        base = 1024 if match[3] else 1000
        return int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))
    if isinstance(limit, bool) or not isinstance(limit, (int, np.integer)):
        raise TypeError(f"memory_limit is a {type(limit).__name__}, expected int or str")
    if limit < 0:
        raise ValueError(f"memory_limit {limit} is negative")
    return int(limit)


def _check_groups(group2ctx: Any) -> dict[str, Context] | None:
    if not isinstance(group2ctx, dict | None):
        raise TypeError(f"group2ctx is {group2ctx!r}, expected a dict of group name to Context")
    for group, ctx in (group2ctx or {}).items():
        if not isinstance(ctx, Context):
            raise TypeError(f"group2ctx['{group}'] is a {type(ctx).__name__}, expected a Context")
    return group2ctx or None


def _check_shared(shared_exec: Any) -> Executor | None:
    if shared_exec is not None and not isinstance(shared_exec, Executor):
        raise TypeError(f"shared_exec is a {type(shared_exec).__name__}, expected an Executor")
    return shared_exec


def bind(
    symbol: Any, ctx: Any, args: Any, args_grad: Any, grad_req: Any, aux_states: Any, group2ctx:
    Any, shared_exec: Any, memory_limit: Any,
) -> Executor:  # fmt: skip
    """`Symbol.bind`."""
    names, aux_names = symbol.list_arguments(), symbol.list_auxiliary_states()
    _check_context(ctx)
    if isinstance(args_grad, dict):
        _warn_of_strangers("args_grad", args_grad, names)
    grads = None if args_grad is None else _arrays("args_grad", args_grad, names, True)
    reqs = _bind_reqs(grad_req, names, ValueError)
    if grads is None:
        reqs = ["null"] * len(names)
    else:
        reqs = ["null" if g is None else r for g, r in zip(grads, reqs, strict=True)]
    bound = {
        "ctx": ctx,
        "group2ctx": _check_groups(group2ctx),
        "args": _arrays("args", args, names, False),
        "grads": grads,
        "reqs": reqs,
        "aux": _arrays("aux_states", [] if aux_states is None else aux_states, aux_names, False),
        "shared": _check_shared(shared_exec),
        "limit": _limit_bytes(memory_limit),
    }
    return bind_handle(symbol, bound)


def _simple_reqs(where: str, grad_req: Any, names: list[str]) -> list[str]:
    if grad_req is None:
        return ["null"] * len(names)
    if isinstance(grad_req, (list, tuple, dict)) and not grad_req:
        raise MXNetError(f"grad_req in {where} cannot be an empty {type(grad_req).__name__}")
    return _bind_reqs(grad_req, names, MXNetError)


def _known_shapes(where: str, given: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes given by name, without those that are None: to be inferred.

    Raises
    ------
    TypeError
        Something else than a tuple of integers.
    """
    shapes = {}
    for name, shape in given.items():
        if shape is None:
            continue
        is_list = isinstance(shape, (tuple, list))
        if not is_list or not all(isinstance(d, SupportsIndex) for d in shape):
            raise TypeError(
                f"{where}: invalid shape {shape!r} of '{name}': expected a tuple of integers"
            )
        shapes[name] = tuple(shape)
    return shapes


def _facts(
    where: str, given: dict[str, Any], type_dict: dict[str, Any] | None, ctx: Any, group2ctx: Any
) -> tuple[dict[str, Any], dict[str, Any], Any, Any, bool]:
    """What the core is told: shapes and dtypes by name, devices, and whether 0 is an extent."""
    shapes = {k: to_core_shape(v) for k, v in _known_shapes(where, given).items()}
    types = {k: np.dtype(v).name for k, v in (type_dict or {}).items() if v is not None}
    return shapes, types, ctx, group2ctx or None, is_np_shape()


def _bind_error(error: MXNetError, given: dict[str, Any]) -> MXNetError:
    lines = ["simple_bind error. Arguments:", *(f"{k}: {v}" for k, v in given.items()), str(error)]
    return type(error)("\n".join(lines))


def simple_bind(
    symbol: Any, ctx: Any, grad_req: Any, type_dict: Any, stype_dict: Any, group2ctx: Any,
    shared_arg_names: Any, shared_exec: Any, shared_buffer: Any, memory_limit: Any, given:
    dict[str, Any],
) -> Executor:  # fmt: skip
    """`Symbol.simple_bind`."""
    _check_context(ctx)
    _check_groups(group2ctx)
    _check_shared(shared_exec)
    if stype_dict and any(s != "default" for s in stype_dict.values()):
        raise NotImplementedError(
            f"stype_dict {stype_dict}: only the storage type 'default' exists"
        )
    names = _argument_names(symbol)
    reqs = _simple_reqs("simple_bind", grad_req, names)
    try:
        facts = _facts("simple_bind", given, type_dict, ctx, group2ctx)
        wanted, wanted_aux = symbol._handle.arrays_to_bind(facts)
    except MXNetError as error:
        raise _bind_error(error, given) from error
    pool = _SharedArrays(shared_arg_names, shared_exec, shared_buffer)
    args, grads = [], []
    for name, array, req in zip(names, wanted, reqs, strict=True):
        args.append(pool.argument(name, *array))
        grads.append(None if req == "null" else pool.gradient(name, *array))
    aux_names = symbol.list_auxiliary_states()
    aux = [pool.auxiliary(n, *array) for n, array in zip(aux_names, wanted_aux, strict=True)]
    bound = {
        "ctx": ctx, "group2ctx": group2ctx or None, "args": args, "grads": grads, "reqs": reqs,
        "aux": aux, "shared": shared_exec, "limit": _limit_bytes(memory_limit),
    }  # fmt: skip
    return bind_handle(symbol, bound)


class _SharedArrays:
    """Where simple_bind takes its arrays from: another executor, a buffer dict, or fresh memory."""

    def __init__(
        self, names: Any, executor: Executor | None, buffer: dict[str, NDArray] | None
    ) -> None:
        if names is not None and executor is None and buffer is None:
            names = None
        self._names = None if names is None else set(names)
        self._executor = executor
        self._buffer = buffer

    def argument(self, name: str, shape: Any, dtype: Any, ctx: Context) -> NDArray:
        if self._names is not None and name in self._names and self._executor is not None:
            return self._taken(name, self._executor.arg_dict, shape, dtype)
        if (self._names is not None and name not in self._names) or self._names is None:
            return self._buffered(name, shape, dtype, ctx)
        return zeros(shape, ctx=ctx, dtype=dtype)

    def gradient(self, name: str, shape: Any, dtype: Any, ctx: Context) -> NDArray:
        if self._names is not None and name in self._names and self._executor is not None:
            own = self._executor.grad_dict.get(name)
            if own is not None:
                return self._taken(name, self._executor.grad_dict, shape, dtype)  # type: ignore[arg-type]
            return zeros(shape, ctx=ctx, dtype=dtype)
        if self._names is not None and name in self._names:
            return zeros(shape, ctx=ctx, dtype=dtype)
        return self._buffered(f"grad of {name}", shape, dtype, ctx)

    def auxiliary(self, name: str, shape: Any, dtype: Any, ctx: Context) -> NDArray:
        if self._executor is not None and self._names is not None:
            own = self._executor.aux_dict.get(name)
            if own is not None and own.shape == shape and own.dtype == dtype:
                return own
        return zeros(shape, ctx=ctx, dtype=dtype)

    def _taken(self, name: str, arrays: dict[str, NDArray], shape: Any, dtype: Any) -> NDArray:
        if name not in arrays:
            raise MXNetError(f"shared_exec has no argument '{name}'")
        arr = arrays[name]
        if arr.shape != shape or arr.dtype != dtype:
            raise MXNetError(
                f"argument '{name}' of shared_exec has shape {arr.shape} and dtype "
                f"{np.dtype(arr.dtype).name}, "
                f"expected {shape} and {np.dtype(dtype).name}"
            )
        return arr

    def _buffered(self, key: str, shape: Any, dtype: Any, ctx: Context) -> NDArray:
        if self._buffer is None:
            return zeros(shape, ctx=ctx, dtype=dtype)
        size = int(np.prod(shape))
        kept = self._buffer.get(key)
        if kept is not None and kept.size >= size and kept.dtype == dtype and kept.context == ctx:
            return kept if kept.shape == shape else kept.reshape((-1,))[:size].reshape(shape)
        fresh = self._buffer[key] = zeros(shape, ctx=ctx, dtype=dtype)
        return fresh


def plan_of_symbol(
    where: str,
    symbol: Any,
    grad_req: Any,
    type_dict: Any,
    memory_limit: Any,
    group2ctx: Any,
    given: dict[str, Any],
) -> MemoryPlan:
    """The plan of `Symbol.memory_plan` and `Symbol.dump_passes`; only for the second it keeps the
    graph after every pass as text. Variables that share a name share what is given for it.
    """
    reqs = _simple_reqs(where, grad_req, symbol.list_arguments())
    facts = _facts(where, given, type_dict, None, _check_groups(group2ctx))
    limit, dump = _limit_bytes(memory_limit), where == "dump_passes"
    return MemoryPlan(symbol._handle.memory_plan(facts, reqs, limit, dump))
