"""Files of arrays: ``nd.save`` and ``nd.load``, in MXNet's format.

A file is a header, a list of records, one per array, and a list of names (none for a list of
arrays). Records of all versions are read (V0 without magic to V3, the one with np_shape); V2 is
written, or V3.
"""

from __future__ import annotations

import functools
import io
import math
import os
import struct
from typing import Any

import numpy as np

from .. import _core
from .._core import NDArray
from .._whole_files import replacing
from ..base import MXNetError, file_error, shown
from ..util import is_np_shape

__all__ = ["imdecode", "load", "load_frombuffer", "save"]

_FILE = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")
_ELEMENTS = "data of shape {} {}"
_ITEM_BYTES = {name: np.dtype(name).itemsize for name in _DTYPES}
_FLAGS = {np.dtype(name).type: flag for flag, name in enumerate(_DTYPES)}

#: Numbers as they stand in files.
_UINT32, _UINT64 = struct.Struct("<I"), struct.Struct("<Q")
_TWO_INT32, _TWO_UINT64 = struct.Struct("<2i"), struct.Struct("<2Q")
#: Version, storage type and rank.
_START = struct.Struct("<Iii")


@functools.cache
def _rest_of_head(ndim: int, form: str) -> struct.Struct:
    """What follows the rank in a record: extents of a form, the context, the dtype."""
    return struct.Struct(f"<{ndim}{form}3i")


def _head(array: NDArray, version: int) -> bytes:
    """What stands before the elements of an array in a record."""
    ctx, ndim = array.context, array.ndim
    numbers = (*array.shape, ctx.device_typeid, ctx.device_id, _FLAGS[array.dtype])
    return _START.pack(version, 0, ndim) + _rest_of_head(ndim, "q").pack(*numbers)


def _record(array: NDArray, version: int) -> bytes:
    """One array as bytes."""
    return _head(array, version) + array.asnumpy().tobytes()


def _saved_head(array: NDArray) -> bytes:
    """What stands before the elements in a file: V3 with np_shape, else V2, where rank 0 means no
    array.
    """
    if array.ndim == 0 and not is_np_shape():
        raise MXNetError("invalid shape () to save: expected one axis at least, without np_shape")
    return _head(array, _V3 if is_np_shape() else _V2)


class _Reader:
    """Takes numbers and bytes from a buffer; every step is checked against its end."""

    def __init__(self, data: Any, name: str) -> None:
        self.data, self.at, self.name = memoryview(data), 0, name
        self.size = len(self.data)

    def fail(self, what: str) -> MXNetError:
        return MXNetError(f"Invalid NDArray file format: {self.name}, at byte {self.at}: {what}")

    def short(self, count: int, what: str, *details: Any) -> MXNetError:
        """The error of a buffer that has not so many bytes left."""
        left = self.size - self.at
        return self.fail(f"{what.format(*details)}: expected {count} bytes, {left} are left")

    def take(self, count: int, what: str, *details: Any) -> Any:
        """Takes bytes; `what` they are is put together with the details for an error only."""
        if not 0 <= count <= self.size - self.at:
            raise self.short(count, what, *details)
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def array(self, shape: tuple[int, ...], dtype: str) -> NDArray:
        """Takes the elements of an array."""
        data = self.take(math.prod(shape) * _ITEM_BYTES[dtype], _ELEMENTS, shape, dtype)
        return _core.copy_numpy(np.frombuffer(data, dtype).reshape(shape))

    def numbers(self, form: struct.Struct, what: str) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size, what))

    def number(self, form: struct.Struct, what: str) -> int:
        number: int = form.unpack(self.take(form.size, what))[0]
        return number

    def record(self, anywhere: bool = False) -> NDArray | None:
        """One array of any version; None for a record without array.

        What 0 and () mean in files depends on `np_shape`, unless they are read `anywhere`.
        """
        magic = self.number(_UINT32, "record")
        if not anywhere and (magic == _V3) != is_np_shape():
            wanted = "within np_shape" if magic == _V3 else "without np_shape"
            raise self.fail(f"invalid version {magic:#x} of an array: expected to load it {wanted}")
        form = "q"
        if magic in (_V2, _V3):
            stype, ndim = self.numbers(_TWO_INT32, "storage type and rank")
            if stype != 0:
                raise self.fail(f"storage type {stype} is sparse, which is not supported")
        elif magic == _V1:
            ndim = self.number(_UINT32, "rank")
        else:  # V0 has no magic: this is the rank
            ndim, form = magic, "I"
        if not 0 <= ndim <= 32:
            raise self.fail(f"invalid number of axes {ndim}: expected 0 to 32")
        if ndim == 0 and magic != _V3:
            return None
        *extents, _, _, flag = self.numbers(_rest_of_head(ndim, form), "shape, context and dtype")
        shape = tuple(extents)
        if shape and min(shape) < 0:
            raise self.fail(f"invalid shape {shape}: expected extents of at least 0")
        if not 0 <= flag < len(_DTYPES):
            raise self.fail(f"invalid dtype flag {flag}: expected 0 to {len(_DTYPES) - 1}")
        return self.array(shape, _DTYPES[flag])


