"""Files that are written whole or not at all, so that a full disk costs no older file."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from .base import file_error

__all__ = ["replacing"]

_STREAMS = ("/dev/std", "/dev/fd/", "/proc/")  # names of what a program has open


@contextlib.contextmanager
def replacing(path: Any) -> Iterator[BinaryIO]:
    """A file to write in a ``with`` block, whose end puts it in the place of that at `path`.

    Until then, and after an error, that is what it was. It keeps its permissions and its owner, and
    links keep leading to it. What cannot be replaced is written itself: a pipe, a device, a file
    with several names, one in a folder that takes no other; and an empty file, which loses nothing:
    the program may have it open (`tempfile.NamedTemporaryFile`) and read it afterwards.

    Raises
    ------
    MXNetError
        It cannot be written; an `OSError`, too.
    """
    try:
        with _opened(path) as file:
            yield file
    except OSError as error:
        raise file_error("cannot write", path, error) from error


@contextlib.contextmanager
def _opened(path: Any) -> Iterator[BinaryIO]:
    made = _made_beside(path)
    if made is None:
        with open(path, "wb") as file:
            yield file
        return
    new, target = made
    try:
        with new:
            yield new
        os.replace(new.name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(new.name)
        raise


def _is_replaceable(path: str, status: os.stat_result) -> bool:
    is_whole = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size > 0
    return is_whole and os.access(path, os.W_OK)


def _made_beside(path: Any) -> tuple[BinaryIO, str] | None:
    """A new file, and the path of the one that it may replace; None if there cannot be one."""
    if isinstance(path, int) or os.fsdecode(os.path.abspath(path)).startswith(_STREAMS):
        return None
    target = os.fsdecode(os.path.realpath(path))
    try:
        old = os.stat(target) if os.path.lexists(target) else None
        if old is not None and not _is_replaceable(target, old):
            return None
        file = open(f"{target}.{os.urandom(8).hex()}", "xb")
    except OSError:
        return None
    try:
        if old is not None:
            own = os.fstat(file.fileno())
            if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid):
                os.chown(file.name, old.st_uid, old.st_gid)
            os.chmod(file.name, stat.S_IMODE(old.st_mode))
    except OSError:
        file.close()
        os.remove(file.name)
        return None
    return file, target
