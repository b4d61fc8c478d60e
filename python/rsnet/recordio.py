"""Record files: the container in which MXNet keeps images and other payloads.

A record is the magic number 0xCED7230A, a word with flag and length, the payload, and zeros up to a
multiple of four bytes. Where a payload holds the magic number at a multiple of four bytes, it is
divided there: the flag says which part of a payload follows.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import namedtuple
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from . import _core
from ._mxnet_names import module_getattr
from ._text_files import parsed_lines
from .base import MXNetError, file_error, shown

__all__ = [
    "IRHeader",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "encode_image",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]

MAGIC = struct.pack("<I", 0xCED7230A)
#: A payload is shorter than this.
MAX_LENGTH = 1 << 29
WHOLE, FIRST, MIDDLE, LAST = 0, 1, 2, 3

#: Header of a payload: number of labels (0: `label` is the only one), label, id, second id.
IRHeader = namedtuple("IRHeader", ["flag", "label", "id", "id2"])
_IR_FORMAT = "IfQQ"
_HEADER = struct.Struct("<" + _IR_FORMAT)
_IR_SIZE = _HEADER.size


def _parts(payload: bytes) -> list[bytes]:
    """The payload, divided where it holds the magic number at a multiple of four bytes."""
    parts, begin, at = [], 0, 0
    while (at := payload.find(MAGIC, at)) >= 0:
        if (at - begin) % 4 == 0 and at % 4 == 0:
            parts.append(payload[begin:at])
            begin = at = at + 4
        else:
            at += 1
    return [*parts, payload[begin:]]


def encode(payload: bytes) -> bytes:
    """One record.

    Examples
    --------
    >>> encode(b"abcd").hex()
    '0a23d7ce0400000061626364'
    """
    if len(payload) >= MAX_LENGTH:
        raise MXNetError(f"a record of {len(payload)} bytes, expected less than {MAX_LENGTH}")
    parts = _parts(payload)
    out = []
    for i, part in enumerate(parts):
        flag = WHOLE if len(parts) == 1 else FIRST if i == 0 else MIDDLE
        flag = LAST if len(parts) > 1 and i == len(parts) - 1 else flag
        padding = b"\0" * (-len(part) % 4)
        out.append(MAGIC + struct.pack("<I", flag << 29 | len(part)) + part + padding)
    return b"".join(out)


class MXRecordIO:
    """A record file, read or written from its beginning. Threads may share one: a record is read or
    written whole before that of another thread.

    Parameters
    ----------
    uri : str
        Path of the file.
    flag : {'r', 'w'}

    Raises
    ------
    ValueError
        Another flag.
    MXNetError
        The file cannot be opened, or is damaged.

    Examples
    --------
    >>> import os, tempfile, rsnet as mx
    >>> path = os.path.join(tempfile.mkdtemp(), "x.rec")
    >>> with mx.recordio.MXRecordIO(path, "w") as file:
    ...     file.write(b"one")
    ...     file.write(b"two")
    >>> with mx.recordio.MXRecordIO(path, "r") as file:
    ...     print(file.read(), file.read(), file.read())
    b'one' b'two' None
    """

    def __init__(self, uri: str, flag: str) -> None:
        self.uri = str(uri)
        self.flag = flag
        self.is_open = False
        self._file: BinaryIO | None = None
        self.open()

    def open(self) -> None:
        """Opens the file, at its beginning."""
        if self.flag not in ("r", "w"):
            raise ValueError(f"invalid flag {self.flag!r}: expected 'r' or 'w'")
        try:
            self._file = open(self.uri, "rb" if self.flag == "r" else "wb")
        except OSError as error:
            raise file_error("cannot open", self.uri, error) from error
        self._lock = threading.RLock()  # threads share the position; one of a fork may stay locked
        self.writable = self.flag == "w"
        self.pid = os.getpid()
        self.is_open = True

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
        self._file, self.is_open = None, False

    def reset(self) -> None:
        """Begins again; a file that is written becomes empty."""
        self.close()
        self.open()

    def __enter__(self) -> MXRecordIO:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_file"], state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._file = None
        if state["is_open"]:
            self.open()

    def _handle(self, is_writing: bool) -> BinaryIO:
        if self._file is None:
            raise MXNetError(f"{self.uri} is closed: expected open() before")
        if is_writing != self.writable:
            needed = "w" if is_writing else "r"
            raise MXNetError(f"{self.uri}: invalid flag '{self.flag}': expected '{needed}'")
        if self.pid != os.getpid():
            raise RuntimeError(
                f"{self.uri} was opened by another process: expected open() in this one"
            )
        return self._file

    def write(self, buf: bytes) -> None:
        """Appends one record."""
        self._handle(True).write(encode(bytes(buf)))

    def read(self) -> bytes | None:
        """The payload of the next record; None at the end.

        Raises
        ------
        MXNetError
            The file is damaged or cut short; the message names the offset.
        """
        file = self._handle(False)
        with self._lock:
            return self._next_payload(file)

    def _next_payload(self, file: BinaryIO) -> bytes | None:
        parts: list[bytes] = []
        while True:
            at = file.tell()
            head = file.read(8)
            if not head and not parts:
                return None
            if len(head) < 8 or head[:4] != MAGIC:
                raise MXNetError(f"{self.uri}: offset {at} holds {head[:4]!r}, expected a record")
            (word,) = struct.unpack("<I", head[4:])
            flag, length = word >> 29, word & (MAX_LENGTH - 1)
            padded = length + -length % 4
            data = file.read(padded)
            if len(data) < padded:
                raise MXNetError(
                    f"{self.uri}: the record at offset {at} has {len(data)} bytes, expected "
                    f"{padded}"
                )
            if flag not in ((WHOLE, FIRST) if not parts else (MIDDLE, LAST)):
                raise MXNetError(
                    f"{self.uri}: invalid part {flag} of a record at offset {at}: expected "
                    f"{'its first' if not parts else 'a later one'}"
                )
            parts.append(data[:length])
            if flag in (WHOLE, LAST):
                return MAGIC.join(parts)

    def tell(self) -> int:
        """Offset of the next record."""
        if self._file is None:
            raise MXNetError(f"{self.uri} is closed: expected open() before")
        return self._file.tell()


class MXIndexedRecordIO(MXRecordIO):
    """A record file with an index, which is a text of lines ``key TAB offset``.

    Parameters
    ----------
    idx_path, uri : str
        Paths of the index and of the records.
    flag : {'r', 'w'}
    key_type : callable
        Makes a key of its text.
    """

    def __init__(self, idx_path: str, uri: str, flag: str, key_type: Any = int) -> None:
        self.idx_path = str(idx_path)
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.key_type = key_type
        super().__init__(uri, flag)

    def open(self) -> None:
        """Opens both files."""
        super().open()
        self.idx, self.keys = {}, []
        if self.writable:
            self._index: list[str] = []
            return
        self.idx = dict(pair for _, pair in parsed_lines(self.idx_path, self._parse_line))
        self.keys = list(self.idx)

    def _parse_line(self, line: str) -> tuple[Any, int]:
        key, _, offset = line.partition("\t")
        try:
            return self.key_type(key), _offset(offset)
        except ValueError as error:
            raise ValueError(f"expected a key and an offset: {error}") from error

    def close(self) -> None:
        """Closes the file, and writes the index of one that was written."""
        if self.is_open and self.writable and self.pid == os.getpid():
            with open(self.idx_path, "w", encoding="utf-8") as file:
                file.writelines(self._index)
        super().close()

    def seek(self, idx: Any) -> None:
        """Moves to the record of a key.

        Raises
        ------
        KeyError
            The index does not have the key.
        """
        self._handle(False).seek(self.idx[idx])

    def read_idx(self, idx: Any) -> bytes:
        """The payload of the record of a key.

        Raises
        ------
        KeyError
            The index does not have the key.
        MXNetError
            The file is damaged, or ends before the record.
        """
        self._handle(False)
        with self._lock:
            self.seek(idx)
            payload = self.read()
        if payload is None:
            raise MXNetError(
                f"{self.idx_path}: invalid offset {self.idx[idx]} of record {idx}: expected less "
                f"than {os.path.getsize(self.uri)}, the bytes of {self.uri}"
            )
        return payload

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Appends one record under a key."""
        key = self.key_type(idx)
        self._handle(True)
        with self._lock:
            offset = self.tell()
            self.write(buf)
            self._index.append(f"{key}\t{offset}\n")
            self.idx[key] = offset
            self.keys.append(key)


