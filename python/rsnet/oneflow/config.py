"""Settings before the first job."""

from __future__ import annotations

import os
import threading

from .._operators.checks import invalid
from .._operators.library import load_library as _load

_lock = threading.Lock()
_waiting: list[str] = []
_started = False


def load_library(path: str) -> bool:
    """Remembers a library of compiled operators; the first job loads it before it runs.

    As in OneFlow it has no effect once a job has run: that is printed. See
    :func:`load_library_now` and :func:`rsnet.load_library`.

    Parameters
    ----------
    path : str

    Returns
    -------
    bool
        Whether it will be loaded.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise invalid("load_library", "path", path, "a string or a path")
    with _lock:
        if not _started:
            _waiting.append(os.fspath(path))
            return True
    print(
        f"load_library('{os.fspath(path)}') has no effect: a job has run already. Call it before "
        "the first job, or use load_library_now"
    )
    return False


def load_library_now(path: str) -> bool:
    """Loads a library of compiled operators at once; see :func:`rsnet.load_library`.

    Returns
    -------
    bool
        True.

    Raises
    ------
    rsnet.MXNetError
        It cannot be loaded.
    """
    _load(path)
    return True


def start_session() -> None:
    """Loads what :func:`load_library` has remembered; called by every job before it runs."""
    global _started
    with _lock:
        _started = True
        while _waiting:
            _load(_waiting[0])
            _waiting.pop(0)


def gpu_device_num(n: int) -> None:
    """How many GPUs a job may use; accepted for any number, jobs run where their arrays are."""
    if not isinstance(n, int) or n < 0:
        raise invalid("gpu_device_num", "n", n, "a number of devices")


def cpu_device_num(n: int) -> None:
    """How many CPU devices a job may use."""
    gpu_device_num(n)
