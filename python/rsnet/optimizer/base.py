"""The class of optimizers, and what calls one for every parameter."""

from __future__ import annotations

import inspect
import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import engine
from .. import ndarray as nd
from .._warnings import warn
from ..base import shown
from ..lr_scheduler import LRScheduler
from ..ndarray import NDArray
from .states import loads

_REGISTRY: dict[str, type[Optimizer]] = {}


def register(klass: type[Optimizer]) -> type[Optimizer]:
    """Class decorator: makes an optimizer known to `create` by its lower-case name."""
    name = klass.__name__.lower()
    if name in _REGISTRY:
        warn(f"optimizer {name} is overridden")
    _REGISTRY[name] = klass
    return klass


def create(name: str | Optimizer, **kwargs: Any) -> Optimizer:
    """An optimizer by name, such as ``create("sgd", learning_rate=0.1)``.

    Raises
    ------
    ValueError
        If no optimizer has that name.
    TypeError
        If it has no argument of a name that is given, or the name is not a string.
    """
    if isinstance(name, Optimizer):
        return name
    if not isinstance(name, str):
        raise TypeError(f"invalid name {name!r}: expected a string")
    if name.lower() not in _REGISTRY:
        known = ", ".join(sorted(_REGISTRY))
        raise ValueError(f"unknown optimizer '{name}': expected one of: {known}")
    cls = _REGISTRY[name.lower()]
    try:
        return cls(**kwargs)
    except TypeError as error:
        names = _argument_names(cls)
        unknown = [key for key in kwargs if names is not None and key not in names]
        if not unknown:
            raise
        raise TypeError(
            f"optimizer '{name}': invalid argument '{unknown[0]}': expected one of "
            f"{', '.join(names or [])}"
        ) from error


def _argument_names(cls: type[Optimizer]) -> list[str] | None:
    """The arguments of a class and of those that its own are passed on to; None if any."""
    names: dict[str, None] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names |= dict.fromkeys(p.name for p in parameters if p.kind in named)
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return list(names)
    return None


