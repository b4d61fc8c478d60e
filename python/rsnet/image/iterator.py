"""`ImageIter`: batches of images from record files, list files or lists, by Python's augmenters."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from .. import recordio
from .._numbers import integer
from ..base import MXNetError, file_error
from ..io import DataBatch, DataDesc, DataIter
from ..io.base import check_part
from ..ndarray import NDArray
from .augmenters import CreateAugmenter
from .functions import imdecode
from .list_files import images_by_id


def _unpacked(payload: bytes, record: str) -> tuple[recordio.IRHeader, bytes]:
    """Header and image of a record, which errors name."""
    try:
        return recordio.unpack(payload)
    except MXNetError as error:
        # The error itself says what was expected.
        error.args = (f"{record}: {error}",)
        raise


class ImageIter(DataIter):
    """Batches of images from a record file, a list file or a list.

    Parameters
    ----------
    batch_size : int
    data_shape : (int, int, int)
        (channels, height, width); channels is 3.
    label_width : int
        Labels of an image.
    path_imgrec, path_imgidx : str, optional
        A record file, and its index: needed to shuffle or to divide it.
    path_imglist : str, optional
        A list file; the paths in it are below `path_root`. With a record file, of which it takes
        the labels' place, ids are the keys of the index.
    path_root : str, optional
    shuffle : bool
        Shuffle in every epoch.
    part_index, num_parts : int
        Read one part of several.
    aug_list : list of Augmenter, optional
        By default those that `CreateAugmenter` makes of `kwargs`.
    imglist : list, optional
        Lists of labels and a path each.
    data_name, label_name : str
    dtype : str or type
        dtype of the labels, and of the images.
    last_batch_handle : {'pad', 'discard', 'roll_over'}
        A short last batch is filled from the epoch's head, dropped, or moved to the next epoch.
    **kwargs
        Arguments of `CreateAugmenter`.

    Raises
    ------
    ValueError
        Parameters that do not fit together.
    MXNetError
        A file cannot be read. Images that cannot be decoded are skipped, with a message to
        `logging`, and counted in `skipped`.

    Examples
    --------
    >>> import os, tempfile, rsnet as mx
    >>> path = os.path.join(tempfile.mkdtemp(), "a.png")
    >>> picture = mx.nd.zeros((9, 9, 3), dtype="uint8")
    >>> with open(path, "wb") as file:
    ...     n = file.write(mx.recordio.encode_image(picture, ".png", 3))
    >>> images = mx.image.ImageIter(1, (3, 8, 8), imglist=[[1.0, path]], path_root="")
    >>> batch = images.next()
    >>> batch.data[0].shape, batch.label[0].asnumpy().tolist()
    ((1, 3, 8, 8), [1.0])
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        label_width: int = 1,
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
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(integer("batch_size", batch_size, least=1))
        self.check_data_shape(data_shape)
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ValueError(
                f"invalid last_batch_handle {last_batch_handle!r}: expected 'pad', 'discard' or "
                "'roll_over'"
            )
        self.path_root = path_root
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.dtype, self.label_width = dtype, label_width
        self.data_shape = tuple(data_shape)
        #: Images that could not be decoded.
        self.skipped = 0
        self._last_error = ""
        self.imgrec: recordio.MXRecordIO | None = None
        self.imglist: dict[Any, tuple[np.ndarray, str]] | None = None
        self.auglist = list(CreateAugmenter(data_shape, **kwargs) if aug_list is None else aug_list)
        self.seq = self._sequence(path_imgrec, path_imgidx, path_imglist, imglist)
        self._divide(part_index, num_parts)
        self.provide_data = [DataDesc(data_name, (self.batch_size, *self.data_shape), dtype)]
        label_shape = (self.batch_size, label_width) if label_width > 1 else (self.batch_size,)
        self.provide_label = [DataDesc(label_name, label_shape, dtype)]
        self.cur = 0
        # Images of a short last batch, for the first batch of the next epoch.
        self._rolled: list[tuple[NDArray, Any]] = []
        self._begin()

    def _sequence(self, rec: Any, idx: Any, path: Any, given: Any) -> list[Any] | None:
        """Keys of the images; None where only a record file knows what is next."""
        if not rec and not path and not isinstance(given, list):
            raise ValueError("ImageIter: expected path_imgrec, path_imglist or imglist, got none")
        keys: list[Any] | None = None
        if rec:
            if idx:
                self.imgrec = recordio.MXIndexedRecordIO(idx, rec, "r")
                keys = list(self.imgrec.keys)
            else:
                self.imgrec = recordio.MXRecordIO(rec, "r")
        if path:
            self.imglist = images_by_id(path)
        elif isinstance(given, list):
            self.imglist = {
                i: (
                    np.array(item[:-1] if len(item) > 2 else item[0], "float32").reshape(-1),
                    item[-1],
                )
                for i, item in enumerate(given)
            }
        if self.imglist is not None and (keys is not None or self.imgrec is None):
            keys = list(self.imglist)
        return keys

    def _divide(self, part_index: int, num_parts: int) -> None:
        check_part(part_index, num_parts)
        if self.seq is None:
            if num_parts > 1 or self.shuffle:
                raise ValueError(
                    "ImageIter: invalid path_imgidx None: expected an index, to shuffle or divide "
                    "a record file"
                )
            return
        size = len(self.seq) // num_parts
        if num_parts > 1:
            self.seq = self.seq[part_index * size : (part_index + 1) * size]
        if not self.seq:
            raise ValueError(
                f"invalid num_parts {num_parts}: expected an image at least for each, and part "
                f"{part_index} has none"
            )

    def _begin(self) -> None:
        if self.seq is not None and self.shuffle:
            random.shuffle(self.seq)
        self._rewind()
        self._ended, self._is_first = False, True

    def _rewind(self) -> None:
        """Goes back to the first image of the epoch."""
        if self.imgrec is not None:
            self.imgrec.reset()
        self.cur = 0

    def reset(self) -> None:
        """Begins the next epoch, with the images that were too few for a batch of the last one."""
        self._begin()

    def hard_reset(self) -> None:
        """Begins the next epoch, from its first image."""
        self._rolled = []
        self._begin()

    def next_sample(self) -> tuple[Any, bytes]:
        """Label and bytes of the next image.

        Raises
        ------
        StopIteration
            There is none.
        """
        if self.seq is None:
            if self.imgrec is None:
                raise StopIteration
            offset = self.imgrec.tell()
            payload = self.imgrec.read()
            if payload is None:
                raise StopIteration
            header, image = _unpacked(payload, f"{self.imgrec.uri}: the record at offset {offset}")
            return header.label, image
        if self.cur >= len(self.seq):
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if isinstance(self.imgrec, recordio.MXIndexedRecordIO):
            if key not in self.imgrec.idx:
                raise MXNetError(
                    f"invalid id {key} of the list: expected one of a record in "
                    f"{self.imgrec.idx_path}"
                )
            payload = self.imgrec.read_idx(key)
            header, image = _unpacked(payload, f"{self.imgrec.uri}: the record of id {key}")
            return (header.label if self.imglist is None else self.imglist[key][0]), image
        label, path = self.imglist[key]  # type: ignore[index]
        return label, self.read_image(path)

    def read_image(self, fname: str) -> bytes:
        """The bytes of an image file below `path_root`."""
        path = os.path.join(self.path_root or "", fname)
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise file_error("cannot read", path, error) from error

    def imdecode(self, s: bytes) -> NDArray:
        """Decodes an image."""
        return imdecode(s)

    def augmentation_transform(self, data: NDArray) -> NDArray:
        """Applies the augmenters."""
        for aug in self.auglist:
            data = aug(data)
        return data

    def postprocess_data(self, datum: NDArray) -> NDArray:
        """The image with its channels first."""
        return nd.transpose(datum, axes=(2, 0, 1))

    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """An error unless the shape is (3, height, width)."""
        if len(data_shape) != 3:
            raise ValueError(f"invalid data_shape {tuple(data_shape)}: expected (3, height, width)")
        if data_shape[0] != 3:
            raise ValueError(f"invalid data_shape {tuple(data_shape)}: expected 3 channels first")

    def check_valid_image(self, data: Sequence[NDArray]) -> None:
        """An error if an image is empty."""
        if len(data[0].shape) == 0:
            raise RuntimeError("invalid image: expected at least one element")

    def _check_augmented(self, data: NDArray) -> None:
        channels, height, width = self.data_shape
        if data.shape != (height, width, channels):
            raise ValueError(
                f"invalid image of shape {data.shape} after the augmenters: expected "
                f"{(height, width, channels)}, as data_shape says"
            )

    def _decoded(self, image: bytes) -> NDArray | None:
        """The image; None if it cannot be decoded."""
        try:
            data = self.imdecode(image)
            self.check_valid_image([data])
            return data
        except (MXNetError, RuntimeError) as error:
            self.skipped += 1
            self._last_error = str(error)
            logging.debug("Invalid image, skipping:  %s", error)
            return None

    def _samples(self, count: int) -> list[tuple[NDArray, Any]]:
        """Up to `count` images and labels."""
        samples: list[tuple[NDArray, Any]] = []
        while len(samples) < count:
            try:
                label, image = self.next_sample()
            except StopIteration:
                break
            data = self._decoded(image)
            if data is None:
                continue
            samples.append(self._sample(data, label))
        return samples

    def _sample(self, data: NDArray, label: Any) -> tuple[NDArray, Any]:
        """A decoded image and its label as they go into a batch."""
        data = self.augmentation_transform(data)
        self._check_augmented(data)
        return self.postprocess_data(data), self._checked_label(label)

    def _checked_label(self, label: Any) -> np.ndarray:
        labels = np.asarray(label, "float32").reshape(-1)
        if labels.size != self.label_width:
            raise ValueError(
                f"invalid label_width {self.label_width}: expected {labels.size}, as an image has"
            )
        return labels

    def _batch(self, samples: list[tuple[NDArray, Any]], pad: int) -> DataBatch:
        data = nd.stack(*[data for data, _ in samples], axis=0).astype(self.dtype)
        labels = np.stack([label for _, label in samples])
        labels = labels.reshape(self.provide_label[0].shape)
        return DataBatch([data], [nd.array(labels, dtype=self.dtype)], pad=pad)

    def next(self) -> DataBatch:
        """The next batch.

        Raises
        ------
        StopIteration
            The epoch has ended.
        MXNetError
            None of its images can be decoded.
        """
        if self._ended:
            raise StopIteration
        rolled, self._rolled = self._rolled, []
        is_first, self._is_first = self._is_first, False
        samples = rolled + self._samples(self.batch_size - len(rolled))
        missing = self.batch_size - len(samples)
        if missing == 0:  # as in MXNet, `pad` counts what was added to images that rolled over
            return self._batch(samples, self.batch_size - len(rolled) if rolled else 0)
        self._ended = True
        if not samples and is_first and self._last_error:
            raise MXNetError(
                f"no image of the epoch can be decoded, expected one at least: {self._last_error}"
            )
        if self.last_batch_handle == "roll_over":
            self._rolled = samples
        if not samples or self.last_batch_handle != "pad":
            raise StopIteration
        while len(samples) < self.batch_size:
            self._rewind()
            missed = self.batch_size - len(samples)
            samples += self._samples(missed) or samples[:missed]
        return self._batch(samples, missing)
