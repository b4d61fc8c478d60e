"""Optimizers of train jobs: ``SGD(scheduler, momentum=0).minimize(loss)``."""

from __future__ import annotations

from typing import Any

from . import job


class PiecewiseConstantScheduler:
    """``values[i]`` from step ``boundaries[i - 1]`` on."""

    def __init__(self, boundaries: list[int], values: list[float]) -> None:
        if len(values) != len(boundaries) + 1:
            raise ValueError("a schedule needs one more value than boundaries")
        self._boundaries, self._values = boundaries, values

    def rate(self, step: int) -> float:
        return self._values[sum(step >= b for b in self._boundaries)]


class SGD:
    """Stochastic gradient descent on the job's variables."""

    def __init__(self, lr_scheduler: Any, momentum: float = 0.0) -> None:
        self.scheduler = lr_scheduler
        self.momentum = momentum

    def minimize(self, loss: Any) -> None:
        """Runs the backward pass of ``loss`` and updates the variables at the end of the job."""
        job.current("minimize").minimize(loss, self)