class Optimizer:
    """Base of all optimizers: rates, decays and update counts per parameter.

    Parameters
    ----------
    rescale_grad : float
        Factor on every gradient; 1 / batch size makes a step independent of the batch.
    param_idx2name : dict of int to str, optional
        Names of the parameters. With names, weight decay applies only to those that end in
        `_weight` or `_gamma`; without, to all.
    wd : float
        Weight decay (L2 penalty).
    clip_gradient : float, optional
        Bound on each element of the gradient.
    learning_rate : float, optional
        Learning rate; 0.01 if neither it nor a scheduler is given.
    lr_scheduler : LRScheduler, optional
        Rate as a function of the number of updates; `learning_rate` becomes its base.
    sym : Symbol, optional
        Its variables' `__lr_mult__` and `__wd_mult__` are multipliers of rate and decay.
    begin_num_update : int
        Where counting starts, for a training that is resumed.

    Attributes
    ----------
    opt_registry : dict of str to type
        The classes that `create` knows, by lower-case name.
    zero_states : int
        How many arrays of zeros `create_state` makes for a parameter.
    aggregate_num : int
        How many parameters of one step an `Updater` hands to `update_many` together; with 0 it
        calls `update_multi_precision` for each.
    rates_together : int
        For how many of those `lr_scheduler` is called once; schedules may count their calls.
    """

    opt_registry = _REGISTRY
    zero_states = 0
    aggregate_num = 0
    rates_together = 1
    _held_rate: float | None = None  # what the schedule said for weights that share a call

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: dict[int, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: LRScheduler | None = None,
        sym: Any = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: dict[int, Any] | None = None,
    ) -> None:
        numbers = {"rescale_grad": rescale_grad, "wd": wd}
        optional = {"clip_gradient": clip_gradient, "learning_rate": learning_rate}
        for name, value in {**numbers, **optional}.items():
            if name in numbers or value is not None:
                self._check_number(name, value)
        self.rescale_grad = rescale_grad
        self.wd = wd
        self.clip_gradient = clip_gradient
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is None:
            self.lr = 0.01 if learning_rate is None else learning_rate
        else:
            self.lr = lr_scheduler.base_lr if learning_rate is None else learning_rate
            if lr_scheduler.base_lr != self.lr:
                warn(
                    f"learning_rate={self.lr} replaces base_lr={lr_scheduler.base_lr} of the "
                    "lr_scheduler"
                )
            lr_scheduler.base_lr = self.lr
        self.multi_precision = multi_precision
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update
        self.idx2name = dict(param_idx2name or {})
        self.param_dict = param_dict or {}
        self.sym_info = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        self._index_update_count: dict[int, int] = {}
        self.lr_mult: dict[Any, float] = {}
        self.wd_mult: dict[Any, float] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    def __setstate__(self, state: dict[str, Any]) -> None:
        # MXNet's pickles have neither.
        vars(self).update({"param_dict": {}, "sym_info": ()} | state)

    def _check_number(self, name: str, value: Any) -> None:
        # Not a text of one either: it would fail only in the first update.
        if not hasattr(value, "__float__"):
            kind = type(self).__name__
            raise TypeError(f"optimizer {kind}: invalid {name} {shown(value)}: expected a number")

    @property
    def learning_rate(self) -> float:
        """The rate of the next update, before a parameter's multiplier."""
        if self._held_rate is not None:
            return self._held_rate
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the rate.

        Raises
        ------
        TypeError
            It is not a number.
        UserWarning
            If a scheduler decides it.
        """
        if self.lr_scheduler is not None:
            raise UserWarning(
                f"set_learning_rate({lr!r}): expected an optimizer without lr_scheduler, which "
                "decides the rate"
            )
        self._check_number("learning_rate", lr)
        self.lr = lr

    def _from_symbol(self, key: str) -> dict[Any, float]:
        if not self.sym_info:
            return {}
        attrs, names = self.sym_info
        return {n: float(attrs[n][key]) for n in names if key in attrs.get(n, {})}

    def set_lr_mult(self, args_lr_mult: dict[Any, float]) -> None:
        """Multipliers of the rate by name or index, on top of the symbol's own."""
        self.lr_mult = self._from_symbol("__lr_mult__") | args_lr_mult

    def set_lr_scale(self, args_lrscale: dict[Any, float]) -> None:
        """`set_lr_mult`, by its old name."""
        warn("set_lr_scale is deprecated: use set_lr_mult", DeprecationWarning)
        self.set_lr_mult(args_lrscale)

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Multipliers of the decay by name or index; biases and the like have 0 unless given."""
        undecayed = {
            n: 0.0 for n in self.idx2name.values() if not n.endswith(("_weight", "_gamma"))
        }
        self.wd_mult = undecayed | self._from_symbol("__wd_mult__") | args_wd_mult

    def _multiplier(self, table: dict[Any, float], attr: str, index: int) -> float:
        if index in self.param_dict:
            value: float = getattr(self.param_dict[index], attr)
            return value
        if index in table:
            return table[index]
        return table.get(self.idx2name.get(index), 1.0)

    def _get_lr(self, index: int) -> float:
        return self.learning_rate * self._multiplier(self.lr_mult, "lr_mult", index)

    def _get_wd(self, index: int) -> float:
        return self.wd * self._multiplier(self.wd_mult, "wd_mult", index)

    def _get_lrs(self, indices: Sequence[int]) -> list[float]:
        if self.lr_scheduler is None:
            return [self._get_lr(index) for index in indices]
        rates: list[float] = []
        for start in range(0, len(indices), self.rates_together):
            self._held_rate = self.learning_rate
            try:
                some = indices[start : start + self.rates_together]
                rates += [self._get_lr(index) for index in some]
            finally:
                self._held_rate = None
        return rates

    def _get_wds(self, indices: Sequence[int]) -> list[float]:
        return [self._get_wd(index) for index in indices]

    def _update_count(self, index: int | list[int] | tuple[int, ...]) -> int:
        if isinstance(index, (list, tuple)):  # what is updated in one call
            return max([self._update_count(one) for one in index], default=self.num_update)
        count = self._index_update_count.get(index, self.begin_num_update) + 1
        self._index_update_count[index] = count
        self.num_update = max(count, self.num_update)
        return count

    @staticmethod
    def register(klass: type[Optimizer]) -> type[Optimizer]:
        """The class decorator `register`."""
        return register(klass)

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """The function `create`."""
        return create(name, **kwargs)

    def create_state(self, index: int, weight: NDArray) -> Any:
        """The state for one parameter: by default `zero_states` arrays of zeros, or None."""
        return tuple(zeros_like(weight) for _ in range(self.zero_states)) or None

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Changes `weight` and `state` in place."""
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    def create_state_multi_precision(self, index: int, weight: NDArray) -> Any:
        """State, with a float32 copy of a float16 weight when `multi_precision` is on."""
        if self._has_copy(weight):
            master = weight.astype("float32")
            return (master, self.create_state(index, master))
        return self.create_state(index, weight)

    def update_multi_precision(
        self, index: int, weight: NDArray, grad: NDArray, state: Any
    ) -> None:
        """`update` on the float32 copy where there is one."""
        if self._has_copy(weight):
            master, inner = state
            self.update(index, master, grad.astype("float32"), inner)
            master.copyto(weight)
        else:
            self.update(index, weight, grad, state)

    def update_many(
        self, indices: list[int], weights: list[NDArray], grads: list[NDArray], states: list[Any]
    ) -> None:
        """`update_multi_precision` for several parameters of one device and dtype."""
        steps = list(zip(indices, weights, grads, states, strict=True))
        push_together(weights, lambda at: self.update_multi_precision(*steps[at]))

    def _common_many(self, indices: list[int]) -> dict[str, Any]:
        """Counts the updates; what every operator on many weights is given."""
        for index in indices:
            self._update_count(index)
        common = {
            "lrs": self._get_lrs(indices),
            "wds": self._get_wds(indices),
            "rescale_grad": self.rescale_grad,
        }
        if self.clip_gradient:
            common["clip_gradient"] = self.clip_gradient
        return common

    def _has_copy(self, weight: NDArray) -> bool:
        """Is the weight kept in float32 besides?"""
        return self.multi_precision and np.dtype(weight.dtype) == np.float16

    def _common(self, index: int) -> dict[str, Any]:
        """Counts the update; what every update operator is given."""
        self._update_count(index)
        common = {
            "lr": self._get_lr(index),
            "wd": self._get_wd(index),
            "rescale_grad": self.rescale_grad,
        }
        if self.clip_gradient:
            common["clip_gradient"] = self.clip_gradient
        return common

    def _decayed(self, grad: NDArray, weight: NDArray, wd: float) -> NDArray:
        """clip(g + wd·w)."""
        return self._clipped(grad * self.rescale_grad + weight * wd)

    def _scaled(self, grad: NDArray) -> NDArray:
        """clip(g)."""
        return self._clipped(grad * self.rescale_grad)

    def _clipped(self, g: NDArray) -> NDArray:
        limit = self.clip_gradient
        return nd.clip(g, -limit, limit) if limit else g


