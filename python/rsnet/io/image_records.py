"""Iterators over record files of images, which are decoded and augmented by threads of the core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import _core
from .._exceptions import add_note
from .._warnings import warn
from ..base import MXNetError
from ..ndarray import NDArray, array, clip, load, rint, save
from .base import DataBatch, DataDesc, MXDataIter

__all__ = [
    "ImageDetRecordIter",
    "ImageRecordInt8Iter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
]

#: What an iterator of raw pixels has no use for: arguments that turn them into other numbers.
_MEANS = frozenset(["mean_img", "mean_r", "mean_g", "mean_b", "mean_a"])
_NORMALISING = _MEANS | frozenset(
    "std_r std_g std_b std_a scale max_random_contrast max_random_illumination".split()
)
#: What iterators of each dtype have no use for: int8 is pixels less their mean, as in MXNet.
_UNUSED = {"float32": frozenset[str](), "uint8": _NORMALISING, "int8": _NORMALISING - _MEANS}


@contextmanager
def _telling_how_to_skip(skips: bool) -> Iterator[None]:
    """Notes in the error of a damaged record what leaves it out, unless that was asked for."""
    try:
        yield
    except OSError as error:
        if "the record at offset" in str(error) and not skips:
            add_note(error, "damaged='skip' leaves damaged records out, and counts them")
        raise


class ImageRecords(MXDataIter):
    """Batches that threads of the core prepare ahead; made by `ImageRecordIter` and its kin.

    The threads sleep while `prefetch_buffer` batches are ready, and end with the iterator, or with
    `close`. In a process that was forked after the iterator was made its use is an error: make a
    new one there.
    """

    def __init__(self, kind: str, params: dict[str, Any], detects: bool, dtype: str) -> None:
        self._kind = kind
        names = {name for name, _, _ in _core.image_loader_params(detects)}
        data_name = str(params.pop("data_name", "data"))
        label_name = str(params.pop("label_name", "softmax_label"))
        known = {name: value for name, value in params.items() if name in names}
        dropped = set(params) - set(known)
        dropped |= _UNUSED[dtype] & set(known)
        known = {name: value for name, value in known.items() if name not in _UNUSED[dtype]}
        if detects:
            dropped |= {"mirror", "rand_mirror"} & set(known)
            known = {name: v for name, v in known.items() if name not in ("mirror", "rand_mirror")}
        if dropped:
            what = ", ".join(sorted(dropped))
            warn(f"{kind} has no use for the arguments: {what}")
        if detects:
            known.setdefault("label_width", -1)
        known = {name: _plain(value) for name, value in known.items()}
        mean = _mean_image(kind, known, detects) if known.get("mean_img") else None
        self._rounds = dtype == "int8" and any(known.get(name) for name in _MEANS)
        self._skips = known.get("damaged") == "skip"
        with _telling_how_to_skip(self._skips):
            self._loader = _core.ImageLoader(
                known, detects, "float32" if self._rounds else dtype, mean
            )
        shape, labels = self._loader.data_shape, self._loader.label_shape
        super().__init__(shape[0])
        made = known.get("dtype")
        dtype = dtype if made in (None, "None") or self._rounds else made
        self.provide_data = [DataDesc(data_name, shape, np.dtype(dtype).type)]
        self.provide_label = [DataDesc(label_name, labels, np.float32)]
        self._batch: DataBatch | None = None
        self._told = 0

    def __repr__(self) -> str:
        return f"<{self._kind} of {self._loader.records} records>"

    @property
    def skipped(self) -> int:
        """Damaged records that were skipped so far, with ``damaged='skip'``."""
        return self._loader.skipped()[0]

    def reset(self) -> None:
        """Begins the next epoch."""
        self._batch = None
        self._loader.reset()

    def close(self) -> None:
        """Ends the threads; the iterator cannot be used any more."""
        self._loader.close()

    def iter_next(self) -> bool:
        """Goes on to the next batch; False after the last of the epoch."""
        with _telling_how_to_skip(self._skips):
            made = self._loader.next()
        if made is None:
            self._batch = None
            self._tell()
            return False
        data, label, ids, pad = made
        if self._rounds:
            data = clip(rint(data), -128, 127).astype("int8")
        # A header has room for any id of 64 bits, and a damaged one may have any.
        index = np.array(ids, "int64" if max(ids) < 1 << 63 else "uint64")
        self._batch = DataBatch([data], [label], pad=pad, index=index)
        return True

    def _tell(self) -> None:
        """Warns of damaged records, once for each number of them."""
        count, first = self._loader.skipped()
        if count > self._told:
            self._told = count
            warn(f"{self._kind} skipped {count} damaged records, the first: {first}")

    def next(self) -> DataBatch:
        """The next batch.

        Raises
        ------
        StopIteration
            The epoch has ended.
        MXNetError
            A record is damaged, or does not fit the arguments; the message names file and offset.
        """
        if not self.iter_next():
            raise StopIteration
        return self._current()

    def _current(self) -> DataBatch:
        if self._batch is None:
            raise MXNetError(f"{self._kind} has no batch: call iter_next first")
        return self._batch

    def getdata(self) -> NDArray:
        """The images of the current batch."""
        return self._current().data[0]

    def getlabel(self) -> NDArray:
        """The labels of the current batch."""
        label = self._current().label
        assert label is not None
        return label[0]

    def getindex(self) -> np.ndarray:
        """The records' ids of the current batch."""
        return self._current().index

    def getpad(self) -> int:
        """How many of the last images of the current batch do not belong to the epoch."""
        return self._current().pad or 0


