"""Gradients under the names of MXNet 0.8 and 0.9: sections that train and test.

`mx.autograd` is the newer interface; both note what is computed on the same tape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd
from .. import ndarray as nd
from ..ndarray import NDArray

__all__ = [
    "TrainingStateScope",
    "backward",
    "compute_gradient",
    "grad",
    "grad_and_loss",
    "mark_variables",
    "set_is_training",
    "test_section",
    "train_section",
]

mark_variables = autograd.mark_variables


def set_is_training(is_train: bool) -> bool:
    """Switches recording and training, both; returns whether training was on."""
    before = autograd.set_training(is_train)
    autograd.set_recording(is_train)
    return before


class TrainingStateScope:
    """A ``with`` block in which recording and training are on, or off."""

    def __init__(self, enter_state: bool) -> None:
        self._enter_state = enter_state
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(set_is_training(self._enter_state))

    def __exit__(self, *_: object) -> None:
        set_is_training(self._before.pop())


def train_section() -> TrainingStateScope:
    """A ``with`` block whose operators are recorded, in training mode."""
    return TrainingStateScope(True)


def test_section() -> TrainingStateScope:
    """A ``with`` block inside of `train_section` that is not recorded, in predict mode."""
    return TrainingStateScope(False)


def backward(
    outputs: NDArray | Sequence[NDArray],
    out_grads: Sequence[NDArray | None] | None = None,
    retain_graph: bool = False,
) -> None:
    """Writes the gradients of `outputs` into the arrays that `mark_variables` gave."""
    autograd.backward(outputs, out_grads, retain_graph=retain_graph)


def compute_gradient(outputs: Sequence[NDArray]) -> None:
    """`backward` with gradients of one."""
    backward(outputs)


def grad_and_loss(
    func: Callable[..., Any], argnum: int | Sequence[int] | None = None
) -> Callable[..., tuple[list[NDArray], Any]]:
    """A function that returns the gradients of `func` for its arguments, and its value.

    Parameters
    ----------
    func : callable
        From arrays to an array or a list of arrays.
    argnum : int or list of int, optional
        Arguments to differentiate for; all if None.

    Examples
    --------
    >>> from rsnet import nd
    >>> slopes, value = grad_and_loss(lambda x: x * x)(nd.array([3]))
    >>> slopes[0].asscalar(), value.asscalar()
    (np.float32(6.0), np.float32(9.0))
    """

    @functools.wraps(func)
    def wrapped(*args: Any) -> tuple[list[NDArray], Any]:
        chosen = range(len(args)) if argnum is None else argnum
        variables = [args[i] for i in ([chosen] if isinstance(chosen, int) else chosen)]
        for variable in variables:
            if not isinstance(variable, NDArray):
                raise TypeError(f"invalid argument of {func!r}: expected an NDArray")
        grads = [nd.zeros_like(variable) for variable in variables]
        mark_variables(variables, grads)
        with train_section():
            outputs = func(*args)
        compute_gradient([outputs] if isinstance(outputs, NDArray) else outputs)
        return grads, outputs

    return wrapped


def grad(
    func: Callable[..., Any], argnum: int | Sequence[int] | None = None
) -> Callable[..., list[NDArray]]:
    """A function that returns the gradients of `func` for its arguments; see `grad_and_loss`."""
    both = grad_and_loss(func, argnum)

    @functools.wraps(func)
    def wrapped(*args: Any) -> list[NDArray]:
        return both(*args)[0]

    return wrapped