class _FileReader(_Reader):
    """Takes them from a file, the elements of arrays to where they stay."""

    def __init__(self, file: io.BufferedReader, size: int, name: str) -> None:
        super().__init__(b"", name)
        self.file, self.size = file, size

    def take(self, count: int, what: str, *details: Any) -> Any:
        if not 0 <= count <= self.size - self.at:
            raise self.short(count, what, *details)
        piece = self.file.read(count)
        if len(piece) < count:
            raise self.ended(len(piece), count, what, *details)
        self.at += count
        return piece

    def array(self, shape: tuple[int, ...], dtype: str) -> NDArray:
        count = math.prod(shape) * _ITEM_BYTES[dtype]
        if count > self.size - self.at:
            raise self.short(count, _ELEMENTS, shape, dtype)
        array = _core.empty(shape, dtype=dtype)
        if count:
            got = self.file.readinto(_core.numpy_over(array, True).data)
            if got < count:
                raise self.ended(got, count, _ELEMENTS, shape, dtype)
            self.at += count
        return array

    def ended(self, got: int, wanted: int, what: str, *details: Any) -> MXNetError:
        """The error of a file that has become shorter while it was read."""
        what = what.format(*details)
        return self.fail(f"{what}: expected {wanted} bytes, the file ended after {got}")


def save(fname: Any, data: Any) -> None:
    """Saves an array, a list of arrays or a dict from names to arrays. An older file stays until
    the new one is written.

    Parameters
    ----------
    fname : str or path
    data : NDArray, list of NDArray or dict of str to NDArray

    Raises
    ------
    TypeError
        If a dict has other keys or values.
    ValueError
        If `data` is none of these.

    Examples
    --------
    >>> from rsnet import nd
    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = os.path.join(folder.name, "two.params")
    >>> nd.save(file, {"one": nd.ones((1,)), "two": nd.ones((2,))})
    >>> sorted(nd.load(file))
    ['one', 'two']
    >>> folder.cleanup()
    """
    if isinstance(data, NDArray):
        data = [data]
    names = []
    if isinstance(data, dict):
        names, arrays = list(data.keys()), list(data.values())
        if not all(isinstance(n, str) for n in names):
            raise TypeError(f"invalid names of data {shown(names)}: expected strings")
    elif isinstance(data, list):
        arrays = data
    else:
        what = "an NDArray, or a list or dict of NDArrays"
        raise ValueError(f"invalid data {shown(data)}: expected {what}")
    if not all(isinstance(a, NDArray) for a in arrays):
        wrong = next(a for a in arrays if not isinstance(a, NDArray))
        raise TypeError(f"invalid item of data {shown(wrong)}: expected an NDArray")
    heads = [_saved_head(array) for array in arrays]
    encoded = [name.encode() for name in names]
    sized = [struct.pack("<Q", len(name)) + name for name in encoded]
    for array in arrays:
        array.wait_to_read()  # raises what failed while the file still is what it was
    with replacing(fname) as file:
        file.write(struct.pack("<QQQ", _FILE, 0, len(arrays)))
        for head, array in zip(heads, arrays):
            file.write(head)
            file.write(array.asnumpy().data)
        file.write(struct.pack("<Q", len(names)) + b"".join(sized))


