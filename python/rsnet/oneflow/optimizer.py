"""Optimizers of train jobs: ``SGD(scheduler, momentum=0.9).minimize(loss)``."""

from __future__ import annotations

from typing import Any

from .._operators.checks import fail
from . import job


class PiecewiseConstantScheduler:
    """The rate ``values[i]`` from run ``boundaries[i - 1]`` of the job on; runs count from 0."""

    def __init__(self, boundaries: list[int], values: list[float]) -> None:
        if len(values) != len(boundaries) + 1:
            raise ValueError(
                f"invalid number of values {len(values)} of a schedule: expected "
                f"{len(boundaries) + 1}, one more than boundaries"
            )
        self._boundaries, self._values = boundaries, values

    def rate(self, step: int) -> float:
        """The rate of run ``step``."""
        return self._values[sum(step >= b for b in self._boundaries)]


class SGD:
    """Stochastic gradient descent on a job's variables: with rate lr and momentum μ,
    m ← μ·m - lr·g; w ← w + m.

    Parameters
    ----------
    lr_scheduler : PiecewiseConstantScheduler
    momentum : float
        μ, by default 0.9 as in OneFlow.
    """

    def __init__(self, lr_scheduler: Any, *, momentum: float = 0.9) -> None:
        if not callable(getattr(lr_scheduler, "rate", None)):
            example = "PiecewiseConstantScheduler([], [0.1])"
            raise fail("SGD", f"{lr_scheduler!r} is not a scheduler, expected e.g. {example}")
        self.scheduler, self.momentum = lr_scheduler, momentum

    def minimize(self, loss: Any) -> None:
        """Differentiates ``loss`` at the end of the job, and updates the variables: what the job
        got from ``get_variable``, and the arrays with gradients that its function refers to.

        Raises
        ------
        rsnet.MXNetError
            Outside a train job, or where the job minimizes something already.
        """
        job.current("minimize").minimize(loss, self)
