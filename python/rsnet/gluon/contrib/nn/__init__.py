"""Layers: blocks side by side, pixel shuffling."""

from __future__ import annotations

from typing import Any

from ...._mxnet_names import module_getattr
from ...hybrid_block import HybridBlock
from ...nn import Concurrent, HybridConcurrent, Identity, SyncBatchNorm
from ...nn.layouts import per_axis

__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SparseEmbedding",
    "SyncBatchNorm",
]


class SparseEmbedding(HybridBlock):
    """Raises: sparse arrays are not supported; use `nn.Embedding`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "SparseEmbedding: sparse arrays are not supported; use nn.Embedding, whose gradient "
            "has the same numbers"
        )


class _PixelShuffle(HybridBlock):
    _axes = 0

    def __init__(self, factor: Any) -> None:
        super().__init__()
        self._factors = tuple(map(int, per_axis(factor, self._axes, "factor")))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        axes = self._axes
        # (N, C·f1·f2..., D1, D2...) becomes (N, C, f1, f2..., D1, D2...), a factor at a time.
        for i, factor in enumerate(reversed(self._factors)):
            x = F.reshape(x, shape=(0, -4, -1, factor, *[0] * (i + axes)))
        # (N, C, D1, f1, D2, f2...)
        order = [0, 1]
        for i in range(axes):
            order += [2 + axes + i, 2 + i]
        x = F.transpose(x, axes=tuple(order))
        return F.reshape(x, shape=(0, 0, *[-3] * axes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors})"


class PixelShuffle1D(_PixelShuffle):
    """Turns channels into width: (N, C·f, W) becomes (N, C, W·f).

    Parameters
    ----------
    factor : int or tuple of int
    """

    _axes = 1


class PixelShuffle2D(_PixelShuffle):
    """Turns channels into height and width: (N, C·f1·f2, H, W) becomes (N, C, H·f1, W·f2) (Shi et
    al. 2016).

    Parameters
    ----------
    factor : int or tuple of int
        By axis.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.gluon.contrib.nn.PixelShuffle2D((2, 3))(mx.nd.ones((1, 12, 3, 5))).shape
    (1, 2, 6, 15)
    """

    _axes = 2


class PixelShuffle3D(_PixelShuffle):
    """Turns channels into depth, height and width: (N, C·f1·f2·f3, D, H, W) becomes
    (N, C, D·f1, H·f2, W·f3).

    Parameters
    ----------
    factor : int or tuple of int
        By axis.
    """

    _axes = 3


__getattr__ = module_getattr(__name__)
