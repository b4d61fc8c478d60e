"""Transforms of the colours of images (H, W, C)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import ndarray as nd
from ...block import Block
from ...hybrid_block import HybridBlock


class _Jitter(HybridBlock):
    """Base of changes by a random factor of 1 - amount to 1 + amount."""

    _operator = ""

    def __init__(self, amount: float) -> None:
        super().__init__()
        self._limits = (max(0.0, 1 - amount), 1 + amount)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return getattr(F.image, self._operator)(x, *self._limits)


class RandomBrightness(_Jitter):
    """Changes brightness by a random factor of 1 - brightness to 1 + brightness."""

    _operator = "random_brightness"

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness)


class RandomContrast(_Jitter):
    """Changes contrast by a random factor of 1 - contrast to 1 + contrast."""

    _operator = "random_contrast"

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast)


class RandomSaturation(_Jitter):
    """Changes saturation by a random factor of 1 - saturation to 1 + saturation."""

    _operator = "random_saturation"

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation)


class RandomHue(_Jitter):
    """Changes hue by a random factor of 1 - hue to 1 + hue."""

    _operator = "random_hue"

    def __init__(self, hue: float) -> None:
        super().__init__(hue)


class RandomColorJitter(HybridBlock):
    """Changes brightness, contrast, saturation and hue, in random order.

    Parameters
    ----------
    brightness, contrast, saturation, hue : float
        Greatest changes.
    """

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ) -> None:
        super().__init__()
        self._amounts = (brightness, contrast, saturation, hue)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_color_jitter(x, *self._amounts)


class RandomLighting(HybridBlock):
    """Adds noise along the principal components of natural images (Krizhevsky et al. 2012).

    Parameters
    ----------
    alpha : float
        Standard deviation.
    """

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_lighting(x, self._alpha)


class RandomGray(Block):
    """Makes it grey, in three equal channels of float32, with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self._p = p

    def forward(self, x: Any) -> Any:
        if np.random.uniform() >= self._p:
            return x
        luma = nd.array([0.299, 0.587, 0.114]).reshape((3, 1))  # Rec. 601
        grey = nd.dot(x.astype("float32"), luma)
        return nd.concat(grey, grey, grey, dim=-1)