def zeros_like(weight: NDArray) -> NDArray:
    """Zeros of the shape, dtype and device of a weight."""
    return nd.zeros(weight.shape, ctx=weight.context, dtype=weight.dtype)


# Updates of parameters are gathered into operations of this many elements: a push costs little
# beside the work of one, and the temporaries of its rules are alive at the same time.
_ELEMENTS_TOGETHER = 1 << 20
_CALLS_TOGETHER = 4096


def push_together(weights: Sequence[NDArray], update: Callable[[int], None]) -> None:
    """Calls `update` with the number of every weight; what this pushes becomes few operations."""
    before = engine.set_bulk_size(_CALLS_TOGETHER)
    try:
        elements = 0
        for at, weight in enumerate(weights):
            update(at)
            elements += weight.size
            if elements >= _ELEMENTS_TOGETHER:
                engine.set_bulk_size(0)
                engine.set_bulk_size(_CALLS_TOGETHER)
                elements = 0
    finally:
        engine.set_bulk_size(before)


def _form(state: Any) -> str:
    """What a state consists of, in words."""
    if isinstance(state, NDArray):
        return f"an array {state.shape}"
    if isinstance(state, tuple):
        return f"({', '.join(map(_form, state))})"
    return "None" if state is None else f"a {type(state).__name__}"


