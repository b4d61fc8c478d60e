"""The update at the end of a train job."""

from __future__ import annotations

import threading
from typing import Any

from .. import optimizer


class Trainer:
    """What the runs of one train job share: how many there were, and the momentum of variables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = 0
        self._updater: Any = None

    def update(self, how: Any, variables: dict[str, Any]) -> None:
        """One step of every variable, by its gradient; ``how`` is an ``oneflow.optimizer.SGD``."""
        with self._lock:
            if self._updater is None or self._updater.optimizer.momentum != how.momentum:
                self._updater = optimizer.Updater(optimizer.SGD(momentum=how.momentum))
            self._updater.optimizer.set_learning_rate(how.scheduler.rate(self._steps))
            for name, variable in variables.items():
                self._updater(name, variable.grad, variable)
            self._steps += 1
