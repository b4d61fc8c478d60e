"""The two ways to bind a symbol: to given arrays, or to arrays made from inferred shapes."""

from __future__ import annotations

import json
import re
from typing import Any

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
        if not (isinstance(value, NDArray) or value is None and allow_missing):
            raise TypeError(f"`{what}`: '{name}' is a {type(value).__name__}, expected an NDArray")
    return found


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


def _simple_reqs(grad_req: Any, names: list[str]) -> list[str]:
    if grad_req is None:
        return ["null"] * len(names)
    if isinstance(grad_req, (list, tuple, dict)) and not grad_req:
        raise MXNetError(f"grad_req in simple_bind cannot be an empty {type(grad_req).__name__}")
    return _bind_reqs(grad_req, names, MXNetError)


def _known_shapes(given: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {k: tuple(v) for k, v in given.items() if isinstance(v, (tuple, list))}


def _types(symbol: Any, type_dict: dict[str, Any] | None) -> tuple[list, list]:
    """Dtypes of arguments and auxiliary states; float32 where nothing is known."""
    names = symbol.list_arguments()
    known = {k: v for k, v in (type_dict or {}).items() if v is not None}
    args, _, aux = symbol.infer_type_partial(**known)
    unknown = [n for n, t in zip(names, args, strict=True) if t is None]
    while unknown:
        known[unknown[0]] = np.float32
        args, _, aux = symbol.infer_type_partial(**known)
        unknown = [n for n, t in zip(names, args, strict=True) if t is None and n not in known]
    return [t or np.float32 for t in args], [t or np.float32 for t in aux]


def _bind_error(error: Exception | str, given: dict[str, Any]) -> MXNetError:
    lines = ["simple_bind error. Arguments:", *(f"{k}: {v}" for k, v in given.items()), str(error)]
    return MXNetError("\n".join(lines))


def _undecided(symbol: Any, given: dict[str, Any]) -> str:
    """The first operator whose output has no shape although all variables have one."""
    inner = symbol.get_internals()
    _, shapes, _, _ = inner._infer_shape((), _known_shapes(given))
    known = [to_core_shape(s) for s in shapes]
    at = next((i for i, s in enumerate(known) if s is None or -1 in s), len(known) - 1)
    name = inner[at].name
    nodes = json.loads(symbol.tojson())["nodes"]
    op = next((node["op"] for node in nodes if node["name"] == name), "")
    return f"{op} '{name}': the shape of its output cannot be inferred"


def _shapes(symbol: Any, given: dict[str, Any]) -> tuple[list, list]:
    """Shapes of arguments and auxiliary states, or the error of simple_bind."""
    try:
        args, _, aux, complete = symbol._infer_shape((), _known_shapes(given))
    except MXNetError as error:
        raise _bind_error(error, given) from error
    if not complete:
        pairs = [
            *zip(symbol.list_arguments(), args, strict=True),
            *zip(symbol.list_auxiliary_states(), aux, strict=False),
        ]
        unknown = [(n, to_core_shape(s)) for n, s in pairs]
        listed = ", ".join(f"{n}: {s}" for n, s in unknown if s is None or -1 in s)
        if not listed:
            raise _bind_error(_undecided(symbol, given), given)
        raise _bind_error(
            "InferShape pass cannot decide shapes for the following arguments (-1 means unknown "
            f"dimensions). Please consider providing them as inputs:\n{listed}, ",
            given,
        )
    return args, aux


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
    names, aux_names = _argument_names(symbol), symbol.list_auxiliary_states()
    reqs = _simple_reqs(grad_req, names)
    arg_shapes, aux_shapes = _shapes(symbol, given)
    try:
        arg_types, aux_types = _types(symbol, type_dict)
    except MXNetError as error:
        raise _bind_error(error, given) from error
    devices = _devices(symbol, ctx, group2ctx)
    pool = _SharedArrays(shared_arg_names, shared_exec, shared_buffer)
    args, grads = [], []
    for name, shape, dtype, req in zip(names, arg_shapes, arg_types, reqs, strict=True):
        where = devices.get(name, ctx)
        args.append(pool.argument(name, shape, dtype, where))
        grads.append(None if req == "null" else pool.gradient(name, shape, dtype, where))
    aux = [
        pool.auxiliary(name, shape, dtype, devices.get(name, ctx))
        for name, shape, dtype in zip(aux_names, aux_shapes, aux_types, strict=True)
    ]
    bound = {
        "ctx": ctx, "group2ctx": group2ctx or None, "args": args, "grads": grads, "reqs": reqs,
        "aux": aux, "shared": shared_exec, "limit": _limit_bytes(memory_limit),
    }  # fmt: skip
    return bind_handle(symbol, bound)


def _devices(symbol: Any, ctx: Context, group2ctx: dict[str, Context] | None) -> dict[str, Context]:
    """Devices of variables by their attribute `ctx_group`."""
    if not group2ctx:
        return {}
    found = {}
    for name, attrs in symbol.attr_dict().items():
        group = attrs.get("ctx_group", attrs.get("__ctx_group__"))
        if group is not None:
            found[name] = group2ctx.get(group, ctx)
    return found


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
        if self._names is not None and name not in self._names or self._names is None:
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
    symbol: Any,
    grad_req: Any,
    type_dict: Any,
    memory_limit: Any,
    given: dict[str, Any],
    dump: bool = False,
) -> MemoryPlan:
    """`Symbol.memory_plan`; with `dump` the plan keeps the graph after every pass as text."""
    reqs = _simple_reqs(grad_req, symbol.list_arguments())
    shapes = {k: to_core_shape(v) for k, v in _known_shapes(given).items()}
    types = {k: np.dtype(v).name for k, v in (type_dict or {}).items() if v is not None}
    limit = _limit_bytes(memory_limit)
    handle = symbol._handle.memory_plan(shapes, types, reqs, limit, is_np_shape(), dump)
    return MemoryPlan(handle)
