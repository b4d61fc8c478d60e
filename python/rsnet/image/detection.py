"""Augmenters of images and the boxes of their objects.

A label is an array of one row an object: class, left, top, right and bottom, as parts of the
image, and perhaps more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from ..ndarray import NDArray
from .augmenters import Augmenter, Described, ForceResizeAug, ResizeAug, colour_augmenters
from .functions import copyMakeBorder, fixed_crop

_Pair = tuple[NDArray, np.ndarray]


def __getattr__(name: str) -> object:
    # That module imports this one.
    if name == "ImageDetIter":
        from .detection_iterator import ImageDetIter

        return ImageDetIter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DetAugmenter(Described):
    """Changes an image and its label; the keyword arguments describe it in `dumps`."""

    def __call__(self, src: NDArray, label: np.ndarray) -> _Pair:
        """The changed image and label."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")


class DetBorrowAug(DetAugmenter):
    """An augmenter that moves no pixel, so that the label stays."""

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise TypeError(f"invalid augmenter {augmenter!r}: expected an Augmenter")
        super().__init__()
        self.augmenter = augmenter

    def dumps(self) -> Any:
        return [self.__class__.__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: NDArray, label: np.ndarray) -> _Pair:
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """One augmenter out of several, or none with probability `skip_prob`."""

    def __init__(self, aug_list: Any, skip_prob: float = 0) -> None:
        super().__init__(skip_prob=skip_prob)
        aug_list = list(aug_list) if isinstance(aug_list, (list, tuple)) else [aug_list]
        for aug in aug_list:
            if not isinstance(aug, DetAugmenter):
                raise ValueError(f"invalid augmenter {aug!r}: expected a DetAugmenter")
        self.aug_list = aug_list
        self.skip_prob = skip_prob if aug_list else 1

    def dumps(self) -> Any:
        return [self.__class__.__name__.lower(), [aug.dumps() for aug in self.aug_list]]

    def __call__(self, src: NDArray, label: np.ndarray) -> _Pair:
        if random.random() < self.skip_prob:
            return src, label
        return random.choice(self.aug_list)(src, label)