def load(fname: Any) -> Any:
    """Loads what `save` wrote: a list, or a dict if the file has names.

    Examples
    --------
    >>> from rsnet import nd
    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = os.path.join(folder.name, "list.params")
    >>> nd.save(file, [nd.ones((2,))])
    >>> nd.load(file)[0].asnumpy()
    array([1., 1.], dtype=float32)
    >>> folder.cleanup()
    """
    name = os.fspath(fname)
    try:
        with open(fname, "rb") as file:
            if size := os.fstat(file.fileno()).st_size:
                return _parse(_FileReader(file, size, name))
            return _parse(_Reader(file.read(), name))  # of what has no size, like a pipe
    except OSError as error:
        raise file_error("cannot read", fname, error) from error


def load_frombuffer(buf: Any) -> Any:
    """As `load`, from the bytes of a file.

    Examples
    --------
    >>> from rsnet import nd
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "list.params"
    >>> nd.save(file, [nd.ones((2,))])
    >>> nd.load_frombuffer(file.read_bytes())[0].asnumpy()
    array([1., 1.], dtype=float32)
    >>> folder.cleanup()
    """
    if not isinstance(buf, (bytes, bytearray, memoryview)):
        raise TypeError(f"invalid buf: expected bytes, got {type(buf).__name__}")
    return _parse(_Reader(buf, "buffer"))


def _parse(reader: _Reader) -> Any:
    magic, _ = reader.numbers(_TWO_UINT64, "header")
    if magic != _FILE:
        raise reader.fail(f"the file begins with {magic:#x}, expected {_FILE:#x}")
    count = reader.number(_UINT64, "number of arrays")
    if count > reader.size:
        raise reader.fail(
            f"invalid number of arrays {count}: expected at most {reader.size}, as of bytes"
        )
    arrays = [reader.record() for _ in range(count)]
    n_names = reader.number(_UINT64, "number of names")
    if n_names == 0:
        return arrays
    if n_names != count:
        raise reader.fail(f"invalid number of names {n_names}: expected {count}, as of arrays")
    names = []
    for _ in range(n_names):
        text = bytes(reader.take(reader.number(_UINT64, "name"), "name"))
        try:
            names.append(text.decode())
        except UnicodeDecodeError as error:
            raise reader.fail(f"invalid name {text!r}: expected UTF-8") from error
    return dict(zip(names, arrays))


def loads_record(data: Any) -> NDArray | None:
    """An array from the bytes of one record (what pickles hold)."""
    return _Reader(data, "record").record(anywhere=True)


def dumps_record(array: NDArray) -> bytearray:
    """An array as the bytes of one record."""
    return bytearray(_record(array, _V3 if is_np_shape() or array.ndim == 0 else _V2))


def imdecode(
    str_img: Any,
    clip_rect: Any = (0, 0, 0, 0),
    out: NDArray | None = None,
    index: int = 0,
    channels: int = 3,
    mean: NDArray | None = None,
) -> NDArray:
    """Decodes an image to float32 with its channels first; `rsnet.image.imdecode` is newer.

    Parameters
    ----------
    str_img : bytes
        The bytes of the file.
    clip_rect : (int, int, int, int)
        The part kept, (x0, y0, x1, y1); all of it if they are 0.
    out : NDArray, optional
        Takes the image: (C, H, W), or (N, C, H, W), at number `index`.
    index : int
    channels : {3, 1}
        1 for the lightness.
    mean : NDArray, optional
        Is subtracted.

    Returns
    -------
    NDArray
        The image (C, H, W), or `out`.

    Examples
    --------
    >>> from rsnet import nd
    >>> grey = b"P5 3 2 255 " + bytes(range(6))  # a PGM file of 2 rows and 3 columns
    >>> nd.imdecode(grey, channels=1).shape
    (1, 2, 3)
    """
    if channels not in (1, 3):
        raise ValueError(f"invalid channels {channels}: expected 1 or 3")
    image = _core.decode_image(np.frombuffer(str_img, np.uint8), int(channels == 3), True)
    x0, y0, x1, y1 = clip_rect
    if (x0, y0, x1, y1) != (0, 0, 0, 0):
        height, width = image.shape[:2]
        if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
            raise ValueError(
                f"invalid clip_rect {tuple(clip_rect)}: expected a part of the image of {width} by "
                f"{height} pixels"
            )
        image = image[y0:y1, x0:x1]
    image = image.transpose((2, 0, 1)).astype("float32")
    image = image if mean is None else image - mean
    if out is None:
        return image
    if out.ndim == 4:
        out[index] = image
    else:
        out[:] = image
    return out
