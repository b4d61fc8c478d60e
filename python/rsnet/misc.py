"""Learning rate schedules, under the name of their module in MXNet 0.7 and before."""

from .lr_scheduler import FactorScheduler
from .lr_scheduler import LRScheduler as LearningRateScheduler

__all__ = ["FactorScheduler", "LearningRateScheduler"]
