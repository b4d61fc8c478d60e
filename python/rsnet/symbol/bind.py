"""Planning and binding a symbol: to given arrays, or to arrays made from inferred shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import _core
from ..base import MXNetError, limit_bytes, numpy_dtype, shown
from ..context import Context, current_context
from ..executor import Executor
from ..ndarray import NDArray, zeros
from ..ndarray._stepwise import StepwiseGraph
from ..util import is_np_shape
from .bind_arguments import (
    argument_names,
    arrays,
    bind_reqs,
    check_context,
    check_groups,
    check_shared,
    simple_reqs,
    warn_of_unknown,
)
from .infer import check_shape, to_core_shape

if TYPE_CHECKING:
    from ..plan import MemoryPlan
    from .symbol import Symbol


class Binding:
    """The methods of a symbol that plan and bind."""

    __slots__ = ()
    _handle: _core.SymbolHandle

    def memory_plan(
        self,
        grad_req: Any = "write",
        type_dict: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        group2ctx: dict[str, Any] | None = None,
        **shapes: tuple[int, ...],
    ) -> MemoryPlan:
        """The plan that binding would use, without binding or allocating anything.

        Parameters
        ----------
        grad_req, type_dict, group2ctx, **shapes
            As for `simple_bind`, on the current context.
        memory_limit : int or str, optional
            Maximum bytes of internal entries on all devices: an integer, `"2GB"` (2e9) or `"2GiB"`
            (2**31). Entries are recomputed as far as the limit requires, in addition to those with
            the attribute ``force_mirroring='True'`` (`AttrScope` or ``attr=``).

        Returns
        -------
        MemoryPlan
            `arena_bytes`, `output_bytes`, `lower_bound_bytes`, `no_sharing_bytes`,
            `recomputed_nodes`, `entries`; `str()` gives a table and `draw(path)` a picture.
        """
        return self._plan("memory_plan", grad_req, type_dict, memory_limit, group2ctx, shapes)

    def dump_passes(
        self,
        grad_req: Any = "write",
        type_dict: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        group2ctx: dict[str, Any] | None = None,
        **shapes: tuple[int, ...],
    ) -> dict[str, str]:
        """The graph after every pass that changes it, as text, by the name of the pass.

        Parameters
        ----------
        grad_req, type_dict, memory_limit, group2ctx, **shapes
            As for `memory_plan`.

        Returns
        -------
        dict of str to str
            In the order of the passes; one line per node: number, operator, name, inputs as
            `node:output`, and device.

        Examples
        --------
        >>> import rsnet as mx
        >>> x = mx.sym.Variable("x")
        >>> dumps = (mx.sym.exp(x) + mx.sym.exp(x)).dump_passes(x=(2,))
        >>> list(dumps)
        ['composition', 'merge_common', 'gradient', 'devices', 'accumulate']
        >>> dumps["merge_common"].count("exp")
        2
        """
        plan = self._plan("dump_passes", grad_req, type_dict, memory_limit, group2ctx, shapes)
        return dict(plan._handle.dumps())

    # ---- binding -------------------------------------------------------------------------------

    def simple_bind(
        self,
        ctx: Any,
        grad_req: Any = "write",
        type_dict: dict[str, Any] | None = None,
        stype_dict: dict[str, str] | None = None,
        group2ctx: dict[str, Any] | None = None,
        shared_arg_names: list[str] | None = None,
        shared_exec: Any = None,
        shared_buffer: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        **kwargs: Any,
    ) -> Executor:
        """Infers shapes, makes zero-filled arrays and binds.

        Parameters
        ----------
        ctx : Context
            Default device.
        grad_req : str, list or dict
            `"null"`, `"write"` or `"add"`: for all arguments, in their order, or by name (missing:
            null).
        type_dict : dict of str to dtype, optional
            Known dtypes; an unknown dtype is float32.
        group2ctx : dict of str to Context, optional
            Devices of the groups named by the attribute `ctx_group`.
        shared_arg_names, shared_exec, shared_buffer
            Arguments to take from another executor, an executor whose memory to share, and a dict
            of arrays to reuse and add to.
        memory_limit : int or str, optional
            Maximum bytes of internal entries, see `memory_plan`.
        **kwargs : tuple
            Shapes by argument name.

        Returns
        -------
        Executor
        """
        ctx, group2ctx = check_context(ctx), check_groups(group2ctx)
        check_shared(shared_exec)
        if stype_dict and any(s != "default" for s in stype_dict.values()):
            raise NotImplementedError(
                f"invalid stype_dict {stype_dict}: expected the storage type 'default'"
            )
        names = argument_names(self._handle.list_arguments())
        reqs = simple_reqs("simple_bind", grad_req, names)
        try:
            facts = _facts("simple_bind", kwargs, type_dict, ctx, group2ctx)
            wanted, wanted_aux = self._handle.arrays_to_bind(facts)
        except MXNetError as error:
            raise _bind_error(error, kwargs) from error
        pool = _SharedArrays(shared_arg_names, shared_exec, shared_buffer)
        args, grads = [], []
        for name, array, req in zip(names, wanted, reqs, strict=True):
            args.append(pool.argument(name, *array))
            grads.append(None if req == "null" else pool.gradient(name, *array))
        aux_names = self._handle.list_auxiliary_states()
        aux = [pool.auxiliary(n, *array) for n, array in zip(aux_names, wanted_aux, strict=True)]
        bound = {
            "ctx": ctx, "group2ctx": group2ctx or None, "args": args, "grads": grads, "reqs": reqs,
            "aux": aux, "shared": shared_exec, "limit": limit_bytes(memory_limit),
        }  # fmt: skip
        return Executor.bound_to(self, bound)

    def bind(
        self,
        ctx: Any,
        args: Any,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
        group2ctx: dict[str, Any] | None = None,
        shared_exec: Any = None,
        memory_limit: int | str | None = None,
    ) -> Executor:
        """Binds to given arrays.

        Parameters
        ----------
        ctx : Context
            Default device.
        args, args_grad, aux_states : list or dict of NDArray
            Arrays in the order of the arguments, or by name; gradients may be missing (no
            gradient).
        grad_req : str, list or dict
            As for `simple_bind`.
        shared_exec : Executor, optional
            Executor whose memory to share.

        Returns
        -------
        Executor
        """
        names, aux_names = self._handle.list_arguments(), self._handle.list_auxiliary_states()
        ctx = check_context(ctx)
        if isinstance(args_grad, dict):
            warn_of_unknown("args_grad", args_grad, names)
        grads = None if args_grad is None else arrays("args_grad", args_grad, names, True)
        reqs = bind_reqs(grad_req, names, ValueError)
        if grads is None:
            reqs = ["null"] * len(names)
        else:
            reqs = ["null" if g is None else r for g, r in zip(grads, reqs, strict=True)]
        bound = {
            "ctx": ctx,
            "group2ctx": check_groups(group2ctx),
            "args": arrays("args", args, names, False),
            "grads": grads,
            "reqs": reqs,
            "aux": arrays("aux_states", [] if aux_states is None else aux_states, aux_names, False),
            "shared": check_shared(shared_exec),
            "limit": limit_bytes(memory_limit),
        }
        return Executor.bound_to(self, bound)

    def eval(self, ctx: Any = None, **kwargs: Any) -> list[Any]:
        """Binds to the given arrays, runs forward and returns the outputs.

        A symbol with `contrib.boolean_mask`, which cannot be bound, runs operator by operator.

        Parameters
        ----------
        ctx : Context, optional
            Device; the current one by default.
        **kwargs : NDArray
            Arguments and auxiliary states by name.

        Returns
        -------
        list of NDArray

        Raises
        ------
        ValueError
            An argument or auxiliary state is missing.
        """
        if self._handle.shaped_by_numbers():
            given = arrays("args", kwargs, self._handle.list_inputs(), False)
            graph = StepwiseGraph("eval", cast("Symbol", self))
            return graph.infer(cast("list[NDArray]", given), ctx or current_context())
        aux = {
            name: kwargs[name] for name in self._handle.list_auxiliary_states() if name in kwargs
        }
        return self.bind(ctx or current_context(), kwargs, aux_states=aux or None).forward()

    def _plan(
        self, where: str, grad_req: Any, type_dict: Any, memory_limit: Any, group2ctx: Any,
        shapes: dict[str, Any],
    ) -> MemoryPlan:  # fmt: skip
        """The plan; only `dump_passes` keeps the graph after every pass as text.

        Variables that share a name share what is given for it.
        """
        from ..plan import MemoryPlan  # it would add to the time of importing rsnet

        names = self._handle.list_arguments()
        reqs = simple_reqs(where, grad_req, names)
        facts = _facts(where, shapes, type_dict, None, check_groups(group2ctx))
        limit, dump = limit_bytes(memory_limit), where == "dump_passes"
        return MemoryPlan(self._handle.memory_plan(facts, reqs, limit, dump))


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
        check_shape(where, name, shape)
        shapes[name] = tuple(shape)
    return shapes


def _facts(
    where: str, given: dict[str, Any], type_dict: dict[str, Any] | None, ctx: Any, group2ctx: Any
) -> tuple[dict[str, Any], dict[str, Any], Any, Any, bool]:
    """What the core is given: shapes and dtypes by name, devices, and whether 0 is an extent."""
    shapes = {k: to_core_shape(v) for k, v in _known_shapes(where, given).items()}
    types = {
        k: numpy_dtype(v, f"dtype of {shown(k)}", f"{where}: ").name
        for k, v in (type_dict or {}).items()
        if v is not None
    }
    return shapes, types, ctx, group2ctx or None, is_np_shape()


def _bind_error(error: MXNetError, given: dict[str, Any]) -> MXNetError:
    shapes = (f"{name}: {shown(shape)}" for name, shape in given.items())
    # Where the error of a Python operator was raised is in its notes.
    lines = ["simple_bind error. Arguments:", *shapes, str(error), *getattr(error, "__notes__", ())]
    return type(error)("\n".join(lines))


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
            if self._executor.grad_dict.get(name) is not None:
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

    def _taken(
        self, name: str, held: Mapping[str, NDArray | None], shape: Any, dtype: Any
    ) -> NDArray:
        arr = held.get(name)
        if arr is None:
            raise MXNetError(f"invalid shared_exec: expected one that has the argument '{name}'")
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