class Updater:
    """`updater(index, grad, weight)`: one step of `optimizer`, with the state of every index.

    With lists in place of the three it is one step of all these parameters: the engine gets few
    operations for it. An optimizer whose `aggregate_num` is greater than 0 gets those of one device
    and dtype together.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        # Whether a state is known to be on the device of its weight: those of a file may not be.
        self.states_synced: dict[Any, bool] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        if isinstance(index, (list, tuple)):
            self._update_all(list(index), list(grad), list(weight))
            return
        state = self._state(index, weight)
        self.optimizer.update_multi_precision(index, weight, grad, state)

    def _state(self, index: Any, weight: NDArray) -> Any:
        if index not in self.states:
            self.states[index] = self.optimizer.create_state_multi_precision(index, weight)
        elif not self.states_synced.get(index, True):
            self._check_loaded(index, weight)
            self.states[index] = self.sync_state_context(self.states[index], weight.context)
        self.states_synced[index] = True
        return self.states[index]

    def _check_loaded(self, index: Any, weight: NDArray) -> None:
        """Raises a ValueError where a loaded state is not one that the optimizer makes."""
        optimizer = self.optimizer
        own = _form(optimizer.create_state_multi_precision(index, weight))
        found = _form(self.states[index])
        if found != own:
            param = optimizer.param_dict.get(index)
            name = optimizer.idx2name.get(index, index) if param is None else param.name
            raise ValueError(
                f"invalid loaded state of parameter '{name}': expected {own}, as "
                f"{type(optimizer).__name__} makes, got {found}: it may be of another optimizer"
            )

    def sync_state_context(self, state: Any, context: Any) -> Any:
        """The state with its arrays on `context`; those that are there already are not copied."""
        if isinstance(state, NDArray):
            return state.as_in_context(context)
        if isinstance(state, (tuple, list)):
            return type(state)(self.sync_state_context(part, context) for part in state)
        return state

    def _update_all(self, indices: list[Any], grads: list[NDArray], weights: list[NDArray]) -> None:
        together = self.optimizer.aggregate_num
        if not together:
            push_together(weights, lambda at: self(indices[at], grads[at], weights[at]))
            return
        groups: dict[Any, list[tuple[Any, NDArray, NDArray, Any]]] = {}
        for index, grad, weight in zip(indices, grads, weights, strict=True):
            kind = (weight.context, weight.dtype)
            step = (index, weight, grad, self._state(index, weight))
            groups.setdefault(kind, []).append(step)
        for steps in groups.values():
            for start in range(0, len(steps), together):
                some = zip(*steps[start : start + together], strict=True)
                self.optimizer.update_many(*map(list, some))

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states, with the optimizer if asked for, as bytes for `set_states`."""
        return pickle.dumps((self.states, self.optimizer) if dump_optimizer else self.states)

    def set_states(self, states: bytes) -> None:
        """Takes over what `get_states` gave, here or in MXNet. Unpickles: only for bytes from a
        source you trust.
        """
        try:
            loaded = loads(states)
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as error:
            raise ValueError(
                f"invalid states: expected what get_states of an Updater gave: {error}"
            ) from error
        found, *optimizer = loaded if isinstance(loaded, tuple) else (loaded,)
        if not isinstance(found, dict) or len(optimizer) > 1:
            got = type(loaded).__name__
            raise ValueError(
                f"invalid states of type '{got}': expected what get_states of an Updater gave"
            )
        self.states = found
        if optimizer:
            self.optimizer = optimizer[0]
        self.states_synced = dict.fromkeys(self.states, False)


def load_states(updater: Any, fname: Any) -> None:
    """Lets an updater take over the states of a file.

    Raises
    ------
    ValueError
        The file has something else.
    """
    with open(os.fspath(fname), "rb") as file:
        states = file.read()
    try:
        updater.set_states(states)
    except ValueError as error:
        raise ValueError(f"file '{fname}': {error}") from error


def get_updater(optimizer: Optimizer) -> Updater:
    """The update function of a training loop.

    Example
    -------
    >>> updater = get_updater(SGD(learning_rate=0.5))
    >>> weight = nd.array([1.0, 2.0])
    >>> updater(0, nd.array([2.0, 2.0]), weight)
    >>> weight.asnumpy().tolist()
    [0.0, 1.0]
    """
    return Updater(optimizer)
