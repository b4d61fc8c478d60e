"""The class of optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import engine
from .. import ndarray as nd
from .._class_registry import class_named
from .._numbers import check_number, integer
from .._warnings import warn
from ..base import shown
from ..lr_scheduler import LRScheduler
from ..ndarray import NDArray

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
        raise TypeError(f"invalid name {shown(name)}: expected a string")
    cls = class_named(_REGISTRY, "optimizer", name)
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


def _overwritten(schedule: Any, rate: float) -> str:
    """The warning that a schedule has another `base_lr` than the optimizer's `learning_rate`."""
    start = getattr(schedule, "base_lr_orig", None)
    if start is None or schedule.warmup_steps > schedule.max_update:
        return f"learning_rate={rate} replaces base_lr={schedule.base_lr} of the lr_scheduler"
    return (
        f"learning_rate={rate} has no effect, as the {type(schedule).__name__} was made with "
        f"base_lr={start}: expected base_lr={rate} there"
    )


class PerDevice:
    """An attribute of an optimizer with a value for each device: that of the one whose turn it is.

    Parameters
    ----------
    first : Any
        Value of a device before one is set.
    """

    def __init__(self, first: Any) -> None:
        self._first = first

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._place = name, f"_{name.lstrip('_')}_by_device"

    def __get__(self, optimizer: Any, owner: Any = None) -> Any:
        if optimizer is None:
            return self
        # Pickles of MXNet, and those of old versions, have one value for all.
        first = vars(optimizer).get(self._name, self._first)
        return vars(optimizer).get(self._place, {}).get(optimizer.device_id, first)

    def __set__(self, optimizer: Any, value: Any) -> None:
        vars(optimizer).setdefault(self._place, {})[optimizer.device_id] = value

    def begin_with(self, optimizer: Any, device_id: int) -> None:
        """Makes the value of this device that of all devices that have none."""
        by_device = vars(optimizer).get(self._place, {})
        if device_id in by_device:
            vars(optimizer)[self._name] = by_device[device_id]


