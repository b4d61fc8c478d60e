"""Optimizers of `mx.optimizer.contrib`."""

from __future__ import annotations

from typing import Any

from .. import ndarray as nd
from ..ndarray import NDArray
from .base import Optimizer, register

__all__ = ["GroupAdaGrad"]


@register
class GroupAdaGrad(Optimizer):
    """AdaGrad with one history for a row: h ← h + mean(clip(g)²); w ← w - lr·clip(g)/√(h+ε).

    There is no weight decay.

    Parameters
    ----------
    eps : float
        ε.
    **kwargs
        Of `Optimizer`.

    Raises
    ------
    ValueError
        `wd` is not 0.
    """

    def __init__(self, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: int, weight: NDArray) -> Any:
        if len(weight.shape) != 2:
            raise ValueError(f"GroupAdaGrad: weight {index} has shape {weight.shape}, expected 2-D")
        return nd.zeros((weight.shape[0], 1), weight.context, dtype=weight.dtype)

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        if common["wd"]:
            raise ValueError(f"GroupAdaGrad: invalid wd {common['wd']}: expected 0")
        del common["wd"]
        nd.contrib.group_adagrad_update(
            weight, grad, state, out=weight, epsilon=self.float_stable_eps, **common
        )
