"""`Executor`: a symbol bound to arrays, and the two ways to bind one.

One executor may be used by several threads at once: the first thread that calls `forward` works in the
executor's own memory, any other thread in a lane of its own, made when first needed. A thread sees the
inputs it gave to `forward(**kw)` and the outputs of its own last forward; parameters and auxiliary
states are shared, and gradients are written one run after the other.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from . import _core
from .base import MXNetError
from .context import Context
from .ndarray import NDArray, array, zeros

__all__ = ["Executor"]

_REQS = ("null", "write", "add")


class Executor:
    """A bound symbol. Made by `Symbol.bind` and `Symbol.simple_bind`.

    Attributes
    ----------
    arg_arrays, aux_arrays : list of NDArray
        Arguments and auxiliary states in the order of the symbol's lists.
    grad_arrays : list of NDArray or None
        Gradients in the order of the arguments, None where there is none.

    Examples
    --------
    >>> import rsnet as mx
    >>> exe = (mx.sym.Variable("x") * 2).simple_bind(mx.cpu(), x=(2,))
    >>> exe.forward(x=mx.nd.ones((2,)))[0].asnumpy()
    array([2., 2.], dtype=float32)
    """

    def __init__(self, handle: Any, symbol: Any, bound: dict[str, Any]) -> None:
        self._handle = handle
        self._symbol = symbol
        self._bound = bound
        self.arg_arrays: list[NDArray] = bound["args"]
        self.grad_arrays: list[NDArray | None] = bound["grads"]
        self.aux_arrays: list[NDArray] = bound["aux"]
        self._arg_names = symbol.list_arguments()
        self._aux_names = symbol.list_auxiliary_states()
        self._output_names = symbol.list_outputs()
        self._index = {name: i for i, name in enumerate(self._arg_names)}
        self._monitor: Any = None

    # ---- running -------------------------------------------------------------------------------

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Computes the outputs.

        Parameters
        ----------
        is_train : bool
            Is this a step of training (dropout acts, moving averages move)?
        **kwargs : NDArray or array_like
            Values to copy into arguments first.

        Returns
        -------
        list of NDArray
            The outputs: the same arrays on every call of the same thread.

        Raises
        ------
        TypeError
            A name that is no argument.
        ValueError
            A value of another shape than the argument's.
        """
        if not kwargs:
            return self._handle.forward(bool(is_train), (), ())
        indices, values = self._inputs(kwargs)
        return self._handle.forward(bool(is_train), indices, values)

    def _inputs(self, given: dict[str, Any]) -> tuple[list[int], list[NDArray]]:
        if len(self._index) != len(self._arg_names):
            self._by_name(self._arg_names, self.arg_arrays)  # says which names are double
        indices, values = [], []
        for name, value in given.items():
            index = self._index.get(name)
            if index is None:
                raise TypeError(f"Unknown argument {name}; the arguments are {self._arg_names}")
            bound = self.arg_arrays[index]
            if not isinstance(value, NDArray):
                value = array(np.asarray(value), dtype=bound.dtype)
            if value.shape != bound.shape:
                raise ValueError(
                    f"Shape not match! Argument {name}, need: {bound.shape}, received: {value.shape}"
                )
            indices.append(index)
            values.append(value)
        return indices, values

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Computes the gradients of the last `forward(is_train=True)` of this thread.

        Parameters
        ----------
        out_grads : NDArray, list or dict of NDArray, optional
            Gradients of the outputs: in their order, or by output name. Not needed where the outputs
            are losses.
        is_train : bool
            Passed to the operators.

        Raises
        ------
        MXNetError
            An output that is no loss has no gradient; a gradient has another shape or dtype than its
            output; there was no forward, or another executor used the shared memory since.
        """
        self._handle.backward(bool(is_train), self._head_gradients(out_grads))

    def _head_gradients(self, given: Any) -> list[NDArray | None]:
        if given is None:
            return []
        if isinstance(given, NDArray):
            return [given]
        if isinstance(given, dict):
            unknown = [k for k in given if k not in self._output_names]
            if unknown:
                raise ValueError(f"out_grads has {unknown}; the outputs are {self._output_names}")
            return [given.get(name) for name in self._output_names]
        given = list(given)
        for i, grad in enumerate(given):
            if grad is not None and not isinstance(grad, NDArray):
                raise TypeError(
                    f"inputs must be NDArray: out_grads[{i}] is a {type(grad).__name__}"
                )
        return given

    def partial_forward(self, is_train: bool = False, step: int = 0) -> int:
        """Runs one operator of the forward pass.

        Parameters
        ----------
        step : int
            Which one, counted from 0 in execution order.

        Returns
        -------
        int
            Operators left after it; 0 when the outputs are there.
        """
        return self._handle.partial_forward(bool(is_train), int(step))

    def set_monitor_callback(self, callback: Any, monitor_all: bool = False) -> None:
        """Calls `callback(name, array)` with every output of every operator, one operator at a time.

        Parameters
        ----------
        callback : callable or None
            Function of the entry's name and its array; None takes the monitor away. The arrays stay
            valid until the executor runs again.
        monitor_all : bool
            Also with the inputs.
        """
        self._handle.set_monitor(callback, bool(monitor_all))

    # ---- arrays --------------------------------------------------------------------------------

    @property
    def outputs(self) -> list[NDArray]:
        """The outputs of this thread's last forward."""
        return self._handle.outputs()

    @staticmethod
    def _by_name(names: list[str], arrays: list) -> dict[str, Any]:
        found = dict(zip(names, arrays))
        if len(found) != len(names):
            double = sorted({n for n in names if names.count(n) > 1})
            raise ValueError(f"Duplicate names detected, {double} in {names}")
        return found

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        """Arguments by name; ValueError when names are double."""
        return self._by_name(self._arg_names, self.arg_arrays)

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """Gradients by argument name; ValueError when names are double."""
        return self._by_name(self._arg_names, self.grad_arrays or [None] * len(self._arg_names))

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        """Auxiliary states by name; ValueError when names are double."""
        return self._by_name(self._aux_names, self.aux_arrays)

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """Outputs by name; ValueError when names are double."""
        return self._by_name(self._output_names, self.outputs)

    def copy_params_from(
        self,
        arg_params: dict[str, NDArray],
        aux_params: dict[str, NDArray] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copies values into arguments and auxiliary states, cast to their dtypes.

        Raises
        ------
        ValueError
            A name that is not there (unless `allow_extra_params`), or another shape.
        """
        for what, given, own in [
            ("arguments", arg_params, self.arg_dict),
            ("auxiliary states", aux_params or {}, self.aux_dict),
        ]:
            for name, value in given.items():
                if name in own:
                    if tuple(value.shape) != own[name].shape:
                        raise ValueError(
                            f"parameter '{name}' has shape {tuple(value.shape)}, expected {own[name].shape}"
                        )
                    own[name][:] = value
                elif not allow_extra_params:
                    raise ValueError(f'Find name "{name}" that is not in the {what}')

    # ---- other shapes --------------------------------------------------------------------------

    def reshape(
        self,
        partial_shaping: bool = False,
        allow_up_sizing: bool = False,
        **kwargs: tuple[int, ...],
    ) -> Executor:
        """An executor for other input shapes that shares this one's memory.

        Parameters
        ----------
        partial_shaping : bool
            May arguments that are not named change their shape?
        allow_up_sizing : bool
            May arrays grow (they are then new)?
        **kwargs : tuple
            New shapes by argument name.

        Raises
        ------
        ValueError
            A change that is not allowed, or a name that is no argument.
        """
        unknown = [k for k in kwargs if k not in self._index]
        if unknown:
            raise ValueError(f"{unknown} not in the arguments {self._arg_names}")
        arg_shapes, _, aux_shapes = self._symbol.infer_shape(**kwargs)
        if arg_shapes is None:
            raise ValueError("Insufficient argument shapes provided.")
        args, grads = [], []
        old_grads = self.grad_arrays or [None] * len(self._arg_names)
        for name, shape, arr, grad in zip(self._arg_names, arg_shapes, self.arg_arrays, old_grads):
            may = partial_shaping or name in kwargs
            args.append(_resized(name, arr, shape, may, allow_up_sizing))
            grads.append(
                None if grad is None else _resized(name, grad, shape, may, allow_up_sizing)
            )
        aux = [
            _resized(name, arr, shape, partial_shaping, allow_up_sizing)
            for name, shape, arr in zip(self._aux_names, aux_shapes, self.aux_arrays)
        ]
        return _make(
            self._symbol, self._bound | {"args": args, "grads": grads, "aux": aux, "shared": self}
        )

    # ---- the plan ------------------------------------------------------------------------------

    def memory_plan(self) -> Any:
        """The memory plan in use, see `Symbol.memory_plan`."""
        return self._handle.memory_plan()

    def debug_str(self) -> str:
        """The whole graph in execution order, and the memory it takes."""
        return self._handle.debug_str()

    def get_optimized_symbol(self) -> Any:
        """The forward graph that is run, as a symbol."""
        from .symbol import Symbol

        return Symbol(self._handle.optimized_symbol())


def _resized(name: str, arr: NDArray, shape: tuple[int, ...], may: bool, grow: bool) -> NDArray:
    """`arr` for another shape: itself, a view of its first bytes, or a new array."""
    if arr.shape == shape:
        return arr
    if not may:
        raise ValueError(
            f"Shape of unspecified array arg:{name} changed from {arr.shape} to {shape}. This can cause "
            "the new executor to not share parameters with the old one. Please check for error in "
            "network. If this is intended, set partial_shaping=True to suppress this warning."
        )
    size = int(np.prod(shape))
    if size <= arr.size:
        return arr.reshape((-1,))[:size].reshape(shape)
    if not grow:
        raise ValueError(
            f"New shape of arg:{name} larger than original: {shape} instead of {arr.shape}. First making "
            "a big executor and then down sizing it is more efficient than the reverse. If you really "
            "want to up size, set allow_up_sizing=True to enable allocation of new arrays."
        )
    return zeros(shape, ctx=arr.context, dtype=arr.dtype)


def _check_context(ctx: Any) -> Context:
    if not isinstance(ctx, Context):
        raise TypeError(f"Context type error: ctx is a {type(ctx).__name__}, expected a Context")
    return ctx


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
    for name, value in zip(names, found):
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
    for name, req in zip(names, reqs):
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


def _make(symbol: Any, bound: dict[str, Any]) -> Executor:
    shared = bound["shared"]
    handle = _core.ExecutorHandle.bind(
        symbol._handle,
        bound["ctx"],
        bound["group2ctx"],
        bound["args"],
        bound["grads"] or [None] * len(bound["args"]),
        bound["reqs"],
        bound["aux"],
        None if shared is None else shared._handle,
        bound["limit"],
    )
    return Executor(handle, symbol, bound)


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
    symbol: Any, ctx: Any, args: Any, args_grad: Any, grad_req: Any, aux_states: Any, group2ctx: Any,
    shared_exec: Any, memory_limit: Any,
) -> Executor:  # fmt: skip
    """`Symbol.bind`."""
    names, aux_names = symbol.list_arguments(), symbol.list_auxiliary_states()
    _check_context(ctx)
    grads = None if args_grad is None else _arrays("args_grad", args_grad, names, True)
    reqs = _bind_reqs(grad_req, names, ValueError)
    if grads is None:
        reqs = ["null"] * len(names)
    else:
        reqs = ["null" if g is None else r for g, r in zip(grads, reqs)]
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
    return _make(symbol, bound)


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
    unknown = [n for n, t in zip(names, args) if t is None]
    while unknown:
        known[unknown[0]] = np.float32
        args, _, aux = symbol.infer_type_partial(**known)
        unknown = [n for n, t in zip(names, args) if t is None and n not in known]
    return [t or np.float32 for t in args], [t or np.float32 for t in aux]


def _bind_error(error: Exception | str, given: dict[str, Any]) -> MXNetError:
    lines = ["simple_bind error. Arguments:", *(f"{k}: {v}" for k, v in given.items()), str(error)]
    return MXNetError("\n".join(lines))


def _shapes(symbol: Any, given: dict[str, Any]) -> tuple[list, list]:
    """Shapes of arguments and auxiliary states, or the error of simple_bind."""
    try:
        args, _, aux, complete = symbol._infer_shape(True, (), _known_shapes(given))
    except MXNetError as error:
        raise _bind_error(error, given) from error
    if not complete:
        from .symbol.infer import to_core_shape

        pairs = [*zip(symbol.list_arguments(), args), *zip(symbol.list_auxiliary_states(), aux)]
        unknown = [(n, to_core_shape(s)) for n, s in pairs]
        listed = ", ".join(f"{n}: {s}" for n, s in unknown if s is None or -1 in s)
        raise _bind_error(
            "InferShape pass cannot decide shapes for the following arguments (-1 means unknown "
            f"dimensions). Please consider providing them as inputs:\n{listed}, ",
            given,
        )
    return args, aux


def simple_bind(
    symbol: Any, ctx: Any, grad_req: Any, type_dict: Any, stype_dict: Any, group2ctx: Any,
    shared_arg_names: Any, shared_exec: Any, shared_buffer: Any, memory_limit: Any, given: dict[str, Any],
) -> Executor:  # fmt: skip
    """`Symbol.simple_bind`."""
    _check_context(ctx)
    _check_groups(group2ctx)
    _check_shared(shared_exec)
    if stype_dict and any(s != "default" for s in stype_dict.values()):
        raise NotImplementedError(
            f"stype_dict {stype_dict}: only the storage type 'default' exists"
        )
    names, aux_names = symbol.list_arguments(), symbol.list_auxiliary_states()
    reqs = _simple_reqs(grad_req, names)
    arg_shapes, aux_shapes = _shapes(symbol, given)
    arg_types, aux_types = _types(symbol, type_dict)
    devices = _devices(symbol, ctx, group2ctx)
    pool = _SharedArrays(shared_arg_names, shared_exec, shared_buffer)
    args, grads = [], []
    for name, shape, dtype, req in zip(names, arg_shapes, arg_types, reqs):
        where = devices.get(name, ctx)
        args.append(pool.argument(name, shape, dtype, where))
        grads.append(None if req == "null" else pool.gradient(name, shape, dtype, where))
    aux = [
        pool.auxiliary(name, shape, dtype, devices.get(name, ctx))
        for name, shape, dtype in zip(aux_names, aux_shapes, aux_types)
    ]
    bound = {
        "ctx": ctx, "group2ctx": group2ctx or None, "args": args, "grads": grads, "reqs": reqs,
        "aux": aux, "shared": shared_exec, "limit": _limit_bytes(memory_limit),
    }  # fmt: skip
    return _make(symbol, bound)


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
                return self._taken(name, self._executor.grad_dict, shape, dtype)
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
                f"argument '{name}' of shared_exec has shape {arr.shape} and dtype {np.dtype(arr.dtype).name}, "
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
    symbol: Any, grad_req: Any, type_dict: Any, memory_limit: Any, given: dict[str, Any]
) -> Any:
    """`Symbol.memory_plan`."""
    reqs = _simple_reqs(grad_req, symbol.list_arguments())
    from .symbol.infer import to_core_shape

    shapes = {k: to_core_shape(v) for k, v in _known_shapes(given).items()}
    types = {k: np.dtype(v).name for k, v in (type_dict or {}).items() if v is not None}
    return symbol._handle.memory_plan(shapes, types, reqs, _limit_bytes(memory_limit))
