"""Augmenters: objects that change one image, most of them at random."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from .._numbers import check_number, whole_numbers
from ..base import listed
from ..ndarray import NDArray, array
from .functions import (
    center_crop,
    choose_interp,
    color_normalize,
    imresize,
    random_crop,
    random_size_crop,
    resize_short,
)

#: Shares of red, green and blue in the lightness.
LUMA = np.array([[[0.299, 0.587, 0.114]]], "float32")
#: Mean and standard deviation of ImageNet's pixels.
IMAGENET_MEAN = np.array([123.68, 116.28, 103.53], "float32")
IMAGENET_STD = np.array([58.395, 57.12, 57.375], "float32")
#: Principal colours of ImageNet's pixels (A. Krizhevsky et al., 2012).
EIGVAL = np.array([55.46, 4.794, 1.148])
EIGVEC = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)


def plain(value: Any) -> Any:
    """The value as `json` takes it."""
    if isinstance(value, NDArray):
        value = value.asnumpy()
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


class Described:
    """What is described by its name and parameters; the keyword arguments are the latter."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {name: plain(value) for name, value in kwargs.items()}

    def dumps(self) -> Any:
        """Name and parameters as text.

        Examples
        --------
        >>> import rsnet as mx
        >>> mx.image.ResizeAug(224).dumps()
        '["resizeaug", {"size": 224, "interp": 2}]'
        """
        return json.dumps([self.__class__.__name__.lower(), self._kwargs])


class Augmenter(Described):
    """Changes an image; the keyword arguments describe it in `dumps`."""

    def __call__(self, src: NDArray) -> NDArray:
        """The changed image."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")


class SequentialAug(Augmenter):
    """Augmenters one after the other."""

    def __init__(self, ts: Sequence[Augmenter]) -> None:
        super().__init__()
        self.ts = listed(ts, "ts", "a list of Augmenters")

    def dumps(self) -> Any:
        return [self.__class__.__name__.lower(), [aug.dumps() for aug in self.ts]]

    def __call__(self, src: NDArray) -> NDArray:
        for aug in self.ts:
            src = aug(src)
        return src


class RandomOrderAug(SequentialAug):
    """Augmenters in random order: each call shuffles the order of the call before, as MXNet's do,
    so that the same seed gives the same orders.
    """

    def __call__(self, src: NDArray) -> NDArray:
        random.shuffle(self.ts)
        return super().__call__(src)


class ResizeAug(Augmenter):
    """Resizes the shorter edge to `size`."""

    def __init__(self, size: int, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return resize_short(src, self.size, self.interp)


class ForceResizeAug(Augmenter):
    """Resizes to `size` (width, height) regardless of the ratio."""

    def __init__(self, size: Sequence[int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        sizes = (src.shape[0], src.shape[1], self.size[1], self.size[0])
        return imresize(src, self.size[0], self.size[1], choose_interp(self.interp, sizes))


class RandomCropAug(Augmenter):
    """A part of `size` (width, height) anywhere; see `random_crop`."""

    def __init__(self, size: Sequence[int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return random_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """A part of random area and ratio, resized to `size`; see `random_size_crop`."""

    def __init__(
        self, size: Sequence[int], area: Any, ratio: Sequence[float], interp: int = 2, **kwargs: Any
    ) -> None:
        area = kwargs.pop("min_area", area)
        if kwargs:
            raise TypeError(f"RandomSizedCropAug got unexpected arguments {sorted(kwargs)}")
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size, self.area, self.ratio, self.interp = size, area, ratio, interp

    def __call__(self, src: NDArray) -> NDArray:
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class CenterCropAug(Augmenter):
    """The middle of `size` (width, height)."""

    def __init__(self, size: Sequence[int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return center_crop(src, self.size, self.interp)[0]


class BrightnessJitterAug(Augmenter):
    """Multiplies by a factor from 1 plus or minus `brightness`."""

    def __init__(self, brightness: float) -> None:
        check_number("brightness", brightness)
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: NDArray) -> NDArray:
        return src * (1.0 + random.uniform(-self.brightness, self.brightness))


class ContrastJitterAug(Augmenter):
    """Moves pixels away from the mean lightness, or to it, by a factor from 1 plus or minus
    `contrast`.
    """  # fmt: skip

    def __init__(self, contrast: float) -> None:
        check_number("contrast", contrast)
        super().__init__(contrast=contrast)
        self.contrast = contrast

    def __call__(self, src: NDArray) -> NDArray:
        alpha = 1.0 + random.uniform(-self.contrast, self.contrast)
        mean = nd.sum(src * _luma()) / (src.size / 3)
        return src * alpha + (1.0 - alpha) * mean


class SaturationJitterAug(Augmenter):
    """Moves pixels away from their lightness, or to it, by a factor from 1 plus or minus
    `saturation`.
    """  # fmt: skip

    def __init__(self, saturation: float) -> None:
        check_number("saturation", saturation)
        super().__init__(saturation=saturation)
        self.saturation = saturation

    def __call__(self, src: NDArray) -> NDArray:
        alpha = 1.0 + random.uniform(-self.saturation, self.saturation)
        grey = nd.sum(src * _luma(), axis=2, keepdims=True)
        return nd.broadcast_add(src * alpha, grey * (1.0 - alpha))


class HueJitterAug(Augmenter):
    """Turns the hue by up to `hue`, of which 1 is half of the circle.

    The turn is one of the colour plane of YIQ: lightness stays.

    References
    ----------
    https://beesbuzz.biz/code/16-hsv-color-transforms
    """

    def __init__(self, hue: float) -> None:
        check_number("hue", hue)
        super().__init__(hue=hue)
        self.hue = hue
        self.tyiq = np.array(
            [[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]]
        )
        self.ityiq = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])

    def __call__(self, src: NDArray) -> NDArray:
        angle = random.uniform(-self.hue, self.hue) * np.pi
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
        return nd.dot(src, array((self.ityiq @ turn @ self.tyiq).T, dtype=src.dtype))


class ColorJitterAug(RandomOrderAug):
    """Changes of brightness, contrast and saturation in random order; those of 0 are left out."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        ts: list[Augmenter] = []
        if brightness > 0:
            ts.append(BrightnessJitterAug(brightness))
        if contrast > 0:
            ts.append(ContrastJitterAug(contrast))
        if saturation > 0:
            ts.append(SaturationJitterAug(saturation))
        super().__init__(ts)


