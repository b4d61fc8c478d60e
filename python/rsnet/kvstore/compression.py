"""Two-bit gradient compression with error feedback.

What a code cannot express stays in the residual and is added to the next gradient (Seide et al.,
"1-bit stochastic gradient descent", Interspeech 2014, with two bits and a threshold).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import ndarray as nd
from .._numbers import check_number
from ..base import shown
from ..ndarray import NDArray

__all__ = ["TwoBitCompression"]


class TwoBitCompression:
    """Replaces each element of a gradient by -threshold, 0 or threshold.

    r ← r + g; q = threshold where r ≥ threshold, -threshold where r ≤ -threshold, else 0; r ← r -
    q.

    Parameters
    ----------
    threshold : float
        Greater than 0.

    Raises
    ------
    ValueError
        The threshold is not greater than 0.
    """

    def __init__(self, threshold: float = 0.5) -> None:
        check_number("threshold", threshold)
        if not threshold > 0:
            raise ValueError(f"invalid threshold {threshold}: expected a number greater than 0")
        self.threshold = threshold
        self._residuals: dict[Any, NDArray] = {}

    def __call__(self, key: Any, grad: NDArray) -> NDArray:
        """The decompressed gradient; `key` names the residual that it is added to."""
        residual = self._residuals.get(key)
        if residual is None or (residual.shape, residual.dtype) != (grad.shape, grad.dtype):
            residual = self._residuals[key] = nd.zeros(grad.shape, grad.context, grad.dtype)
        residual += grad
        above, below = residual >= self.threshold, residual <= -self.threshold
        sent = (above - below) * self.threshold
        residual -= sent
        return sent


def create_compression(params: dict[str, Any]) -> TwoBitCompression:
    """The compression that `set_gradient_compression` describes.

    Raises
    ------
    ValueError
        An unknown type or parameter.
    """
    if not isinstance(params, Mapping):
        raise TypeError(
            f"invalid compression_params {shown(params)}: expected a dict such as "
            "{'type': '2bit', 'threshold': 0.5}"
        )
    given = dict(params)
    kind = given.pop("type", None)
    if kind != "2bit":
        raise ValueError(f"invalid type {kind!r} of gradient compression: expected '2bit'")
    threshold = given.pop("threshold", 0.5)
    if given:
        raise ValueError(
            f"invalid parameters {sorted(given)} of gradient compression: expected type, threshold"
        )
    return TwoBitCompression(threshold)
