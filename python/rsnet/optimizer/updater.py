"""What calls an optimizer for every parameter, and keeps the states."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

from ..base import MXValueError, shown
from ..ndarray import NDArray
from .base import Optimizer, push_together
from .states import loads


def _form(state: Any) -> str:
    """What a state consists of, in words."""
    if isinstance(state, NDArray):
        return f"an array {state.shape} of {np.dtype(state.dtype).name}"
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
        self.optimizer.count_on(weight.context.device_id)
        state = self._state(index, weight)
        try:
            self.optimizer.update_multi_precision(index, weight, grad, state)
        except (TypeError, ValueError):
            self._check_state(index, weight)
            raise

    @property
    def aggregate_updates(self) -> bool:
        """Whether the optimizer gets several parameters together."""
        return bool(self.optimizer.aggregate_num)

    def _state(self, index: Any, weight: NDArray) -> Any:
        if index not in self.states:
            self.states[index] = self.optimizer.create_state_multi_precision(index, weight)
        elif not self.states_synced.get(index, True):
            self._check_state(index, weight)
            self.states[index] = self.sync_state_context(self.states[index], weight.context)
        self.states_synced[index] = True
        return self.states[index]

    def _check_state(self, index: Any, weight: NDArray) -> None:
        """Raises a ValueError where a state is not one that the optimizer makes."""
        optimizer = self.optimizer
        own = _form(optimizer.create_state_multi_precision(index, weight))
        found = _form(self.states[index])
        if found != own:
            param = optimizer.param_dict.get(index)
            name = optimizer.idx2name.get(index, index) if param is None else param.name
            raise ValueError(
                f"invalid state of parameter '{name}': expected {own}, as "
                f"{type(optimizer).__name__} makes, got {found}: it may be of an optimizer with "
                "other arguments, or older than a cast of the parameter (a new Trainer or Updater "
                "makes a new one)"
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
        for (device, _), steps in groups.items():
            self.optimizer.count_on(device.device_id)
            for start in range(0, len(steps), together):
                some = steps[start : start + together]
                try:
                    self.optimizer.update_many(*map(list, zip(*some, strict=True)))
                except (TypeError, ValueError):
                    for index, weight, *_ in some:
                        self._check_state(index, weight)
                    raise

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states, with the optimizer if asked for, as bytes for `set_states`."""
        return pickle.dumps((self.states, self.optimizer) if dump_optimizer else self.states)

    def set_states(self, states: bytes) -> None:
        """Takes over what `get_states` gave, here or in MXNet. Unpickles: only for bytes from a
        source you trust.
        """
        form = "what get_states of an Updater gave"
        try:
            loaded = loads(states)
        except Exception as error:  # damaged bytes make a pickle do anything
            raise MXValueError(f"invalid states: expected {form}: {error}") from error
        match loaded:
            case (dict() as found, Optimizer() as optimizer):
                self.optimizer = optimizer
            case dict() as found:
                pass
            case _:
                kind = type(loaded).__name__
                raise MXValueError(f"invalid states of type '{kind}': expected {form}")
        self.states = found
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
        raise MXValueError(f"file '{fname}': {error}") from error


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
    if not hasattr(optimizer, "update_multi_precision"):
        raise TypeError(f"invalid optimizer {shown(optimizer)}: expected an Optimizer")
    return Updater(optimizer)
