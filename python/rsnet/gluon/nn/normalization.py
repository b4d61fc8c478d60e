"""Layers that normalise: over the batch, a layer, an instance or groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...context import num_gpus
from ..hybrid_block import HybridBlock


class BatchNorm(HybridBlock):
    """Batch normalisation (Ioffe & Szegedy 2015): γ·(x - mean) / √(var + ε) + β by channel.

    While training mean and variance are those of the batch, and move the running ones; otherwise
    they are the running ones.

    Parameters
    ----------
    axis : int
        The axis of channels.
    momentum : float
        How much of the running statistics a step keeps.
    epsilon : float
    center, scale : bool
        Are β and γ learned? If not, they stay 0 and 1.
    use_global_stats : bool
        Use the running statistics while training too?
    beta_initializer, gamma_initializer : Initializer or str
    running_mean_initializer, running_variance_initializer : Initializer or str
    in_channels : int
        0: the first forward pass decides.
    """

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        self._axis = axis
        if in_channels:
            self.in_channels = in_channels

        def state(name: str, init: Any, learned: bool) -> Any:
            return self.params.get(
                name,
                grad_req="write" if learned else "null",
                shape=(in_channels,),
                init=init,
                allow_deferred_init=True,
                differentiable=learned,
            )

        self.gamma = state("gamma", gamma_initializer, scale)
        self.beta = state("beta", beta_initializer, center)
        self.running_mean = state("running_mean", running_mean_initializer, False)
        self.running_var = state("running_var", running_variance_initializer, False)

    def cast(self, dtype: Any) -> None:
        """Converts the parameters; those of float16 stay float32, as their sums need it."""
        super().cast("float32" if np.dtype(dtype) == np.float16 else dtype)

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        inside = ", ".join(f"{key}={value!r}" for key, value in self._kwargs.items())
        channels = (self.gamma.shape or (0,))[0] or None
        return f"{type(self).__name__}({inside}, in_channels={channels})"


class BatchNormReLU(BatchNorm):
    """Batch normalisation followed by max(·, 0)."""

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **states: Any) -> Any:
        return F.relu(super().hybrid_forward(F, x, *args, **states))


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


class _Normalization(HybridBlock):
    """Base of layers with γ and β but no running statistics."""

    def _make(
        self,
        channels: int,
        center: bool,
        scale: bool,
        beta_initializer: Any,
        gamma_initializer: Any,
    ) -> None:
        self._center = center
        self._scale = scale
        self.gamma = self.params.get(
            "gamma",
            grad_req="write" if scale else "null",
            shape=(channels,),
            init=gamma_initializer,
            allow_deferred_init=True,
        )
        self.beta = self.params.get(
            "beta",
            grad_req="write" if center else "null",
            shape=(channels,),
            init=beta_initializer,
            allow_deferred_init=True,
        )

    def _shown(self, **more: Any) -> str:
        inside = ", ".join(f"{key}={value!r}" for key, value in more.items())
        return f"{type(self).__name__}({inside}"


class _AxisNormalization(_Normalization):
    """Base of those with γ and β along an axis."""

    _axis: int
    _epsilon: float

    def __repr__(self) -> str:
        shown = self._shown(
            eps=self._epsilon, axis=self._axis, center=self._center, scale=self._scale
        )
        return f"{shown}, in_channels={(self.gamma.shape or (0,))[0]})"


class InstanceNorm(_AxisNormalization):
    """Normalises each channel of each instance (Ulyanov et al. 2016).

    Parameters
    ----------
    axis : int
        The axis of channels.
    epsilon : float
    center, scale : bool
        Are β and γ learned?
    beta_initializer, gamma_initializer : Initializer or str
    in_channels : int
        0: the first forward pass decides.
    """

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._axis = axis
        self._epsilon = epsilon
        self._make(in_channels, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        x = F.swapaxes(x, 1, self._axis)
        out = F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        return F.swapaxes(out, 1, self._axis)


class LayerNorm(_AxisNormalization):
    """Normalises along an axis (Ba et al. 2016).

    Parameters
    ----------
    axis : int
    epsilon : float
    center, scale : bool
        Are β and γ learned?
    beta_initializer, gamma_initializer : Initializer or str
    in_channels : int
        0: the first forward pass decides.
    """

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._axis = axis
        self._epsilon = epsilon
        self._make(in_channels, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(data, gamma=gamma, beta=beta, axis=self._axis, eps=self._epsilon)


class GroupNorm(_Normalization):
    """Normalises groups of channels (Wu & He 2018); γ and β by group.

    Parameters
    ----------
    num_groups : int
    epsilon : float
    center, scale : bool
        Are β and γ learned?
    beta_initializer, gamma_initializer : Initializer or str
    """

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._num_groups = num_groups
        self._epsilon = epsilon
        self._make(num_groups, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(
            data, gamma=gamma, beta=beta, num_groups=self._num_groups, eps=self._epsilon
        )

    def __repr__(self) -> str:
        shown = self._shown(
            eps=self._epsilon,
            num_groups=self._num_groups,
            center=self._center,
            scale=self._scale,
        )
        return f"{shown})"