def _offset(text: str) -> int:
    """A place in a file."""
    offset = int(text)
    if not 0 <= offset < 1 << 63:
        raise ValueError(f"invalid offset {offset}: expected at least 0, and 64 bits")
    return offset


def pack(header: IRHeader | Iterable[Any], s: bytes) -> bytes:
    """The payload of a record with a header: several labels are put before the data.

    Examples
    --------
    >>> header, data = unpack(pack(IRHeader(0, [1.0, 2.0], 7, 0), b"data"))
    >>> header.label.tolist(), header.id, data
    ([1.0, 2.0], 7, b'data')
    """
    try:
        header = IRHeader(*header)
    except TypeError:
        expected = "an IRHeader, of flag, label, id and id2"
        raise TypeError(f"invalid header {shown(header)}: expected {expected}") from None
    if not isinstance(s, (bytes, bytearray)):
        raise TypeError(f"invalid s {shown(s)}: expected bytes")
    if isinstance(header.label, (int, float, np.number)):
        return _HEADER.pack(0, float(header.label), header.id, header.id2) + s
    label = np.asarray(header.label, dtype="<f4")
    return _HEADER.pack(label.size, 0.0, header.id, header.id2) + label.tobytes() + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Header and data of a payload that `pack` made.

    Raises
    ------
    MXNetError
        The payload is too short.
    """
    if len(s) < _HEADER.size:
        raise MXNetError(f"a payload of {len(s)} bytes, expected at least {_HEADER.size}")
    header = IRHeader(*_HEADER.unpack(s[: _HEADER.size]))
    s = s[_HEADER.size :]
    if header.flag > 0:
        if len(s) < 4 * header.flag:
            raise MXNetError(f"a payload of {len(s)} bytes, expected {header.flag} labels")
        label = np.frombuffer(s[: 4 * header.flag], "<f4").astype("float32")
        header, s = header._replace(label=label), s[4 * header.flag :]
    return header, s


def encode_image(img: Any, img_fmt: str = ".jpg", quality: int = 95) -> bytes:
    """The bytes of an image file.

    Parameters
    ----------
    img : NDArray or numpy.ndarray
        The image (H, W, C) or (H, W) of dtype uint8; 1 or 3 channels in the order red, green, blue
        (PNG: also 4).
    img_fmt : {'.jpg', '.jpeg', '.png'}
    quality : int
        1 to 100 for JPEG, whose colour has half of the resolution; 0 to 9, the effort, for PNG.
    """
    data = np.ascontiguousarray(img.asnumpy() if hasattr(img, "asnumpy") else img)
    return _core.encode_image(data, img_fmt, int(quality))


def pack_img(
    header: IRHeader | Iterable[Any], img: Any, quality: int = 95, img_fmt: str = ".jpg"
) -> bytes:
    """The payload of a record with an image, which is encoded.

    Parameters
    ----------
    header : IRHeader
    img : NDArray or numpy.ndarray
        The image (H, W, C) of dtype uint8 in the order **blue, green, red**, as MXNet has it here.
    quality, img_fmt
        As in `encode_image`; for PNG a quality above 9, such as the default, counts as 9.

    Examples
    --------
    >>> picture = np.zeros((4, 5, 3), "uint8")
    >>> payload = pack_img(IRHeader(0, 3.0, 7, 0), picture, img_fmt=".png", quality=3)
    >>> header, img = unpack_img(payload)
    >>> header.label, img.shape
    (3.0, (4, 5, 3))
    """
    if img_fmt.lower() == ".png":
        quality = min(quality, 9)
    return pack(header, encode_image(_swapped(img), img_fmt, quality))


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """Header and image of a payload that `pack_img` made.

    Parameters
    ----------
    s : bytes
    iscolor : {1, 0, -1}
        1 for three channels, in the order blue, green, red; 0 for the lightness (H, W); -1 for
        whichever the image has.
    """
    header, data = unpack(s)
    img = _core.decode_image(np.frombuffer(data, np.uint8), iscolor, False).asnumpy()
    return header, img[..., 0] if img.shape[2] == 1 else img


def _swapped(img: Any) -> np.ndarray:
    """Red and blue exchanged, where there are colours."""
    data = np.asarray(img.asnumpy() if hasattr(img, "asnumpy") else img)
    if data.ndim == 3 and data.shape[2] in (3, 4):
        data = data[..., [2, 1, 0, *range(3, data.shape[2])]]
    return data


__getattr__ = module_getattr(__name__)