class DetHorizontalFlipAug(DetAugmenter):
    """Mirrors image and boxes with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray, label: np.ndarray) -> _Pair:
        if random.random() < self.p:
            src = nd.image.flip_left_right(src)
            label = label.copy()
            label[:, (1, 3)] = 1.0 - label[:, (3, 1)]
        return src, label


def _areas(boxes: np.ndarray) -> np.ndarray:
    """Areas of boxes (left, top, right, bottom)."""
    return np.maximum(0, boxes[:, 2] - boxes[:, 0]) * np.maximum(0, boxes[:, 3] - boxes[:, 1])


def _ranges(aspect_ratio_range: Any, area_range: Any) -> bool:
    """Are the ranges in order, and can anything be drawn from them?"""
    return (
        area_range[1] > 0
        and area_range[0] <= area_range[1]
        and 0 < aspect_ratio_range[0] <= aspect_ratio_range[1]
    )


class DetRandomCropAug(DetAugmenter):
    """A part of the image in which enough of the objects is.

    Parameters
    ----------
    min_object_covered : float
        Every object that the part meets has at least this share inside of it.
    aspect_ratio_range, area_range : (float, float)
        Ratio of the part's width and height, and its share of the image.
    min_eject_coverage : float
        Objects of which less is inside are lost.
    max_attempts : int
        If no part satisfies the conditions, the image stays as it is.
    """

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        if not isinstance(aspect_ratio_range, (tuple, list)):
            aspect_ratio_range = (aspect_ratio_range, aspect_ratio_range)
        if not isinstance(area_range, (tuple, list)):
            area_range = (area_range, 1.0)
        super().__init__(
            min_object_covered=min_object_covered,
            aspect_ratio_range=aspect_ratio_range,
            area_range=area_range,
            min_eject_coverage=min_eject_coverage,
            max_attempts=max_attempts,
        )
        self.min_object_covered = min_object_covered
        self.aspect_ratio_range, self.area_range = aspect_ratio_range, area_range
        self.min_eject_coverage, self.max_attempts = min_eject_coverage, max_attempts
        self.enabled = _ranges(aspect_ratio_range, area_range)

    def __call__(self, src: NDArray, label: np.ndarray) -> _Pair:
        if not self.enabled:
            return src, label
        height, width = src.shape[:2]
        for _ in range(self.max_attempts):
            box = self._proposal(height, width)
            if box is None or not self._satisfies(label, box, height, width):
                continue
            inside = self._inside(label, box, height, width)
            if inside is not None:
                return fixed_crop(src, *box), inside
        return src, label

    def _proposal(self, height: int, width: int) -> tuple[int, int, int, int] | None:
        """(left, top, width, height) of a part at random."""
        ratio = random.uniform(*self.aspect_ratio_range)
        area = random.uniform(self.area_range[0], min(self.area_range[1], 1.0)) * height * width
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if not (1 <= w <= width and 1 <= h <= height):
            return None
        return random.randint(0, width - w), random.randint(0, height - h), w, h

    @staticmethod
    def _covered(label: np.ndarray, box: Any, height: int, width: int) -> np.ndarray:
        """The share of each object inside of the part."""
        left, top, w, h = box
        low = np.array([left / width, top / height])
        high = np.array([(left + w) / width, (top + h) / height])
        both = np.concatenate(
            [np.maximum(label[:, 1:3], low), np.minimum(label[:, 3:5], high)], axis=1
        )
        areas = _areas(label[:, 1:5])
        return np.where(areas > 0, _areas(both) / np.maximum(areas, 1e-12), 0)

    def _satisfies(self, label: np.ndarray, box: Any, height: int, width: int) -> bool:
        covered = self._covered(label, box, height, width)
        covered = covered[covered > 0]
        return covered.size > 0 and float(covered.min()) > self.min_object_covered

    def _inside(self, label: np.ndarray, box: Any, height: int, width: int) -> np.ndarray | None:
        """The label of the part; None if no object remains."""
        left, top, w, h = box
        covered = self._covered(label, box, height, width)
        out = label[covered > self.min_eject_coverage].copy()
        if not len(out):
            return None
        out[:, (1, 3)] = ((out[:, (1, 3)] * width - left) / w).clip(0, 1)
        out[:, (2, 4)] = ((out[:, (2, 4)] * height - top) / h).clip(0, 1)
        return out


class DetRandomPadAug(DetAugmenter):
    """Puts the image somewhere on a larger one.

    Parameters
    ----------
    aspect_ratio_range, area_range : (float, float)
        Ratio of the new image's width and height, and its area as a multiple of the old one's.
    max_attempts : int
    pad_val : number or (number, number, number)
        The colour around.
    """

    def __init__(
        self,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: Any = (128, 128, 128),
    ) -> None:
        pad_val = pad_val if isinstance(pad_val, (list, tuple)) else (pad_val,)
        if not isinstance(aspect_ratio_range, (tuple, list)):
            aspect_ratio_range = (aspect_ratio_range, aspect_ratio_range)
        if not isinstance(area_range, (tuple, list)):
            area_range = (1.0, area_range)
        super().__init__(
            aspect_ratio_range=aspect_ratio_range,
            area_range=area_range,
            max_attempts=max_attempts,
            pad_val=pad_val,
        )
        self.aspect_ratio_range, self.area_range = aspect_ratio_range, area_range
        self.max_attempts, self.pad_val = max_attempts, pad_val
        self.enabled = _ranges(aspect_ratio_range, area_range) and area_range[1] > 1.0

    def __call__(self, src: NDArray, label: np.ndarray) -> _Pair:
        if not self.enabled:
            return src, label
        height, width = src.shape[:2]
        for _ in range(self.max_attempts):
            ratio = random.uniform(*self.aspect_ratio_range)
            area = random.uniform(max(1.0, self.area_range[0]), self.area_range[1]) * height * width
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if w < width or h < height or (w, h) == (width, height):
                continue
            left, top = random.randint(0, w - width), random.randint(0, h - height)
            margins = (top, h - height - top, left, w - width - left)
            out = label.copy()
            out[:, (1, 3)] = (out[:, (1, 3)] * width + left) / w
            out[:, (2, 4)] = (out[:, (2, 4)] * height + top) / h
            return copyMakeBorder(src, *margins, type=0, values=self.pad_val), out
        return src, label


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """Several `DetRandomCropAug`, of which one is chosen; a list gives each its own value.

    Examples
    --------
    >>> import rsnet as mx
    >>> aug = mx.image.CreateMultiRandCropAugmenter(min_object_covered=[0.1, 0.3, 0.5])
    >>> len(aug.aug_list)
    3
    """
    given = [min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts]
    lists = [value if isinstance(value, list) else [value] for value in given]
    count = max(len(values) for values in lists)
    names = (
        "min_object_covered", "aspect_ratio_range", "area_range", "min_eject_coverage",
        "max_attempts",
    )  # fmt: skip
    for name, values in zip(names, lists):
        if len(values) not in (1, count):
            raise ValueError(f"invalid {name} of {len(values)} values: expected 1 or {count}")
    lists = [values * count if len(values) == 1 else values for values in lists]
    return DetRandomSelectAug([DetRandomCropAug(*values) for values in zip(*lists)], skip_prob)


def CreateDetAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """The augmenters of an `ImageDetIter`, in order.

    `rand_crop` and `rand_pad` are probabilities; `area_range` is shared by crops (up to 1) and
    padding (from 1). The other arguments are those of `CreateAugmenter`, `DetRandomCropAug` and
    `DetRandomPadAug`.
    """
    augs: list[DetAugmenter] = []
    if resize > 0:
        augs.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        augs.append(
            CreateMultiRandCropAugmenter(
                min_object_covered, aspect_ratio_range, area_range, min_eject_coverage,
                max_attempts, skip_prob=1 - rand_crop,
            )
        )  # fmt: skip
    if rand_mirror:
        augs.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        pad = DetRandomPadAug(aspect_ratio_range, (1.0, area_range[1]), max_attempts, pad_val)
        augs.append(DetRandomSelectAug([pad], 1 - rand_pad))
    augs.append(DetBorrowAug(ForceResizeAug((data_shape[2], data_shape[1]), inter_method)))
    colours = colour_augmenters(
        brightness, contrast, saturation, hue, pca_noise, rand_gray, mean, std
    )
    return augs + [DetBorrowAug(aug) for aug in colours]
