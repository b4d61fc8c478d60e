"""Transforms of images (H, W, C): conversions, crops, flips; changes of colour are in `_colour`.

Transforms that depend on nothing but the image are hybrid blocks over the operators ``nd.image.*``;
`Compose` makes one graph of those that follow one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .... import ndarray as nd
from ....base import listed, shown
from ....image.functions import scale_down
from ...block import Block
from ...hybrid_block import HybridBlock
from ...nn import HybridSequential, Sequential
from ._colour import (
    RandomBrightness,
    RandomColorJitter,
    RandomContrast,
    RandomGray,
    RandomHue,
    RandomLighting,
    RandomSaturation,
)

__all__ = [
    "Cast",
    "CenterCrop",
    "Compose",
    "CropResize",
    "HybridCompose",
    "Normalize",
    "RandomApply",
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomGray",
    "RandomHue",
    "RandomLighting",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "Resize",
    "Rotate",
    "ToTensor",
]


class Compose(Sequential):
    """Transforms one after the other.

    Parameters
    ----------
    transforms : list of callable

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet.gluon.data.vision import transforms
    >>> convert = transforms.Compose([transforms.Cast("float32"), lambda x: x / 255])
    >>> convert(mx.nd.array([0, 255], dtype="uint8")).asnumpy().tolist()
    [0.0, 1.0]
    """

    def __init__(self, transforms: Iterable[Any]) -> None:
        super().__init__()
        hybrid: list[Any] = []

        def close() -> None:
            if len(hybrid) == 1:
                self.add(hybrid[0])
                hybrid[0].hybridize()
            elif hybrid:
                together = HybridSequential()
                together.add(*hybrid)
                together.hybridize()
                self.add(together)
            hybrid.clear()

        for transform in listed(transforms, "transforms", "a list of transforms"):
            if not callable(transform):
                raise TypeError(f"invalid transform {shown(transform)}: expected a callable")
            if isinstance(transform, HybridBlock):
                hybrid.append(transform)
                continue
            close()
            self.add(transform if isinstance(transform, Block) else _Called(transform))
        close()


class HybridCompose(HybridSequential):
    """Hybrid transforms one after the other, as one graph."""

    def __init__(self, transforms: Iterable[Any]) -> None:
        super().__init__()
        for transform in transforms:
            self.add(transform)
        self.hybridize()


class _Called(Block):
    """A function as a block."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any) -> Any:
        return self._function(*args)


class Cast(HybridBlock):
    """Converts to another dtype."""

    def __init__(self, dtype: Any = "float32") -> None:
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, *args: Any) -> Any:
        x, *rest = args
        x = F.cast(x, self._dtype)
        return (x, *rest) if rest else x


class RandomApply(Sequential):
    """Applies a transform with probability `p`."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, x: Any, *args: Any) -> Any:
        return x if np.random.uniform() > self.p else self.transforms(x)


class ToTensor(HybridBlock):
    """Images (H, W, C) of 0 to 255 to float32 (C, H, W) of 0 to 1; also batches (N, H, W, C)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.to_tensor(x)


class Normalize(HybridBlock):
    """(x - mean) / std by channel, for what `ToTensor` returns.

    Parameters
    ----------
    mean, std : float or tuple of float
    """

    def __init__(self, mean: Any = 0.0, std: Any = 1.0) -> None:
        super().__init__()
        self._mean = mean
        self._std = std

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.normalize(x, self._mean, self._std)


class Rotate(Block):
    """Rotates about the centre: images (C, H, W) of float32, or batches of them.

    Parameters
    ----------
    rotation_degrees : float
    zoom_in, zoom_out : bool
        Zoom until no border is seen, or until the whole image is?
    """

    def __init__(
        self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False
    ) -> None:
        super().__init__()
        self._args = (rotation_degrees, zoom_in, zoom_out)

    def forward(self, x: Any) -> Any:
        return _rotated(x, *self._args)


def _rotated(x: Any, degrees: float, zoom_in: bool, zoom_out: bool) -> Any:
    if np.dtype(x.dtype) != np.float32:
        raise TypeError(
            f"invalid dtype {np.dtype(x.dtype).name} of the image: expected float32, as after "
            "ToTensor"
        )
    from .... import image

    return image.imrotate(x, degrees, zoom_in=zoom_in, zoom_out=zoom_out)


class RandomRotation(Block):
    """Rotates by a random angle, see `Rotate`.

    Parameters
    ----------
    angle_limits : (float, float)
        In degrees.
    zoom_in, zoom_out : bool
    rotate_with_proba : float
        Probability of being rotated.
    """

    def __init__(
        self,
        angle_limits: Any,
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ) -> None:
        super().__init__()
        lower, upper = angle_limits
        if lower >= upper:
            raise ValueError(
                f"invalid angle_limits {angle_limits!r}: expected the lower angle first"
            )
        if not 0 <= rotate_with_proba <= 1:
            raise ValueError(
                f"invalid rotate_with_proba {rotate_with_proba}: expected a probability from 0 to 1"
            )
        self._limits = (lower, upper)
        self._zoom = (zoom_in, zoom_out)
        self._probability = rotate_with_proba

    def forward(self, x: Any) -> Any:
        if np.random.random() > self._probability:
            return x
        return _rotated(x, float(np.random.uniform(*self._limits)), *self._zoom)


