"""`ImageDetIter`: batches of images with the boxes of their objects."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from ..base import MXNetError
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from .detection import CreateDetAugmenter
from .iterator import ImageIter


class ImageDetIter(ImageIter):
    """Batches of images with the boxes of their objects.

    A record's label is ``[A, B, further header ..., objects]``: the header has A numbers, and each
    object B, of which the first five are class, left, top, right and bottom as parts of the image.
    A batch's label is (N, objects of the richest image, B), filled with -1.

    Parameters
    ----------
    batch_size, data_shape, path_imgrec, path_imglist, path_root, path_imgidx, shuffle, part_index,
    num_parts, imglist, data_name, label_name, last_batch_handle
        As in `ImageIter`.
    aug_list : list of DetAugmenter, optional
        By default those that `CreateDetAugmenter` makes of `kwargs`.

    Raises
    ------
    MXNetError
        A label does not have this form.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Any] | None = None,
        imglist: Sequence[Sequence[Any]] | None = None,
        data_name: str = "data",
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        if aug_list is None:
            aug_list = CreateDetAugmenter(data_shape, **kwargs)
        elif kwargs:
            raise TypeError(
                f"ImageDetIter: invalid keywords {sorted(kwargs)}: expected none beside aug_list"
            )
        super().__init__(
            batch_size, data_shape, 1, path_imgrec, path_imglist, path_root, path_imgidx, shuffle,
            part_index, num_parts, aug_list, imglist, data_name, label_name,
            last_batch_handle=last_batch_handle,
        )  # fmt: skip
        self.label_shape = self._estimate_label_shape()
        self._describe_label()

    def _describe_label(self) -> None:
        name = self.provide_label[0].name
        self.provide_label = [DataDesc(name, (self.batch_size, *self.label_shape))]

    def _parse_label(self, label: Any) -> np.ndarray:
        """The objects of a label, those without an area left out."""
        raw = np.asarray(label, "float32").reshape(-1)
        expected = "[header width, object width, header ..., objects of at least 5 numbers ...]"
        if raw.size < 7 or raw[0] < 2 or raw[1] < 5 or raw[0] > raw.size:
            raise MXNetError(f"invalid label {raw[:8].tolist()}: expected {expected}")
        header, width = int(raw[0]), int(raw[1])
        if (raw.size - header) % width:
            raise MXNetError(f"invalid label of {raw.size} numbers: expected {expected}")
        objects = raw[header:].reshape(-1, width)
        objects = objects[(objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])]
        if not len(objects):
            raise MXNetError("invalid label: expected an object with an area")
        return objects

    def _estimate_label_shape(self) -> tuple[int, int]:
        """(objects of the richest image, numbers of an object)."""
        most, width = 0, 5
        try:
            while True:
                objects = self._parse_label(self.next_sample()[0])
                most, width = max(most, len(objects)), max(width, objects.shape[1])
        except StopIteration:
            pass
        self.hard_reset()
        return most, width

    def check_label_shape(self, label_shape: Sequence[int]) -> None:
        """An error unless labels of this shape hold the objects."""
        if len(label_shape) != 2:
            raise ValueError(f"invalid label_shape {tuple(label_shape)}: expected 2 extents")
        if label_shape[0] < self.label_shape[0]:
            raise ValueError(
                f"invalid number of objects {label_shape[0]} in label_shape: expected at least "
                f"{self.label_shape[0]}"
            )
        if label_shape[1] != self.label_shape[1]:
            raise ValueError(
                f"invalid width {label_shape[1]} of objects in label_shape: expected "
                f"{self.label_shape[1]}"
            )

    def reshape(
        self, data_shape: Sequence[int] | None = None, label_shape: Sequence[int] | None = None
    ) -> None:
        """Sets the shape of an image or of a label in a batch.

        Augmenters keep their size, which `next` compares with `data_shape`: give an `auglist` that
        makes images of the new shape.
        """
        if data_shape is not None:
            self.check_data_shape(data_shape)
            desc = self.provide_data[0]
            self.data_shape = tuple(data_shape)
            shape = (self.batch_size, *self.data_shape)
            self.provide_data = [DataDesc(desc.name, shape, desc.dtype)]
        if label_shape is not None:
            self.check_label_shape(label_shape)
            self.label_shape = (label_shape[0], label_shape[1])
            self._describe_label()

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Gives two iterators the same label shape, for training and validation."""
        if not isinstance(it, ImageDetIter):
            raise TypeError(f"invalid iterator {it!r}: expected an ImageDetIter")
        count = max(self.label_shape[0], it.label_shape[0])
        width = max(self.label_shape[1], it.label_shape[1])
        for one in (self, it):
            if one.label_shape[0] < count or one.label_shape[1] < width:
                one.label_shape = (count, width)
                one._describe_label()
        if verbose:
            logging.info("Resized label_shape to (%d, %d).", count, width)
        return it

    def augmentation_transform(self, data: NDArray, label: Any = None) -> Any:
        """Applies the augmenters to an image and its label."""
        for aug in self.auglist:
            data, label = aug(data, label)
        return data, label

    def _sample(self, data: NDArray, label: Any) -> tuple[NDArray, Any]:
        data, objects = self.augmentation_transform(data, self._parse_label(label))
        self._check_augmented(data)
        return self.postprocess_data(data), objects

    def _batch(self, samples: list[tuple[NDArray, Any]], pad: int) -> DataBatch:
        data = nd.stack(*[data for data, _ in samples], axis=0).astype(self.dtype)
        labels = np.full((self.batch_size, *self.label_shape), -1, "float32")
        for row, (_, objects) in zip(labels, samples):
            objects = objects[: len(row)]
            row[: len(objects), : objects.shape[1]] = objects
        return DataBatch([data], [nd.array(labels)], pad=pad)

    def draw_next(
        self,
        color: Any = None,
        thickness: int = 2,
        mean: Any = None,
        std: Any = None,
        clip: bool = True,
        waitKey: Any = None,
        window_name: str = "draw_next",
        id2labels: Any = None,
    ) -> Iterator[np.ndarray]:
        """Images (H, W, 3) with the boxes drawn, one after the other.

        Parameters
        ----------
        color : (number, number, number), optional
            Of the boxes; by default one per class.
        thickness : int
            Of the lines, in pixels.
        mean, std : array-like, optional
            Undo a normalisation; True stands for ImageNet's.
        clip : bool
            Cut values to 0 to 255.
        waitKey, window_name, id2labels
            Accepted for compatibility: no window is opened, and no names are drawn.
        """
        from .augmenters import statistics

        mean, std = statistics(mean, std)
        while True:
            try:
                batch = self.next()
            except StopIteration:
                return
            labels = batch.label[0].asnumpy() if batch.label else ()
            for data, label in zip(batch.data[0].asnumpy(), labels):
                image = data.transpose(1, 2, 0) * (1 if std is None else np.asarray(std))
                image = image + (0 if mean is None else np.asarray(mean))
                image = np.clip(image, 0, 255) if clip else image
                for item in label[label[:, 0] >= 0]:
                    _draw_box(image, item[1:5], _colour(color, int(item[0])), thickness)
                yield image


def _colour(color: Any, kind: int) -> Any:
    """The colour given, or one of the class."""
    return np.random.RandomState(kind).randint(0, 256, 3) if color is None else color


def _draw_box(image: np.ndarray, box: np.ndarray, color: Any, thickness: int) -> None:
    height, width = image.shape[:2]
    left, right = (int(v * width) for v in box[[0, 2]])
    top, bottom = (int(v * height) for v in box[[1, 3]])
    inner = max(thickness, 1)
    image[top : top + inner, left:right] = color
    image[max(bottom - inner, 0) : bottom, left:right] = color
    image[top:bottom, left : left + inner] = color
    image[top:bottom, max(right - inner, 0) : right] = color
