"""Learning rate schedules, as MXNet 0.7 and before had them: callables of the iteration."""

from __future__ import annotations

import math

__all__ = ["FactorScheduler", "LearningRateScheduler"]


class LearningRateScheduler:
    """Base of schedules: `base_lr` is the rate to start with, which the user sets."""

    def __init__(self) -> None:
        self.base_lr = 0.01

    def __call__(self, iteration: int) -> float:
        """The rate of an iteration."""
        raise NotImplementedError(f"{type(self).__name__} does not define '__call__'")


class FactorScheduler(LearningRateScheduler):
    """Multiplies the rate by `factor` after every `step` iterations.

    Parameters
    ----------
    step : int
    factor : float

    Raises
    ------
    ValueError
        `step` is below 1, or `factor` is not below 1.

    Examples
    --------
    >>> import rsnet as mx
    >>> rate = mx.misc.FactorScheduler(step=10, factor=0.5)
    >>> [rate(iteration) for iteration in (0, 9, 10, 25)]
    [0.01, 0.01, 0.005, 0.0025]
    """

    def __init__(self, step: int, factor: float = 0.1) -> None:
        super().__init__()
        if step < 1:
            raise ValueError(f"invalid step {step}: expected at least 1")
        if factor >= 1.0:
            raise ValueError(f"invalid factor {factor}: expected less than 1")
        self.step = step
        self.factor = factor

    def __call__(self, iteration: int) -> float:
        return self.base_lr * math.pow(self.factor, iteration // self.step)
