"""Blocks side by side, the identity, and batch normalisation over devices.

`Concurrent` and `HybridConcurrent` are the names of these containers in `gluon.contrib.nn`.
"""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ...context import num_gpus
from ..hybrid_block import HybridBlock
from .basic_layers import HybridSequential, Sequential
from .normalization import BatchNorm

__all__ = [
    "Concatenate",
    "Concurrent",
    "HybridConcatenate",
    "HybridConcurrent",
    "Identity",
    "SyncBatchNorm",
]


class Concurrent(Sequential):
    """Gives the input to every child and concatenates what they return.

    Parameters
    ----------
    axis : int
        Along which axis.
    """

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any, *args: Any) -> Any:
        return nd.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class HybridConcurrent(HybridSequential):
    """Gives the input to every child and concatenates what they return.

    Parameters
    ----------
    axis : int
        Along which axis.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet.gluon.nn import HybridConcurrent, Identity
    >>> net = HybridConcurrent(axis=1)
    >>> net.add(Identity(), Identity())
    >>> net(mx.nd.ones((2, 3))).shape
    (2, 6)
    """

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return F.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class Concatenate(Concurrent):
    """`Concurrent`, by its later name."""


class HybridConcatenate(HybridConcurrent):
    """`HybridConcurrent`, by its later name."""


class Identity(HybridBlock):
    """Returns its input."""

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x


class SyncBatchNorm(BatchNorm):
    """Batch normalisation over the batches of several devices (H. Zhang et al. 2018).

    While training, the layer's calls on all devices are computed together, once each device has
    its own. A call that the others do not join within a minute fails.

    Parameters
    ----------
    in_channels : int
        0: the first forward pass decides.
    num_devices : int, optional
        How many devices share a batch; by default the number of CUDA devices, or 1.
    momentum, epsilon, center, scale, use_global_stats, *_initializer
        As for `BatchNorm`.
    """

    def __init__(
        self,
        in_channels: int = 0,
        num_devices: int | None = None,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        **kwargs: Any,
    ) -> None:
        devices = num_devices or num_gpus() or 1
        if devices < 0:
            raise ValueError(f"SyncBatchNorm: invalid num_devices {devices}: expected at least 1")
        super().__init__(
            1,
            momentum,
            epsilon,
            center,
            scale,
            use_global_stats,
            beta_initializer,
            gamma_initializer,
            running_mean_initializer,
            running_variance_initializer,
            in_channels,
            **kwargs,
        )
        self._devices = devices

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        arrays = (x, gamma, beta, running_mean, running_var)
        if self._devices == 1:
            return super().hybrid_forward(F, *arrays)
        options = {key: value for key, value in self._kwargs.items() if key != "axis"}
        return F.contrib.SyncBatchNorm(
            *arrays, name="fwd", ndev=self._devices, key=self.prefix, **options
        )