def _check_multipliers(what: str, given: Any) -> None:
    """Raises a TypeError unless these are numbers by name or index."""
    if not isinstance(given, Mapping):
        raise TypeError(f"invalid {what} {shown(given)}: expected a dict of numbers")
    for key, number in given.items():
        check_number(f"{what}[{shown(key)}]", number)


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
        Bound on each element of the gradient; none if it is 0 or negative.
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
    device_id = 0  # the one whose turn it is
    _first_counts: Mapping[int, int] = {}  # of a device before it has updated anything
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
        self.rescale_grad, self.clip_gradient, self.wd = rescale_grad, clip_gradient, wd
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is not None and not hasattr(lr_scheduler, "base_lr"):
            wrong = f"optimizer {type(self).__name__}: invalid lr_scheduler {shown(lr_scheduler)}"
            raise TypeError(f"{wrong}: expected an LRScheduler")
        default = 0.01 if lr_scheduler is None else lr_scheduler.base_lr
        self.lr = default if learning_rate is None else learning_rate
        if lr_scheduler is not None:
            if lr_scheduler.base_lr != self.lr:
                warn(_overwritten(lr_scheduler, self.lr))
            lr_scheduler.base_lr = self.lr
        self.multi_precision = multi_precision
        begin = integer("begin_num_update", begin_num_update, least=0)
        self.num_update = self.begin_num_update = begin
        if param_idx2name is not None and not isinstance(param_idx2name, Mapping):
            given = shown(param_idx2name)
            raise TypeError(f"invalid param_idx2name {given}: expected a dict of names by index")
        self.idx2name = dict(param_idx2name or {})
        self.param_dict = param_dict or {}
        self.sym_info = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        # Updates of each index so far: for each device, and for the one whose turn it is.
        self._all_index_update_counts: dict[int, dict[int, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self.set_lr_mult({})
        self.set_wd_mult({})

    def __setstate__(self, state: dict[str, Any]) -> None:
        # MXNet's pickles lack the first two, those of old versions the last.
        counts = {0: state["_index_update_count"]}
        missing = {"param_dict": {}, "sym_info": (), "_all_index_update_counts": counts}
        vars(self).update(missing | state)
        self._let_devices_go_on()

    def _let_devices_go_on(self) -> None:
        """Devices on which nothing was counted go on where one has stopped on which it was."""
        table = self._all_index_update_counts
        last = max(table, key=lambda device: sum(table[device].values()))
        self._all_index_update_counts = {d: counts for d, counts in table.items() if counts}
        self._first_counts = dict(table[last])
        for kind in type(self).__mro__:
            for attribute in vars(kind).values():
                if isinstance(attribute, PerDevice):
                    attribute.begin_with(self, last)
        self.count_on(self.device_id)

    def _check_number(self, name: str, value: Any) -> None:
        check_number(name, value, f"optimizer {type(self).__name__}: ")

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
            without = "an optimizer without lr_scheduler, which decides the rate"
            raise UserWarning(f"set_learning_rate({lr!r}): expected {without}")
        self._check_number("learning_rate", lr)
        self.lr = lr

    def _from_symbol(self, key: str) -> dict[Any, float]:
        if not self.sym_info:
            return {}
        attrs, names = self.sym_info
        return {n: float(attrs[n][key]) for n in names if key in attrs.get(n, {})}

    def set_lr_mult(self, args_lr_mult: dict[Any, float]) -> None:
        """Multipliers of the rate by name or index, on top of the symbol's own."""
        _check_multipliers("args_lr_mult", args_lr_mult)
        self.lr_mult = self._from_symbol("__lr_mult__") | args_lr_mult

    def set_lr_scale(self, args_lrscale: dict[Any, float]) -> None:
        """`set_lr_mult`, by its old name."""
        warn("set_lr_scale is deprecated: use set_lr_mult", DeprecationWarning)
        self.set_lr_mult(args_lrscale)

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Multipliers of the decay by name or index; biases and the like have 0 unless given."""
        _check_multipliers("args_wd_mult", args_wd_mult)
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
        if self.lr_scheduler is None:  # no calls are counted, and a subclass may set lr by weight
            return [self._get_lr(index) for index in indices]
        rates: list[float] = []
        for start in range(0, len(indices), self.rates_together):
            self._held_rate = self.learning_rate
            try:
                rates += map(self._get_lr, indices[start : start + self.rates_together])
            finally:
                self._held_rate = None
        return rates

    def _get_wds(self, indices: Sequence[int]) -> list[float]:
        return [self._get_wd(index) for index in indices]

    def count_on(self, device_id: int) -> None:
        """Counts updates of this device from now on: a parameter has one index on all devices."""
        self.device_id = device_id
        counts = self._all_index_update_counts
        if device_id not in counts:
            counts[device_id] = dict(self._first_counts)
        self._index_update_count = counts[device_id]

    _set_current_context = count_on  # MXNet's name

    def _update_count(self, index: int | list[int] | tuple[int, ...]) -> int:
        if isinstance(index, (list, tuple)):  # what is updated in one call
            return max([self._update_count(one) for one in index], default=self.num_update)
        count = self._index_update_count.get(index, self.begin_num_update) + 1
        self._index_update_count[index] = count
        self.num_update = max(count, self.num_update)
        return count

    register = staticmethod(register)

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
        rates, decays = self._get_lrs(indices), self._get_wds(indices)
        return {"lrs": rates, "wds": decays, **self._of_gradients()}

    def _of_gradients(self) -> dict[str, Any]:
        """What operators are told of gradients: their factor, and their limit if there is one."""
        clip = {"clip_gradient": self.clip_gradient} if self.clip_gradient else {}
        return {"rescale_grad": self.rescale_grad, **clip}

    def _has_copy(self, weight: NDArray) -> bool:
        """Is the weight kept in float32 besides?"""
        return self.multi_precision and np.dtype(weight.dtype) == np.float16

    def _common(self, index: int) -> dict[str, Any]:
        """Counts the update; what every update operator is given."""
        self._update_count(index)
        return {"lr": self._get_lr(index), "wd": self._get_wd(index), **self._of_gradients()}

    def _decayed(self, grad: NDArray, weight: NDArray, wd: float) -> NDArray:
        """clip(g + wd·w)."""
        return self._clipped(grad * self.rescale_grad + weight * wd)

    def _scaled(self, grad: NDArray) -> NDArray:
        """clip(g)."""
        return self._clipped(grad * self.rescale_grad)

    def _clipped(self, g: NDArray) -> NDArray:
        return clipped(g, self.clip_gradient)


def clipped(array: NDArray, limit: float | None) -> NDArray:
    """The elements within ±limit. None, 0 and what is negative are no limit, as for operators."""
    return nd.clip(array, -limit, limit) if limit is not None and limit > 0 else array


def zeros_like(weight: NDArray) -> NDArray:
    """Zeros of the shape, dtype and device of a weight."""
    return nd.zeros(weight.shape, ctx=weight.context, dtype=weight.dtype)


# Updates of parameters are gathered into operations of this many elements: a push costs little
# beside the work of one, and the temporaries of its rules are alive at the same time.
_ELEMENTS_TOGETHER = 1 << 20
_CALLS_TOGETHER = 4096


def push_together(weights: Sequence[NDArray], update: Callable[[int], None]) -> None:
    """Calls `update` with the number of every weight; what this pushes becomes few operations."""
    elements = 0
    with engine.bulk(_CALLS_TOGETHER):
        for at, weight in enumerate(weights):
            update(at)
            elements += weight.size
            if elements >= _ELEMENTS_TOGETHER:
                engine.set_bulk_size(0)
                engine.set_bulk_size(_CALLS_TOGETHER)
                elements = 0
