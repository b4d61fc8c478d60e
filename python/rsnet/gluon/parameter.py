"""`Parameter`: an array that training changes, with one copy and one gradient per device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import autograd, initializer
from .. import ndarray as nd
from .. import symbol as sym
from .._numbers import whole_numbers
from ..base import MXNetError, shown
from ..context import Context, as_context, cpu, current_context
from ..initializer.base import check_name
from ..ndarray import NDArray
from ._copies import CopiesByDevice
from ._loading import check_fits
from .utils import shape_is_known

__all__ = ["DeferredInitializationError", "Parameter", "tensor_types"]

tensor_types = (NDArray, sym.Symbol)

_REQS = ("write", "add", "null")


class DeferredInitializationError(MXNetError):
    """A parameter is used whose shape no forward pass has decided yet."""


def contexts_of(ctx: Any) -> list[Context]:
    """Devices as a list, from one, several or None (the current one)."""
    if ctx is None:
        return [current_context()]
    given = ctx if isinstance(ctx, (list, tuple)) else [ctx]
    found = [as_context(one) for one in given]
    if len(set(found)) != len(found):
        raise ValueError(f"invalid ctx {found}: expected each device once")
    return found


class Parameter(CopiesByDevice):
    """An array that training changes.

    Parameters
    ----------
    name : str
    grad_req : str
        ``'write'``: a backward pass overwrites the gradient; ``'add'``: it adds to it, and
        `zero_grad` clears it; ``'null'``: there is no gradient.
    shape : int or tuple of int, optional
        Extents of 0 (with np_shape: -1) are unknown; the first forward pass decides them.
    dtype : dtype
    lr_mult, wd_mult : float
        Factors on learning rate and weight decay.
    init : Initializer or str, optional
        How to fill it; by default the initializer that `initialize` is given.
    allow_deferred_init : bool
        May `initialize` be called while the shape is unknown?
    differentiable : bool
        False: there is never a gradient.
    stype, grad_stype : str
        Only ``'default'``: sparse arrays are not supported.

    Examples
    --------
    >>> from rsnet import gluon
    >>> weight = gluon.Parameter("weight", shape=(2, 3))
    >>> weight.initialize(init="ones")
    >>> weight.data().asnumpy().tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def __init__(
        self,
        name: str,
        grad_req: str = "write",
        shape: Any = None,
        dtype: Any = np.float32,
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        for what, given in (("stype", stype), ("grad_stype", grad_stype)):
            if given != "default":
                raise NotImplementedError(
                    f"Parameter '{name}': invalid {what} '{given}': expected 'default', as layers "
                    "give it by sparse_grad=False (sparse arrays are not supported)"
                )
        self._var: Any = None
        self._data: list[NDArray] | None = None
        self._grad: list[NDArray] | None = None
        self._ctx_list: list[Context] | None = None
        # Initializer, devices, the fallback initializer and perhaps the value, once `initialize` or
        # `set_data` was called while the shape is unknown.
        self._deferred_init: tuple[Any, ...] = ()
        self._differentiable = differentiable
        self._allow_deferred_init = allow_deferred_init
        self._trainer: Any = None
        self._grad_req = ""
        self.name = name
        self._shape: tuple[int, ...] | None = None
        if shape is not None:
            self._shape = whole_numbers(shape, f"shape of Parameter '{name}'")
        self._dtype = dtype
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.grad_req = grad_req
        if isinstance(init, str):
            check_name(init)
        self.init = init
        self._stype = self._grad_stype = "default"

    def __repr__(self) -> str:
        return f"Parameter {self.name} (shape={self.shape}, dtype={self.dtype})"

    # ---- attributes ----------------------------------------------------------------------------

    @property
    def grad_req(self) -> str:
        """How a backward pass writes the gradient; setting it makes or drops the gradients."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req not in _REQS:
            raise AssertionError(
                f"invalid grad_req '{req}' of Parameter '{self.name}': expected 'write', 'add' or "
                "'null'"
            )
        req = req if self._differentiable else "null"
        if req == self._grad_req:
            return
        self._grad_req = req
        if self._data is None:
            return
        if req == "null":
            self._grad = None
            self._data = [array.detach() for array in self._data]
        else:
            self._init_grad()

    @property
    def dtype(self) -> Any:
        """The dtype; setting it casts."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self.cast(dtype)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape; once set, only its unknown extents can be."""
        return self._shape

    @shape.setter
    def shape(self, new_shape: Any) -> None:
        known = self._shape
        if new_shape is None:
            self._shape = None
            return
        wanted = whole_numbers(new_shape, f"shape of Parameter '{self.name}'")
        if known is not None and (
            len(known) != len(wanted)
            or any(have not in (0, -1, want) for have, want in zip(known, wanted))
        ):
            raise AssertionError(
                f"invalid shape {wanted} of Parameter '{self.name}': expected {known}"
            )
        self._shape = wanted

    @property
    def stype(self) -> str:
        """Always 'default'."""
        return self._stype

    @property
    def grad_stype(self) -> str:
        """Always 'default'."""
        return self._grad_stype

    def _shape_is_known(self) -> bool:
        return shape_is_known(self._shape)

    # ---- values --------------------------------------------------------------------------------

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        default_init: Any = None,
        force_reinit: bool = False,
    ) -> None:
        """Makes the arrays and fills them; later, if the shape is unknown.

        Parameters
        ----------
        init : Initializer or str, optional
            Overrides the parameter's own.
        ctx : Context or list of Context, optional
            Devices, each of which gets a copy; the current one if None.
        default_init : Initializer or str, optional
            Where neither is given; `Uniform()` if None.
        force_reinit : bool
            Fill it again if it has values already?

        Raises
        ------
        ValueError
            The shape is unknown, and the parameter may not be deferred.
        """
        if self._data is not None and not force_reinit:
            warnings.warn(
                f"Parameter '{self.name}' has values already and keeps them; force_reinit=True "
                "replaces them",
                stacklevel=2,
            )
            return
        default_init = initializer.Uniform() if default_init is None else default_init
        if init is None:
            init = default_init if self.init is None else self.init
        ctx = contexts_of(ctx)
        if not shape_is_known(self.shape) and not self._allow_deferred_init:
            raise ValueError(
                f"Parameter '{self.name}' cannot be initialized: expected a known shape, got "
                f"{self.shape}"
            )
        self._data = self._grad = None
        self._deferred_init = (init, ctx, default_init, None)
        if shape_is_known(self.shape):
            self._finish_deferred_init()

    def _finish_deferred_init(self) -> None:
        if not self._deferred_init:
            return
        init, ctx, default_init, value = self._deferred_init
        if not shape_is_known(self.shape):
            raise AssertionError(
                f"Parameter '{self.name}' cannot be initialized: expected a known shape, got "
                f"{self.shape}; arguments such as in_units and in_channels make it known"
            )
        with autograd.pause():
            if value is None:
                value = nd.zeros(self.shape, dtype=self.dtype, ctx=cpu())
                desc = initializer.InitDesc(self.name, {"__init__": init})
                initializer.create(default_init)(desc, value)
            self._init_impl(value, ctx)
        self._deferred_init = ()

    def _init_impl(self, value: NDArray, ctx: Sequence[Context]) -> None:
        self._take(list(ctx), [value.copyto(one) for one in ctx])

    def _take(self, ctx: list[Context], arrays: list[NDArray]) -> None:
        """Takes copies that are there already: a device that refuses one changes nothing."""
        self._ctx_list, self._data = ctx, arrays
        self._init_grad()
        self._tell_trainer()

    def _tell_trainer(self) -> None:
        """A store that updates weights has values of its own, which would undo new ones."""
        if self._trainer is not None:
            self._trainer._values_changed(self)

    def _prepared_move(self, ctx: list[Context]) -> Callable[[], None]:
        """Copies to other devices, and returns the function that takes them over."""
        if self._data is not None:
            with autograd.pause():
                value = self._reduce()
                arrays = [value.copyto(one) for one in ctx]
            return lambda: self._moved(ctx, arrays)
        if not self._deferred_init:
            raise ValueError(
                f"reset_ctx: invalid Parameter '{self.name}', which has no values: expected one "
                "that is initialized"
            )
        init, _, default_init, deferred = self._deferred_init
        return lambda: setattr(self, "_deferred_init", (init, ctx, default_init, deferred))

    def _moved(self, ctx: list[Context], arrays: list[NDArray]) -> None:
        with autograd.pause():
            self._take(list(ctx), arrays)

    def _init_grad(self) -> None:
        if self.grad_req == "null":
            self._grad = None
            return
        arrays = self._data or []
        self._grad = [nd.zeros(a.shape, dtype=a.dtype, ctx=a.context) for a in arrays]
        autograd.mark_variables(arrays, self._grad, self.grad_req)

    def _check_initialized(self, ctx: Context | None = None) -> list[NDArray]:
        if self._data is not None:
            if ctx is not None and ctx not in (self._ctx_list or []):
                raise RuntimeError(
                    f"Parameter '{self.name}': invalid ctx {ctx}: expected one on which it is "
                    f"initialized, of {self._ctx_list}"
                )
            return self._data
        if self._deferred_init:
            raise DeferredInitializationError(
                f"Parameter '{self.name}' has no values yet: initialization is deferred to the "
                "first call of the network, from which its shape is expected. Arguments such as "
                "in_units and in_channels make it known before"
            )
        raise RuntimeError(
            f"Parameter '{self.name}' has not been initialized: call initialize() of its block "
            "first (Block.params lacks the parameters of children; collect_params has them)"
        )

    def _on(self, arrays: list[NDArray], ctx: Context | None) -> NDArray:
        if ctx is None:
            if len(arrays) == 1:
                return arrays[0]
            ctx = current_context()
        self._check_initialized(ctx)
        return arrays[(self._ctx_list or []).index(ctx)]

    def data(self, ctx: Context | None = None) -> NDArray:
        """The copy on a device: the only one, or that on the current device, if None.

        Raises
        ------
        RuntimeError
            It has no values, or none on this device.
        DeferredInitializationError
            The first forward pass will give it values.
        """
        return self._on(self._check_initialized(), ctx)

    def list_data(self) -> list[NDArray]:
        """The copies on all devices."""
        return self._check_initialized()

    def _grads(self) -> list[NDArray]:
        if self._data is not None and self._grad is None:
            raise RuntimeError(
                f"Parameter '{self.name}' has no gradient: expected a grad_req other than 'null'"
            )
        self._check_initialized()
        return self._grad or []

    def grad(self, ctx: Context | None = None) -> NDArray:
        """The gradient on a device, as `data`.

        Raises
        ------
        RuntimeError
            It has no values, or its `grad_req` is 'null'.
        """
        return self._on(self._grads(), ctx)

    def list_grad(self) -> list[NDArray]:
        """The gradients on all devices."""
        return self._grads()

    def list_ctx(self) -> list[Context]:
        """The devices that it has (or will have) copies on."""
        if self._data is None:
            if self._deferred_init:
                return list(self._deferred_init[1])
            raise RuntimeError(
                f"Parameter '{self.name}' has not been initialized: call initialize() first"
            )
        return list(self._ctx_list or [])

    def zero_grad(self) -> None:
        """Fills the gradients with 0; nothing without gradients."""
        for grad in self._grad or []:
            grad[:] = 0

    def set_data(self, data: Any) -> None:
        """Sets the values on all devices.

        Raises
        ------
        RuntimeError
            The parameter was never initialised.
        """
        if not hasattr(data, "shape"):
            raise TypeError(
                f"invalid data {shown(data)} of Parameter '{self.name}': expected an NDArray"
            )
        self.shape = data.shape
        if self._data is None:
            if not self._deferred_init:
                raise RuntimeError(
                    f"Parameter '{self.name}' has not been initialized: call initialize() first"
                )
            value = data if isinstance(data, NDArray) else nd.array(data, dtype=self.dtype)
            self._deferred_init = (*self._deferred_init[:3], value)
            return
        for array in self.list_data():
            array[:] = data
        self._tell_trainer()

    def cast(self, dtype: Any) -> None:
        """Converts values and gradients to another dtype."""
        self._dtype = dtype
        if self._data is None:
            return
        with autograd.pause():
            grads = [grad.astype(dtype) for grad in self._grad or []]
            self._data = [array.astype(dtype) for array in self._data]
            self._init_grad()
            for grad, value in zip(self._grad or [], grads):
                grad[:] = value
        self._tell_trainer()

    def reset_ctx(self, ctx: Any) -> None:
        """Moves it to other devices; where one refuses, it stays as it is.

        Raises
        ------
        ValueError
            It was never initialised.
        """
        self._prepared_move(contexts_of(ctx))()

    def _reduce(self) -> NDArray:
        """The mean of the copies on all devices."""
        arrays = [array.as_in_context(cpu()) for array in self.list_data()]
        return arrays[0].copy() if len(arrays) == 1 else nd.add_n(*arrays) / len(arrays)

    def _load_init(
        self, data: NDArray, ctx: Any, cast_dtype: bool = False, dtype_source: str = "current"
    ) -> None:
        """Values from a file, on `ctx` or where the parameter is already."""
        check_fits(self, data, cast_dtype, dtype_source)
        if self.shape is not None:
            self._shape = tuple(data.shape)
        if cast_dtype and dtype_source == "current":
            data = data.astype(self.dtype)
        elif cast_dtype:
            self.cast(data.dtype)
        if self._data is None or ctx is not None:
            wanted = self._deferred_init[1] if self._deferred_init and ctx is None else ctx
            with autograd.pause():
                self._init_impl(data, contexts_of(cpu() if wanted is None else wanted))
        else:
            self.set_data(data)
        self._deferred_init = ()

    def var(self) -> sym.Symbol:
        """The symbol that stands for it in a graph."""
        if self._var is None:
            self._var = sym.Variable(
                self.name,
                shape=self.shape,
                dtype=self.dtype,
                lr_mult=self.lr_mult,
                wd_mult=self.wd_mult,
                init=self.init,
            )
        return self._var

    def row_sparse_data(self, row_id: Any) -> NDArray:
        """Raises: sparse arrays are not supported."""
        raise NotImplementedError(
            f"Parameter '{self.name}': sparse arrays are not supported, use data()"
        )

    list_row_sparse_data = row_sparse_data

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__, _var=None, _trainer=None, _grad=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._data is not None:
            self._init_grad()


def __getattr__(name: str) -> object:
    # These modules import this one.
    if name == "Constant":
        from .constant import Constant

        return Constant
    if name == "ParameterDict":
        from .parameter_dict import ParameterDict

        return ParameterDict
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
