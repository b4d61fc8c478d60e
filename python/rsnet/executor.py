"""`Executor`: a symbol bound to arrays, and the two ways to bind one.

One executor may be used by several threads at once: the first thread that calls `forward` works in
the executor's own memory, any other thread in memory of its own, made when first needed. A thread
sees the inputs it gave to `forward(**kw)` and the outputs of its own last forward; parameters and
auxiliary states are shared, and gradients are written one run after the other.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._numbers import integer
from .base import listed, shown
from .ndarray import NDArray, array, zeros

if TYPE_CHECKING:
    from .plan import MemoryPlan

__all__ = ["Executor"]


def _flag(function: str, is_train: Any) -> bool:
    """`is_train` as a bool; refuses arrays, which callers used to PyTorch pass by position."""
    if is_train is None or isinstance(is_train, (int, np.bool_, np.integer)):
        return bool(is_train)
    raise TypeError(
        f"{function}: invalid is_train {shown(is_train)}: expected a bool; pass data by name, as "
        f"in {function}(data=...)"
    )


def _weak_monitor(monitored: weakref.WeakMethod[Any]) -> Any:
    """Calls the method of an executor. The core holds this, and so keeps no executor alive."""

    def call(name: str, array: NDArray) -> None:
        known = monitored()
        if known is not None:
            known(name, array)

    return call


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

    def __init__(self, handle: _core.ExecutorHandle, symbol: Any, bound: dict[str, Any]) -> None:
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
        self._monitor_all = False

    @classmethod
    def bound_to(cls, symbol: Any, bound: dict[str, Any]) -> Executor:
        """The executor of a symbol over the arrays of `bound`, whose lists are checked already."""
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
        # What was shared is in the arrays and the handle: an executor that is given up is freed.
        return cls(handle, symbol, bound | {"shared": None})

    @property
    def _ctx(self) -> Any:
        """The device, for programs that bind again by hand."""
        return self._bound["ctx"]

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
            A name that is not an argument, or data by position.
        ValueError
            A value of another shape than the argument's.
        """
        if is_train is not True and is_train is not False:
            is_train = _flag("forward", is_train)
        if not kwargs:
            return self._handle.forward(bool(is_train))
        indices, values = self._inputs(kwargs)
        return self._handle.forward(bool(is_train), indices, values)

    def _inputs(self, given: dict[str, Any]) -> tuple[list[int], list[NDArray]]:
        if len(self._index) != len(self._arg_names):
            self._by_name(self._arg_names, self.arg_arrays)  # says which names are double
        indices, values = [], []
        for name, value in given.items():
            index = self._index.get(name)
            if index is None:
                known = ", ".join(self._arg_names)
                raise TypeError(f"unknown argument {name!r}: expected one of: {known}")
            bound = self.arg_arrays[index]
            if not isinstance(value, NDArray):
                value = array(np.asarray(value), dtype=bound.dtype)
            indices.append(index)
            values.append(value)
        return indices, values

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Computes the gradients of the last `forward(is_train=True)` of this thread.

        Parameters
        ----------
        out_grads : NDArray, list or dict of NDArray, optional
            Gradients of the outputs: in their order, or by output name. Not needed where the
            outputs are losses.
        is_train : bool
            Passed to the operators.

        Notes
        -----
        After a `forward` for inference, operators that differ in training (BatchNorm, Dropout)
        apply the rules of training to the values of inference, as MXNet's do. Such gradients are
        those of no function: call ``forward(is_train=True)``, or differentiate under
        ``autograd.record(train_mode=False)``.

        Raises
        ------
        MXNetError
            An output that is not a loss has no gradient; a gradient has another shape or dtype than
            its output; there was no forward, or another executor used the shared memory since.
        """
        if out_grads is None:
            self._handle.backward(bool(is_train))
        else:
            self._handle.backward(bool(is_train), self._head_gradients(out_grads))

    def _head_gradients(self, given: Any) -> list[NDArray | None]:
        if isinstance(given, NDArray):
            return [given]
        if isinstance(given, dict):
            unknown = [k for k in given if k not in self._output_names]
            if unknown:
                names = ", ".join(self._output_names)
                raise ValueError(f"invalid out_grads {unknown}: expected the outputs {names}")
            return [given.get(name) for name in self._output_names]
        grads = listed(given, "out_grads", "an NDArray, or a list or dict of them")
        for i, grad in enumerate(grads):
            if grad is not None and not isinstance(grad, NDArray):
                raise TypeError(f"invalid item {i} of out_grads {shown(grad)}: expected an NDArray")
        return grads

    def partial_forward(self, is_train: bool = False, step: int = 0) -> int:
        """Runs one operator of the forward pass. An output holds nothing in particular until its
        operator has run: its memory may be used for intermediate values.

        Parameters
        ----------
        step : int
            Which one, counted from 0 in execution order.

        Returns
        -------
        int
            Operators left after it; 0 when the outputs are there.

        Raises
        ------
        TypeError
            The step is not an integer.
        ValueError
            A negative step.
        MXNetError
            A step before those that it needs.
        """
        is_train = _flag("partial_forward", is_train)
        return self._handle.partial_forward(bool(is_train), integer("step", step, least=0))

    def set_monitor_callback(self, callback: Any, monitor_all: bool = False) -> None:
        """Calls `callback(name, array)` with every output of every operator, one operator at a
        time.

        Parameters
        ----------
        callback : callable or None
            Function of the entry's name and a copy of its array, which may be kept; None takes the
            monitor away.
        monitor_all : bool
            Also with the inputs.

        Raises
        ------
        TypeError
            What is given cannot be called.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"invalid callback {callback!r}: expected a function of name and array")
        self._monitor, self._monitor_all = callback, bool(monitor_all)
        monitored = callback and _weak_monitor(weakref.WeakMethod(self._monitored))
        self._handle.set_monitor(monitored, self._monitor_all)

    def _monitored(self, name: str, array: NDArray) -> None:
        if self._monitor is not None:
            self._monitor(name, array)

    # ---- arrays --------------------------------------------------------------------------------

    @property
    def outputs(self) -> list[NDArray]:
        """The outputs of this thread's last forward."""
        return self._handle.outputs()

    @staticmethod
    def _by_name(names: list[str], arrays: list[Any]) -> dict[str, Any]:
        found = dict(zip(names, arrays, strict=True))
        if len(found) != len(names):
            double = sorted({n for n in names if names.count(n) > 1})
            raise ValueError(
                f"duplicate names {double} in {names}: expected one array for each name"
            )
        return found

    @cached_property
    def arg_dict(self) -> dict[str, NDArray]:
        """Arguments by name; ValueError when names are double."""
        return self._by_name(self._arg_names, self.arg_arrays)

    @cached_property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """Gradients by argument name; ValueError when names are double."""
        return self._by_name(self._arg_names, self.grad_arrays or [None] * len(self._arg_names))

    @cached_property
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
        for name, params in (("arg_params", arg_params), ("aux_params", aux_params or {})):
            if not isinstance(params, Mapping):
                raise TypeError(f"invalid {name} {shown(params)}: expected a dict of NDArrays")
        changes: list[tuple[NDArray, NDArray]] = []
        for what, given, own in [
            ("arguments", arg_params, self.arg_dict),
            ("auxiliary states", aux_params or {}, self.aux_dict),
        ]:
            for name, value in given.items():
                if name in own:
                    if tuple(value.shape) != own[name].shape:
                        raise ValueError(
                            f"parameter '{name}' has shape {tuple(value.shape)}, expected "
                            f"{own[name].shape}"
                        )
                    changes.append((own[name], value))
                elif not allow_extra_params:
                    raise ValueError(
                        f'Find name "{name}" that is not in the {what}: expected one of '
                        f"{', '.join(own) or 'none'} (allow_extra_params=True ignores it)"
                    )
        for into, value in changes:  # which all fit
            into[:] = value

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
            A change that is not allowed, or a name that is not an argument.
        """
        unknown = [k for k in kwargs if k not in self._index]
        if unknown:
            names = ", ".join(self._arg_names)
            raise ValueError(f"reshape: invalid arguments {unknown}: expected any of: {names}")
        arg_shapes, _, aux_shapes = self._symbol.infer_shape(**kwargs)
        if arg_shapes is None:
            wanted = "those that determine the shapes of all arguments"
            raise ValueError(f"reshape: invalid shapes {kwargs}: expected {wanted}")
        args, grads = [], []
        old_grads = self.grad_arrays or [None] * len(self._arg_names)
        for name, shape, arr, grad in zip(
            self._arg_names, arg_shapes, self.arg_arrays, old_grads, strict=True
        ):
            may = partial_shaping or name in kwargs
            args.append(_resized(name, arr, shape, may, allow_up_sizing))
            grads.append(
                None if grad is None else _resized(name, grad, shape, may, allow_up_sizing)
            )
        aux = [
            _resized(name, arr, shape, partial_shaping, allow_up_sizing)
            for name, shape, arr in zip(self._aux_names, aux_shapes, self.aux_arrays, strict=True)
        ]
        made = Executor.bound_to(
            self._symbol, self._bound | {"args": args, "grads": grads, "aux": aux, "shared": self}
        )
        if self._monitor is not None:
            made.set_monitor_callback(self._monitor, self._monitor_all)
        return made

    # ---- the plan ------------------------------------------------------------------------------

    def memory_plan(self) -> MemoryPlan:
        """The memory plan in use, see `Symbol.memory_plan`."""
        from .plan import MemoryPlan  # it would add to the time of importing rsnet

        return MemoryPlan(self._handle.memory_plan())

    def debug_str(self) -> str:
        """The whole graph in execution order, and the memory it takes."""
        return self._handle.debug_str()

    def get_optimized_symbol(self) -> Any:
        """The forward graph that is run, as a symbol."""
        return type(self._symbol)(self._handle.optimized_symbol())


def _resized(name: str, arr: NDArray, shape: tuple[int, ...], may: bool, grow: bool) -> NDArray:
    """`arr` for another shape: itself, a view of its first bytes, or a new array."""
    if arr.shape == shape:
        return arr
    if not may:
        raise ValueError(
            f"reshape: invalid shape {shape} of '{name}', which is not given: expected {arr.shape} "
            "as before, so that both executors share it (partial_shaping=True allows another)"
        )
    size = int(np.prod(shape))
    if size <= arr.size:
        return arr.reshape((-1,))[:size].reshape(shape)
    if not grow:
        raise ValueError(
            f"reshape: invalid shape {shape} of '{name}': expected one that has room in the array "
            f"of shape {arr.shape}; allow_up_sizing=True makes a new array"
        )
    return zeros(shape, ctx=arr.context, dtype=arr.dtype)
