"""Iterators over files: MNIST's images, comma-separated values, sparse text of LIBSVM."""

from __future__ import annotations

import gzip
import logging
import math
import re
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._numbers import integer
from .._text_files import parsed_lines
from ..base import MXNetError, file_error
from ..ndarray import NDArray, array
from .base import DataDesc, MXDataIter, check_part

__all__ = ["CSVIter", "LibSVMIter", "MNISTIter", "read_idx"]

#: Kinds of elements by their code in the header of an idx file.
IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}

#: Axes that arrays of NumPy may have, of every version.
_MOST_AXES = 32


def read_idx(path: str) -> np.ndarray:
    """The array of an idx file, compressed by gzip or not.

    Raises
    ------
    MXNetError
        The file cannot be read, is not an idx file, or is too short.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise file_error("cannot read", path, error) from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in IDX_TYPES:
        raise MXNetError(f"{path}: invalid first bytes {data[:4]!r}: expected those of an idx file")
    dtype, rank = np.dtype(IDX_TYPES[data[2]]), data[3]
    if rank > _MOST_AXES:
        raise MXNetError(f"{path}: invalid number of axes {rank}: expected at most {_MOST_AXES}")
    begin = 4 + 4 * rank
    if len(data) < begin:
        raise MXNetError(f"{path}: invalid size {len(data)}: expected a header of {begin} bytes")
    shape = struct.unpack(f">{rank}I", data[4:begin])
    size = math.prod(shape) * dtype.itemsize
    if len(data) - begin < size:
        raise MXNetError(
            f"{path}: {len(data) - begin} bytes of data, expected {size} for shape {shape}"
        )
    return np.frombuffer(data[begin : begin + size], dtype).reshape(shape)


def _part(count: int, num_parts: int, part_index: int) -> slice:
    """The rows of part `part_index` of `num_parts`."""
    check_part(part_index, num_parts)
    return slice(count * part_index // num_parts, count * (part_index + 1) // num_parts)


class _RowIter(MXDataIter):
    """Batches of rows of two arrays in memory."""

    def __init__(
        self, data: np.ndarray, label: np.ndarray, batch_size: int, names: tuple[str, str],
        dtype: Any,
    ) -> None:  # fmt: skip
        size = int(batch_size) if isinstance(batch_size, str) else batch_size
        super().__init__(integer("batch_size", size, least=1))
        # A label of shape (N, 1) is delivered as (N,).
        if label.ndim == 2 and label.shape[1] == 1:
            label = label[:, 0]
        self._data, self._label = data, label
        self._names = names
        self._dtype = dtype
        self._start = 0
        self._current: np.ndarray | None = None
        self._pad = 0

    @property
    def provide_data(self) -> list[DataDesc]:
        """Name and shape of the data of a batch."""
        shape = (self.batch_size, *self._data.shape[1:])
        return [DataDesc(self._names[0], shape, np.dtype(self._dtype).type)]

    @property
    def provide_label(self) -> list[DataDesc]:
        """Name and shape of the labels of a batch."""
        shape = (self.batch_size, *self._label.shape[1:])
        return [DataDesc(self._names[1], shape, np.dtype(self._dtype).type)]

    @property
    def _rows(self) -> np.ndarray:
        """Numbers of the rows of the current batch."""
        if self._current is None:
            raise ValueError("there is no current batch: call 'iter_next' first")
        return self._current

    def getdata(self) -> NDArray:
        """The data of the current batch."""
        return array(self._data[self._rows], dtype=self._dtype)

    def getlabel(self) -> NDArray:
        """The labels of the current batch."""
        return array(self._label[self._rows], dtype=self._dtype)

    def getpad(self) -> int:
        """How many of the last rows are padding."""
        return self._pad

    def getindex(self) -> np.ndarray:
        """Numbers of the current rows, in the order in which they are read."""
        return self._rows.astype("uint64")


class MNISTIter(_RowIter):
    """Images and labels in the format of the MNIST digits; a short last batch is dropped.

    Parameters
    ----------
    image, label : str
        Paths of idx files, compressed by gzip or not.
    batch_size : int
    shuffle : bool
        Shuffle the rows once, by `seed`?
    flat : bool
        Rows of pixels (N, H·W) in the place of images (N, 1, H, W)?
    seed : int
    silent : bool
        Log nothing?
    num_parts, part_index : int
        Read one part of several, for data parallelism.
    data_name, label_name : str
    dtype : str or type

    Raises
    ------
    MXNetError
        A file cannot be read, or there are more images than labels or fewer.
    """

    def __init__(
        self,
        *,
        image: str = "./train-images-idx3-ubyte",
        label: str = "./train-labels-idx1-ubyte",
        batch_size: int = 128,
        shuffle: bool = True,
        flat: bool = False,
        seed: int = 0,
        silent: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        **unused: Any,
    ) -> None:
        _only("MNISTIter", unused, ("prefetch_buffer", "ctx", "input_shape"))
        images, labels = read_idx(image), read_idx(label)
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise MXNetError(
                f"MNISTIter: {image} has shape {images.shape} and {label} {labels.shape}, "
                "expected (N, H, W) and (N,)"
            )
        order = np.arange(len(images))
        if shuffle:
            np.random.RandomState(seed).shuffle(order)
        order = order[_part(len(order), num_parts, part_index)]
        pixels = images[order].astype("float32") * (1.0 / 256.0)
        n, height, width = pixels.shape
        pixels = pixels.reshape((n, height * width) if flat else (n, 1, height, width))
        names = (data_name, label_name)
        super().__init__(pixels, labels[order].astype("float32"), batch_size, names, dtype)
        if not silent:
            shape = (self.batch_size, *pixels.shape[1:])
            logging.info(
                "MNISTIter: load %d images, shuffle=%d, shape=%s", n, int(shuffle), list(shape)
            )

    def reset(self) -> None:
        """Back to the first batch."""
        self._start = 0

    def iter_next(self) -> bool:
        """Moves to the next batch; returns False at the end."""
        end = self._start + self.batch_size
        if end > len(self._data):
            return False
        self._current = np.arange(self._start, end)
        self._start = end
        return True


class _RoundIter(_RowIter):
    """Rows of a file; with `round_batch` a short last batch is filled with the first rows."""

    def __init__(self, round_batch: bool, *args: Any) -> None:
        super().__init__(*args)
        self._round_batch = round_batch
        self._overflow = 0

    def reset(self) -> None:
        """Begins again, after the rows that have filled the last batch."""
        self._start, self._overflow = self._overflow, 0

    def iter_next(self) -> bool:
        """Moves to the next batch; returns False at the end."""
        count = len(self._data)
        if self._start >= count:
            return False
        rows = np.arange(self._start, self._start + self.batch_size)
        self._start += self.batch_size
        self._pad = max(0, self._start - count)
        if self._pad and self._round_batch:
            self._overflow = self._pad % count
        self._current = rows % count
        return True


class CSVIter(_RoundIter):
    """Rows of comma-separated values.

    Parameters
    ----------
    data_csv, label_csv : str
        Paths; without labels they are 0.
    data_shape, label_shape : tuple of int
        Shape of one row.
    batch_size : int
    round_batch : bool
        Fill a short last batch with the first rows, and begin the next epoch after them? If not,
        it is filled all the same, and `pad` says that the rows do not count.
    data_name, label_name : str
    dtype : {'float32', 'int32', 'int64'}
        That of the data and of the labels.

    Raises
    ------
    MXNetError
        A file cannot be read, has a row of another length, or text that is not a number.
    """

    def __init__(
        self,
        *,
        data_csv: str,
        data_shape: Sequence[int],
        batch_size: int,
        label_csv: str = "NULL",
        label_shape: Sequence[int] = (1,),
        round_batch: bool = True,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        **unused: Any,
    ) -> None:
        _only("CSVIter", unused, ("prefetch_buffer", "ctx"))
        dtype = dtype or "float32"
        data = _read_csv(data_csv, data_shape, dtype)
        label = np.zeros((len(data), *label_shape), dtype)
        if label_csv != "NULL":
            label = _read_csv(label_csv, label_shape, dtype)
        if len(label) != len(data):
            raise MXNetError(
                f"{label_csv} has {len(label)} rows, expected {len(data)}, as {data_csv}"
            )
        super().__init__(round_batch, data, label, batch_size, (data_name, label_name), dtype)


def _read_csv(path: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
    width = math.prod(shape)

    def row_of(line: str) -> np.ndarray:
        cells = line.split(",")
        if len(cells) != width:
            raise ValueError(f"{len(cells)} values, expected {width} for shape {tuple(shape)}")
        return _numbers(cells, dtype)

    rows = _some(path, [row for _, row in parsed_lines(path, row_of)])
    return np.stack(rows).reshape((len(rows), *shape))


def _some(path: str, rows: list[Any]) -> list[Any]:
    """The rows of a file, of which there is one at least."""
    if not rows:
        raise MXNetError(f"{path}: invalid number of rows 0: expected some")
    return rows


_IS_INTEGER = re.compile(r"\s*[+-]?\d+\s*").fullmatch


def _numbers(cells: list[str], dtype: Any) -> np.ndarray:
    try:
        return np.array(cells, dtype=dtype)
    except ValueError:
        # As integers, "2.0" and "1e3" are valid too.
        return np.array([int(c) if _IS_INTEGER(c) else float(c) for c in cells], dtype)


class LibSVMIter(_RoundIter):
    """Rows of ``label index:value ...`` with indices from 0, as dense arrays.

    Parameters
    ----------
    data_libsvm : str
    data_shape : tuple of one int
        Length of a row.
    batch_size : int
    label_libsvm : str
        File with labels of its own, in the same format; the first column of the data otherwise.
    label_shape : tuple of int
    num_parts, part_index : int
        Read one part of several.
    round_batch : bool
        As for `CSVIter`.

    Raises
    ------
    MXNetError
        A file cannot be read, an index is out of range, or text is not a number.
    """

    def __init__(
        self,
        *,
        data_libsvm: str,
        data_shape: Sequence[int],
        batch_size: int,
        label_libsvm: str = "NULL",
        label_shape: Sequence[int] = (1,),
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        **unused: Any,
    ) -> None:
        _only("LibSVMIter", unused, ("prefetch_buffer", "ctx"))
        dtype = dtype or "float32"
        data, label = _read_libsvm(data_libsvm, math.prod(data_shape), dtype)
        if label_libsvm != "NULL":
            label = _read_libsvm(label_libsvm, math.prod(label_shape), dtype)[0]
        if len(label) != len(data):
            raise MXNetError(
                f"{label_libsvm} has {len(label)} rows, expected {len(data)}, as {data_libsvm}"
            )
        own = _part(len(data), num_parts, part_index)
        data = data[own].reshape((-1, *data_shape))
        label = label[own].reshape((-1, *label_shape))
        super().__init__(round_batch, data, label, batch_size, (data_name, label_name), dtype)


def _read_libsvm(path: str, width: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The dense rows and the first numbers of their lines."""

    def row_of(line: str) -> tuple[np.ndarray, Any] | None:
        cells = line.split("#")[0].split()
        if not cells:
            return None
        first = cells.pop(0) if ":" not in cells[0] else "0"
        row = np.zeros(width, dtype)
        pairs = [cell.partition(":") for cell in cells]
        *values, label = _numbers([*(value for _, _, value in pairs), first], dtype)
        for (index, _, _), value in zip(pairs, values, strict=True):
            if not 0 <= int(index) < width:
                raise ValueError(f"invalid index {index}: expected 0 to {width - 1}")
            row[int(index)] = value
        return row, label

    found = _some(path, [one for _, one in parsed_lines(path, row_of) if one is not None])
    rows, firsts = zip(*found, strict=True)
    return np.stack(rows), np.array(firsts, dtype)


def _only(name: str, given: dict[str, Any], accepted: tuple[str, ...]) -> None:
    """Raises for a parameter that the iterator does not have; `accepted` ones have no effect."""
    wrong = sorted(set(given) - set(accepted))
    if wrong:
        raise TypeError(
            f"{name}: invalid parameters {', '.join(map(repr, wrong))}: expected those of its "
            "signature"
        )