def _plain(value: Any) -> Any:
    """Paths as text; NumPy's numbers and types as the parser takes them."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, type) or isinstance(value, np.dtype):
        return np.dtype(value).name
    return value.item() if isinstance(value, np.generic) else value


def _mean_image(kind: str, params: dict[str, Any], detects: bool) -> np.ndarray:
    """The mean image (C, H, W) of a file, which is made where it does not exist."""
    path = str(params["mean_img"])
    if os.path.exists(path):
        found = load(path)
        image = found.get("mean_img") if isinstance(found, dict) else (found or [None])[0]
        if image is None:
            raise MXNetError(f"invalid mean_img '{path}': expected a file with an array 'mean_img'")
        return np.ascontiguousarray(image.asnumpy(), "float32")
    plain = {name: value for name, value in params.items() if name not in _NORMALISING}
    plain.update(rand_mirror=False, mirror=False, shuffle=False, round_batch=False)
    if detects:
        del plain["rand_mirror"], plain["mirror"]
    loader = _core.ImageLoader(plain, detects, "float32", None)
    total, count = np.zeros(loader.data_shape[1:]), 0
    while (made := loader.next()) is not None:
        data, _, _, pad = made
        used = data.shape[0] - pad
        total += data.asnumpy()[:used].sum(axis=0, dtype="float64")
        count += used
    loader.close()
    mean = (total / max(count, 1)).astype("float32")
    save(path, {"mean_img": array(mean)})
    return mean


def _maker(name: str, detects: bool, dtype: str, summary: str) -> Any:
    """An iterator's function, as MXNet has one for each."""

    def make(**kwargs: Any) -> ImageRecords:
        return ImageRecords(name, kwargs, detects, dtype)

    make.__name__ = make.__qualname__ = name
    lines = [summary, "", "Parameters", "----------"]
    for field, info, doc in _core.image_loader_params(detects):
        if field not in _UNUSED[dtype]:
            lines += [f"{field} : {info}", f"    {doc}"]
    lines += ["data_name : str", "    Name of the images, 'data'."]
    lines += ["label_name : str", "    Name of the labels, 'softmax_label'.", ""]
    lines += ["Returns", "-------", "MXDataIter", "    Batches, and `skipped`, `reset`, `close`."]
    make.__doc__ = "\n".join(lines)
    return make


_SUMMARY = """Batches of images of a record file.

    Images (C, H, W), red first, are ``((x - mean) * contrast + illumination) * scale / std``. They
    are decoded and augmented by threads of their own; what they hold depends on the seeds alone.
    Labels are (N,), or (N, label_width). With ``round_batch`` the last batch is filled with the
    head of the next epoch, which begins behind it; without, with zeros: `pad` says how many."""

ImageRecordIter = _maker("ImageRecordIter", False, "float32", _SUMMARY)
ImageRecordIter_v1 = _maker("ImageRecordIter_v1", False, "float32", _SUMMARY)
_RAW = "Batches of raw pixels of a record file; see `ImageRecordIter`."
ImageRecordUInt8Iter = _maker("ImageRecordUInt8Iter", False, "uint8", _RAW)
ImageRecordUInt8Iter_v1 = _maker("ImageRecordUInt8Iter_v1", False, "uint8", _RAW)
ImageRecordInt8Iter = _maker(
    "ImageRecordInt8Iter",
    False,
    "int8",
    "Batches of pixels less their mean, within -128 to 127; see `ImageRecordIter`.",
)
ImageDetRecordIter = _maker(
    "ImageDetRecordIter",
    True,
    "float32",
    """Batches of images of a record file, with the boxes of their objects.

    A record's label is ``[A, B, further header ..., objects]``: the header has A numbers, and each
    object B, of which the first five are class, left, top, right and bottom as parts of the image.
    A batch's label (N, 4 + width) has channels, height and width of the image in the batch, the
    length of its label, the label, and `label_pad_value`.""",
)