class LightingAug(Augmenter):
    """Adds the principal colours `eigvec` with weights from a normal distribution."""

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, np.asarray(eigval), np.asarray(eigvec)

    def __call__(self, src: NDArray) -> NDArray:
        alpha = np.random.normal(0, self.alphastd, size=(3,))
        return nd.broadcast_add(src, array(self.eigvec @ (self.eigval * alpha), dtype=src.dtype))


class ColorNormalizeAug(Augmenter):
    """``(src - mean) / std``."""

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = mean if mean is None or isinstance(mean, NDArray) else array(mean)
        self.std = std if std is None or isinstance(std, NDArray) else array(std)

    def __call__(self, src: NDArray) -> NDArray:
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Takes the colours away with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        # Shares as they are in MXNet.
        self.mat = np.tile(np.array([[0.21], [0.72], [0.07]], "float32"), (1, 3))

    def __call__(self, src: NDArray) -> NDArray:
        if random.random() < self.p:
            src = nd.dot(src, array(self.mat, dtype=src.dtype))
        return src


class HorizontalFlipAug(Augmenter):
    """Mirrors with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        return nd.image.flip_left_right(src) if random.random() < self.p else src


class CastAug(Augmenter):
    """Converts to another dtype."""

    def __init__(self, typ: Any = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: NDArray) -> NDArray:
        return src.astype(self.typ)


def _luma() -> NDArray:
    return array(LUMA)


def statistics(mean: Any, std: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of `CreateAugmenter`: True stands for those of ImageNet."""
    mean = IMAGENET_MEAN if mean is True else mean
    std = IMAGENET_STD if std is True else std
    for name, value in (("mean", mean), ("std", std)):
        if value is not None and np.shape(plain(value)) not in ((1,), (3,)):
            got = np.shape(plain(value))
            raise ValueError(f"invalid {name} of shape {got}: expected True, or 1 or 3 numbers")
    return mean, std


def colour_augmenters(
    brightness: float, contrast: float, saturation: float, hue: float, pca_noise: float,
    rand_gray: float, mean: Any, std: Any,
) -> list[Augmenter]:  # fmt: skip
    """The augmenters of an image that has its size: conversion, colour, normalisation."""
    augs: list[Augmenter] = [CastAug()]
    if brightness or contrast or saturation:
        augs.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        augs.append(HueJitterAug(hue))
    if pca_noise > 0:
        augs.append(LightingAug(pca_noise, EIGVAL, EIGVEC))
    if rand_gray > 0:
        augs.append(RandomGrayAug(rand_gray))
    mean, std = statistics(mean, std)
    if mean is not None or std is not None:
        augs.append(ColorNormalizeAug(mean, std))
    return augs


def CreateAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """The augmenters of an `ImageIter`, in order.

    Parameters
    ----------
    data_shape : (int, int, int)
        (channels, height, width) of the images.
    resize : int
        Size of the shorter edge before the crop; 0 leaves it.
    rand_crop, rand_resize, rand_mirror : bool
        Take the part anywhere; of random area and ratio too; mirror half of the images.
    mean, std : array-like of 1 or 3, or True
        For normalisation; True stands for those of ImageNet.
    brightness, contrast, saturation, hue : float
        How far colours are changed.
    pca_noise : float
        Standard deviation of the lighting's weights.
    rand_gray : float
        Probability that the colours are taken away.
    inter_method : int
        0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 by size, 10 random.

    Examples
    --------
    >>> import rsnet as mx
    >>> for aug in mx.image.CreateAugmenter((3, 8, 8), resize=10, rand_mirror=True):
    ...     print(aug.dumps())
    ["resizeaug", {"size": 10, "interp": 2}]
    ["centercropaug", {"size": [8, 8], "interp": 2}]
    ["horizontalflipaug", {"p": 0.5}]
    ["castaug", {"type": "float32"}]
    """
    augs: list[Augmenter] = []
    if resize > 0:
        augs.append(ResizeAug(resize, inter_method))
    shape = whole_numbers(data_shape, "data_shape")
    if len(shape) != 3:
        raise ValueError(f"invalid data_shape {shape}: expected (channels, height, width)")
    size = (shape[2], shape[1])
    if rand_resize:
        if not rand_crop:
            raise ValueError("invalid rand_crop False: expected True with rand_resize")
        ratio = (3.0 / 4.0, 4.0 / 3.0)
        augs.append(RandomSizedCropAug(size, 0.08, ratio, inter_method))
    elif rand_crop:
        augs.append(RandomCropAug(size, inter_method))
    else:
        augs.append(CenterCropAug(size, inter_method))
    if rand_mirror:
        augs.append(HorizontalFlipAug(0.5))
    return augs + colour_augmenters(
        brightness, contrast, saturation, hue, pca_noise, rand_gray, mean, std
    )
