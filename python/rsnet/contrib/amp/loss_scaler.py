"""`LossScaler`: the factor of a loss that keeps gradients in the range of float16."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import ndarray as nd

__all__ = ["LossScaler"]


class LossScaler:
    """A factor that is halved when gradients overflow, and doubled after 2000 steps without.

    Attributes
    ----------
    loss_scale : float
        The factor of the next loss.
    """

    def __init__(self) -> None:
        self.loss_scale = 65536.0
        self._max_loss_scale = 2.0**24
        self._scale_seq_len = 2000
        self._unskipped = 0

    @property
    def loss_scale(self) -> float:
        return self._loss_scale

    @loss_scale.setter
    def loss_scale(self, value: float) -> None:
        # In MXNet the second becomes the first when gradients are next looked at: programs, and
        # pickles, may have only one of them changed.
        self._loss_scale = self._next_loss_scale = value

    def has_overflow(self, params: Iterable[Any]) -> bool:
        """Whether a gradient of the parameters is not finite; changes the factor accordingly."""
        self.loss_scale = self._next_loss_scale
        groups: dict[Any, list[Any]] = {}
        for param in params:
            if param.grad_req != "null":
                for grad in param.list_grad():
                    groups.setdefault((str(grad.context), np.dtype(grad.dtype)), []).append(grad)
        finite = [nd.multi_all_finite(*grads, num_arrays=len(grads)) for grads in groups.values()]
        overflow = not all(one.asscalar() for one in finite)
        if overflow:
            self.loss_scale = max(1.0, self.loss_scale / 2)
            self._unskipped = 0
        else:
            self._unskipped += 1
        if self._unskipped == self._scale_seq_len:
            self.loss_scale = min(self._max_loss_scale, self.loss_scale * 2)
            self._unskipped = 0
        return overflow
