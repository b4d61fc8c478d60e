"""Rules that fill one parameter by its shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import random
from .._numbers import check_number
from ..ndarray import NDArray, array
from .base import Initializer, bilinear, register

__all__ = [
    "Bilinear",
    "Constant",
    "LSTMBias",
    "MSRAPrelu",
    "Normal",
    "One",
    "Orthogonal",
    "Uniform",
    "Xavier",
    "Zero",
]


@register("zeros")
class Zero(Initializer):
    """All zeros."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0


@register("ones")
class One(Initializer):
    """All ones."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0


@register()
class Constant(Initializer):
    """All `value`: a number, or anything that broadcasts to the parameter."""

    def __init__(self, value: Any = 0.0) -> None:
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value


@register()
class Uniform(Initializer):
    """Uniform on [-scale, scale)."""

    def __init__(self, scale: float = 0.07) -> None:
        check_number("scale", scale)
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        random.uniform(-self.scale, self.scale, shape=arr.shape, dtype=arr.dtype, out=arr)


@register()
class Normal(Initializer):
    """Normal with mean 0 and standard deviation `sigma`."""

    def __init__(self, sigma: float = 0.01) -> None:
        check_number("sigma", sigma)
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, name: str, arr: NDArray) -> None:
        random.normal(0, self.sigma, shape=arr.shape, dtype=arr.dtype, out=arr)


@register()
class Orthogonal(Initializer):
    """`scale` times a random matrix with orthonormal rows or columns (Saxe, arXiv:1312.6120)."""

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        rows, cols = arr.shape[0], int(np.prod(arr.shape[1:]))
        if self.rand_type == "uniform":
            start = random.uniform(-1.0, 1.0, shape=(rows, cols)).asnumpy()
        else:
            start = random.normal(0.0, 1.0, shape=(rows, cols)).asnumpy()
        u, _, v = np.linalg.svd(start, full_matrices=False)
        q = u if u.shape == start.shape else v
        arr[:] = array((self.scale * q).reshape(arr.shape), dtype=arr.dtype)


@register()
class Xavier(Initializer):
    """Spread that keeps the size of signals through a layer (Glorot and Bengio, AISTATS 2010).

    Parameters
    ----------
    rnd_type : {'uniform', 'gaussian'}
        Uniform on [-s, s) or normal with deviation s.
    factor_type : {'avg', 'in', 'out'}
        Which fan divides `magnitude`: s = sqrt(magnitude / fan).
    magnitude : float
        Scale of the variance.

    Raises
    ------
    ValueError
        At the call, for a weight with fewer than two axes or an unknown type.
    """

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3
    ) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        shape = arr.shape
        if len(shape) < 2:
            raise ValueError(f"Xavier: invalid shape {shape} of '{name}': expected at least 2 axes")
        area = float(np.prod(shape[2:]))
        fan_in, fan_out = shape[1] * area, shape[0] * area
        fans = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}
        if self.factor_type not in fans:
            raise ValueError(
                f"invalid factor_type {self.factor_type!r}: expected 'avg', 'in' or 'out'"
            )
        scale = float(np.sqrt(self.magnitude / fans[self.factor_type]))
        if self.rnd_type == "uniform":
            random.uniform(-scale, scale, shape=shape, dtype=arr.dtype, out=arr)
        elif self.rnd_type == "gaussian":
            random.normal(0, scale, shape=shape, dtype=arr.dtype, out=arr)
        else:
            raise ValueError(
                f"invalid rnd_type {self.rnd_type!r}: expected 'uniform' or 'gaussian'"
            )


@register()
class MSRAPrelu(Xavier):
    """Xavier for rectifiers of negative slope `slope` (He et al., arXiv:1502.01852)."""

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register()
class Bilinear(Initializer):
    """The kernel of bilinear upsampling, for Deconvolution weights (N, C, H, W)."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = bilinear(arr.shape)


@register()
class LSTMBias(Initializer):
    """Zeros, with the forget gate (second quarter) at `forget_bias`."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        quarter = arr.shape[0] // 4
        arr[:] = 0.0
        arr[quarter : 2 * quarter] = self.forget_bias
