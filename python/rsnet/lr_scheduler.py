"""Learning-rate schedules: functions of the number of updates made so far.

An optimizer calls its scheduler with `num_update` before each step; see `rsnet.optimizer`.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Sequence

from ._numbers import check_number
from .base import shown

__all__ = [
    "LRScheduler",
    "FactorScheduler",
    "MultiFactorScheduler",
    "PolyScheduler",
    "CosineScheduler",
]


class LRScheduler:
    """Base of all schedules: a warm-up that ends at `base_lr`.

    Parameters
    ----------
    base_lr : float
        The learning rate at which the schedule proper starts.
    warmup_steps : int
        Updates before the schedule proper.
    warmup_begin_lr : float
        The learning rate at the first update of the warm-up.
    warmup_mode : {'linear', 'constant'}
        Rise linearly to `base_lr`, or stay at `warmup_begin_lr`.

    Raises
    ------
    ValueError
        If the warm-up is negative, begins above `base_lr` or has another mode.
    """

    def __init__(
        self,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        numbers = {"base_lr": base_lr, "warmup_steps": warmup_steps}
        for name, value in {**numbers, "warmup_begin_lr": warmup_begin_lr}.items():
            check_number(name, value)
        if warmup_steps < 0:
            raise ValueError(f"invalid warmup_steps {warmup_steps}: expected at least 0")
        if warmup_begin_lr > base_lr:
            raise ValueError(
                f"invalid warmup_begin_lr {warmup_begin_lr}: expected at most base_lr, {base_lr}"
            )
        if warmup_mode not in ("linear", "constant"):
            raise ValueError(
                f"invalid warmup_mode {warmup_mode!r}: expected 'linear' or 'constant'"
            )
        self.base_lr = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_final_lr = base_lr
        self.warmup_mode = warmup_mode

    def get_warmup_lr(self, num_update: int) -> float:
        """The rate during the warm-up (`num_update < warmup_steps`)."""
        if num_update < 0:
            raise ValueError(f"invalid num_update {num_update}: expected at least 0")
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        rise = self.warmup_final_lr - self.warmup_begin_lr
        return self.warmup_begin_lr + rise * num_update / self.warmup_steps

    def __call__(self, num_update: int) -> float:
        """The rate for update number `num_update`, counted from 1."""
        raise NotImplementedError(f"{type(self).__name__} does not define '__call__'")


def _checked_factor(factor: float) -> float:
    check_number("factor", factor)
    if not 0 <= factor <= 1:
        raise ValueError(f"invalid factor {factor}: expected 0 to 1")
    return factor


class FactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` every `step` updates, down to `stop_factor_lr`.

    Example
    -------
    >>> schedule = FactorScheduler(step=2, factor=0.5, base_lr=1.0)
    >>> [schedule(n) for n in range(1, 6)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self,
        step: int,
        factor: float = 1.0,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        check_number("step", step)
        check_number("stop_factor_lr", stop_factor_lr)
        if not step >= 1:
            raise ValueError(f"invalid step {step}: expected at least 1")
        self.step = step
        self.factor = _checked_factor(factor)
        self.stop_factor_lr = stop_factor_lr
        self.count = 0

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if num_update > self.count + self.step:
            if not math.isfinite(num_update):
                raise ValueError(f"invalid num_update {num_update}: expected a finite number")
            # ceil((num_update - count) / step) - 1, exactly; several after resuming.
            times = -((self.count - num_update) // self.step) - 1
            self.count += times * self.step
            self.base_lr *= self.factor**times
            if self.base_lr < self.stop_factor_lr:
                self.base_lr = self.stop_factor_lr
                logging.info(
                    "Update[%d]: now learning rate arrived at %0.5e, will not change in the future",
                    num_update,
                    self.base_lr,
                )
            else:
                logging.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` after each of the updates listed in `step`."""

    def __init__(
        self,
        step: Sequence[int],
        factor: float = 1.0,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, Iterable) or isinstance(step, str):
            raise TypeError(f"invalid step {shown(step)}: expected a list of numbers of updates")
        step = list(step)
        for one in step:
            check_number("step", one)
        if not step or any(s < 1 for s in step):
            raise ValueError(f"invalid step {step}: expected numbers of updates, at least 1")
        if any(b <= a for a, b in itertools.pairwise(step)):
            raise ValueError(f"invalid step {step}: expected an increasing list")
        self.step = step
        self.factor = _checked_factor(factor)
        self.cur_step_ind = 0

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            logging.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


class _Decay(LRScheduler):
    """Decreases from `base_lr` to `final_lr` over `max_update` updates, then stays constant."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0.0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        check_number("max_update", max_update)
        check_number("final_lr", final_lr)
        if max_update < 1:
            raise ValueError(f"invalid max_update {max_update!r}: expected at least 1")
        if warmup_steps == max_update:
            raise ValueError(
                f"invalid warmup_steps {warmup_steps}: expected another number than max_update: "
                "the rate falls between the two"
            )
        self.base_lr_orig = base_lr
        self.max_update = max_update
        self.final_lr = final_lr
        self.max_steps = max_update - warmup_steps

    def _share(self, progress: float) -> float:
        """Fraction of `base_lr - final_lr` that remains at `progress`, from 0 to 1."""
        raise NotImplementedError

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if num_update <= self.max_update:
            progress = (num_update - self.warmup_steps) / self.max_steps
            fall = self.base_lr_orig - self.final_lr
            self.base_lr = self.final_lr + fall * self._share(progress)
        return self.base_lr


class PolyScheduler(_Decay):
    """Decreases as `(1 - progress) ** pwr`."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0.0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        check_number("pwr", pwr)
        self.power = pwr

    def _share(self, progress: float) -> float:
        return float((1 - progress) ** self.power)


class CosineScheduler(_Decay):
    """Decreases as half a period of a cosine."""

    def _share(self, progress: float) -> float:
        return (1 + math.cos(math.pi * progress)) / 2