def _pair(size: Any) -> tuple[int, int]:
    """Width and height."""
    try:
        pair = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    except (TypeError, ValueError, IndexError):
        raise TypeError(f"invalid size {shown(size)}: expected an int or (width, height)") from None
    if min(pair) < 1:
        raise ValueError(f"invalid size {size}: expected at least 1")
    return pair


def _extent(x: Any) -> tuple[int, int]:
    """Height and width of an image or a batch."""
    return x.shape[-3], x.shape[-2]


def _cropped(x: Any, left: int, top: int, width: int, height: int) -> Any:
    return nd.image.crop(x, x=left, y=top, width=width, height=height)


def _resized(x: Any, size: tuple[int, int], interpolation: int) -> Any:
    return nd.image.resize(x, size, False, interpolation)


class RandomResizedCrop(Block):
    """Crops a random part and resizes it.

    Parameters
    ----------
    size : int or (int, int)
        Width and height of the result.
    scale : (float, float)
        Limits of the part's area, as a share of the image's.
    ratio : (float, float)
        Limits of the part's width divided by its height.
    interpolation : int
        0: nearest, 1: bilinear, and so on, see `image.imresize`.
    """

    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: Any = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: int = 1,
    ) -> None:
        super().__init__()
        self._size = _pair(size)
        self._scale = scale if isinstance(scale, (tuple, list)) else (scale, 1.0)
        self._ratio = ratio
        self._interpolation = interpolation

    def forward(self, x: Any) -> Any:
        height, width = _extent(x)
        left, top, w, h = self._part(width, height)
        return _resized(_cropped(x, left, top, w, h), self._size, self._interpolation)

    def _part(self, width: int, height: int) -> tuple[int, int, int, int]:
        """A random part; after ten failures the largest in the middle."""
        for _ in range(10):
            area = np.random.uniform(*self._scale) * width * height
            log_ratio = np.log(np.asarray(self._ratio, dtype=float))
            ratio = math.exp(np.random.uniform(*log_ratio))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left = int(np.random.randint(0, width - w + 1))
                top = int(np.random.randint(0, height - h + 1))
                return left, top, w, h
        low, high = self._ratio
        w, h = min(width, round(height * high)), min(height, round(width / low))
        return (width - w) // 2, (height - h) // 2, w, h


class CropResize(HybridBlock):
    """Crops a part and, if a size is given, resizes it.

    Parameters
    ----------
    x, y : int
        Left and upper edge of the part.
    width, height : int
    size : int or (int, int), optional
        Width and height of the result.
    interpolation : int, optional
    """

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Any = None, interpolation: Any = None
    ) -> None:
        super().__init__()
        self._part = (x, y, width, height)
        self._size = size
        self._interpolation = interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        left, top, width, height = self._part
        out = F.image.crop(x, x=left, y=top, width=width, height=height)
        if self._size is not None:
            out = F.image.resize(out, self._size, False, self._interpolation or 1)
        return out


class CenterCrop(Block):
    """Crops the middle; a smaller image is resized.

    Parameters
    ----------
    size : int or (int, int)
        Width and height of the result.
    interpolation : int
    """

    def __init__(self, size: Any, interpolation: int = 1) -> None:
        super().__init__()
        self._size = _pair(size)
        self._interpolation = interpolation

    def forward(self, x: Any) -> Any:
        return _placed_crop(x, self._size, self._interpolation, lambda free: free // 2)


class RandomCrop(Block):
    """Crops a random place; a smaller image is resized.

    Parameters
    ----------
    size : int or (int, int)
        Width and height of the result.
    pad : int, optional
        Pixels of 0 to put around the image first.
    interpolation : int
    """

    def __init__(self, size: Any, pad: int | None = None, interpolation: int = 1) -> None:
        super().__init__()
        self._size = _pair(size)
        self._pad = pad
        self._interpolation = interpolation

    def forward(self, x: Any) -> Any:
        if self._pad:
            p = self._pad
            padded = np.pad(x.asnumpy(), ((p, p), (p, p), (0, 0)))
            x = nd.array(padded, dtype=padded.dtype)
        place = lambda free: int(np.random.randint(free + 1))  # noqa: E731
        return _placed_crop(x, self._size, self._interpolation, place)


def _placed_crop(
    x: Any, size: tuple[int, int], interpolation: int, place: Callable[[int], int]
) -> Any:
    """Crops where `place` says, of what is left over on an axis, and resizes if need be."""
    height, width = _extent(x)
    inner_w, inner_h = scale_down((width, height), size)
    part = _cropped(x, place(width - inner_w), place(height - inner_h), inner_w, inner_h)
    return part if (inner_w, inner_h) == size else _resized(part, size, interpolation)


class Resize(HybridBlock):
    """Resizes.

    Parameters
    ----------
    size : int or (int, int)
        Width and height of the result.
    keep_ratio : bool
        With an int: make the shorter edge that long, and keep the ratio?
    interpolation : int
    """

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1) -> None:
        super().__init__()
        self._keep = keep_ratio
        self._size = size
        self._interpolation = interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.resize(x, self._size, self._keep, self._interpolation)


class RandomFlipLeftRight(HybridBlock):
    """Mirrors left and right with probability 1/2."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_flip_left_right(x)


class RandomFlipTopBottom(HybridBlock):
    """Mirrors top and bottom with probability 1/2."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_flip_top_bottom(x)
