"""Sessions of the profiler: what is recorded, when, and where it is written."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _core
from .marks import _text
from .writer import Writer

_profiler = _core.profiler

_ALL = 15
_MODES = {"symbolic": 1, "imperative": 2, "api": 4, "memory": 8}
_DEFAULTS: dict[str, Any] = {
    "filename": "profile.json",
    "profile_all": False,
    "profile_symbolic": True,
    "profile_imperative": True,
    "profile_memory": True,
    "profile_api": True,
    "continuous_dump": True,
    "dump_period": 1.0,
    "aggregate_stats": True,
    "profile_process": "worker",
}


def _check_process(profile_process: str) -> None:
    if profile_process == "server":
        raise ValueError("invalid profile_process 'server': expected 'worker', the only process")
    if profile_process != "worker":
        raise ValueError(f"invalid profile_process {profile_process!r}: expected 'worker'")


_writer = Writer()
# Over the writer's start and stop; never over a write, which may take any time.
_lock = threading.RLock()


def set_config(**kwargs: Any) -> None:
    """Sets what is recorded, and where it is written. Options that are not given take their
    defaults.

    Parameters
    ----------
    filename : str, default 'profile.json'
        The file of the trace, which is overwritten.
    profile_all : bool, default False
        All of the following four.
    profile_symbolic : bool, default True
        Nodes of bound graphs.
    profile_imperative : bool, default True
        Operators called one by one, and functions pushed to the engine.
    profile_memory : bool, default True
        A counter of the bytes that arrays take, with every change.
    profile_api : bool, default True
        Calls of rsnet: how long they kept the thread that made them.
    continuous_dump : bool, default True
        Append to the file every `dump_period` while it runs. If not, at most four million records
        (some 230 MB) are kept for `dump`; further ones are dropped and counted.
    dump_period : float, default 1.0
        In seconds.
    aggregate_stats : bool, default True
        Gather statistics for `dumps`, on the thread that writes the file.
    profile_process : str, default 'worker'
        Accepted for compatibility with MXNet.

    Raises
    ------
    TypeError
        An unknown option, or one of a wrong type.
    ValueError
        A period that is not positive, or ``profile_process='server'``.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.profiler.set_config(filename="trace.json", profile_memory=False, aggregate_stats=True)
    >>> try:
    ...     mx.profiler.set_config(file="trace.json")
    ... except TypeError as error:
    ...     print(str(error).partition(" (")[0])
    set_config: invalid option 'file': expected one of: ...
    """
    for key in kwargs:
        if key not in _DEFAULTS:
            known = ", ".join(_DEFAULTS)
            raise TypeError(f"set_config: invalid option {key!r}: expected one of: {known}")
    options = _DEFAULTS | kwargs
    for key, default in _DEFAULTS.items():
        value = options[key]
        if isinstance(default, bool) and not (isinstance(value, bool) or value in (0, 1)):
            raise TypeError(f"invalid {key} {value!r}: expected a bool")
    _check_process(options["profile_process"])
    path = options["filename"]
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise TypeError(f"invalid filename {path!r}: expected the path of a file")
    period = options["dump_period"]
    if isinstance(period, bool) or not isinstance(period, (int, float)):
        raise TypeError(f"invalid dump_period {period!r}: expected a number of seconds")
    if not 0 < period < threading.TIMEOUT_MAX:
        raise ValueError(f"invalid dump_period {period!r}: expected a positive number")
    mode = sum(
        bit for name, bit in _MODES.items() if options["profile_all"] or options[f"profile_{name}"]
    )
    _configure(os.fspath(path), mode, bool(options["aggregate_stats"]))
    with _lock:
        _writer.stop()
        _writer.period_s = float(period) if options["continuous_dump"] else None
        if state() != "stop":
            _writer.start()


_is_configured = False


def _configure(path: str, mode: int, aggregates: bool) -> None:
    global _is_configured
    # Relative to the current folder, which the program may change before the dump.
    _profiler.configure(os.path.abspath(path), mode, aggregates)
    _is_configured = True


def _configure_by_default() -> None:
    """Takes the defaults where a program starts without `set_config`."""
    if not _is_configured:
        _configure(_DEFAULTS["filename"], _ALL, _DEFAULTS["aggregate_stats"])


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Starts or stops recording. What was recorded is kept for `dump` and `dumps`.

    Parameters
    ----------
    state : str
        'run' or 'stop'.
    profile_process : str, default 'worker'
        Accepted for compatibility with MXNet.

    Raises
    ------
    ValueError
        Another state.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.profiler.set_config(continuous_dump=False)
    >>> mx.profiler.set_state("run")
    >>> mx.profiler.state()
    'run'
    >>> mx.profiler.set_state("stop")
    """
    _check_process(profile_process)
    if state not in ("run", "stop"):
        raise ValueError(f"invalid state {state!r}: expected 'run' or 'stop'")
    with _lock:
        if state == "run":
            _configure_by_default()
            _profiler.set_running(True)
            _writer.start()
        else:
            _profiler.set_running(False)
            _writer.stop()


def state() -> str:
    """The state of the profiler.

    Returns
    -------
    str
        'run', 'pause' or 'stop'.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.profiler.state()
    'stop'
    """
    return str(_profiler.state())


def pause(profile_process: str = "worker") -> None:
    """Suspends recording until `resume`; has no effect while the profiler is stopped.

    Parameters
    ----------
    profile_process : str, default 'worker'
        Accepted for compatibility with MXNet.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.profiler.set_config(continuous_dump=False)
    >>> mx.profiler.set_state("run")
    >>> mx.profiler.pause()
    >>> mx.profiler.state()
    'pause'
    >>> mx.profiler.resume()
    >>> mx.profiler.state()
    'run'
    >>> mx.profiler.set_state("stop")
    """
    _check_process(profile_process)
    _profiler.set_paused(True)


def resume(profile_process: str = "worker") -> None:
    """Continues recording after `pause`.

    Parameters
    ----------
    profile_process : str, default 'worker'
        Accepted for compatibility with MXNet.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.profiler.resume()
    >>> mx.profiler.state()
    'stop'
    """
    _check_process(profile_process)
    _profiler.set_paused(False)


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Writes what was recorded to the file of `set_config`, which is then a whole trace.

    Parameters
    ----------
    finished : bool, default True
        Stop, and begin a new file with the next session. If not, recording goes on and the next
        dump appends.
    profile_process : str, default 'worker'
        Accepted for compatibility with MXNet.

    Raises
    ------
    OSError
        The file cannot be written; what was recorded is kept.

    Warns
    -----
    RuntimeWarning
        There was no room for some records.

    Examples
    --------
    >>> import json, os, tempfile
    >>> import rsnet as mx
    >>> path = os.path.join(tempfile.mkdtemp(), "trace.json")
    >>> mx.profiler.set_config(filename=path, profile_api=False)
    >>> mx.profiler.set_state("run")
    >>> x = mx.nd.ones((2,))
    >>> mx.profiler.dump()
    >>> mx.profiler.state()
    'stop'
    >>> with open(path) as file:
    ...     trace = json.load(file)
    >>> trace["displayTimeUnit"], [e["name"] for e in trace["traceEvents"] if e["ph"] == "B"]
    ('ms', ['_full'])
    """
    _check_process(profile_process)
    if finished:
        with _lock:
            _writer.stop()
    dropped = _profiler.dump(bool(finished))
    if dropped:
        text = f"the profiler had no room for {dropped} records: use continuous_dump=True"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def dumps(
    reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False
) -> str:
    """Totals, least, greatest and average by name, of all that was recorded since the statistics
    began.

    Parameters
    ----------
    reset : bool, default False
        Start new statistics.
    format : str, default 'table'
        'table', or 'json' for ``{"Time": {category: {name: {"Count", "Total", "Min", "Max",
        "Avg"}}}, "Memory": ..., "Counter": ..., "Unit": ...}``. Times are in milliseconds, memory
        in kilobytes (1000 bytes). Of memory and of counters the total is the last value.
    sort_by : str, default 'total'
        'total', 'avg', 'min', 'max' or 'count'.
    ascending : bool, default False
        Least first?

    Returns
    -------
    str

    Raises
    ------
    ValueError
        ``aggregate_stats`` is False; an unknown format or column.

    Examples
    --------
    >>> import rsnet as mx
    >>> _ = mx.profiler.dumps(reset=True)  # forgets sessions of before
    >>> mx.profiler.set_config(continuous_dump=False, profile_api=False, profile_memory=False)
    >>> mx.profiler.set_state("run")
    >>> x = mx.nd.ones((2,)) + 1
    >>> mx.nd.waitall()
    >>> mx.profiler.set_state("stop")
    >>> lines = mx.profiler.dumps(reset=True).splitlines()
    >>> lines[1], lines[4], lines[6].split()[:3], sorted(line.split()[0] for line in lines[8:])
    ('Profile Statistics:', 'operator', ['Name', 'Total', 'Count'], ['_full', '_plus_scalar'])
    """
    _configure_by_default()
    text = _profiler.summary(bool(reset), format, sort_by, bool(ascending))
    if text is None:
        raise ValueError("no statistics are gathered: aggregate_stats=False was set, expected True")
    return str(text)


@contextmanager
def scope(name: str = "<unk>:", append_mode: bool = True) -> Iterator[str]:
    """Counts the memory that a ``with`` block takes under a name of its own.

    With ``profile_memory``, the bytes that are taken for operations which this thread calls in the
    block are summed in the counter ``<name>Memory: <device>``. (They are not taken off again when
    they are freed.)

    Parameters
    ----------
    name : str, default '<unk>:'
        A colon is added if it does not end with one.
    append_mode : bool, default True
        Inside another scope: append the name to that one's?

    Returns
    -------
    context manager
        Gives the full name.

    Examples
    --------
    >>> import rsnet as mx
    >>> with mx.profiler.scope("net"):
    ...     with mx.profiler.scope("first:") as name:
    ...         x = mx.nd.ones((2, 3))
    >>> name
    'net:first:'
    """
    before = _profiler.memory_scope()
    own = _text("name", name).removesuffix(":") + ":"
    full = before + own if append_mode else own
    _profiler.set_memory_scope(full)
    try:
        yield full
    finally:
        _profiler.set_memory_scope(before)


def _mode_of_environment() -> int:
    text = os.environ.get("MXNET_PROFILER_MODE", "").strip()
    if not text:
        return _ALL
    if not text.isascii() or not text.isdigit() or int(text) > _ALL:
        modes = "1 (symbolic), 2 (imperative), 4 (api) and 8 (memory)"
        raise ValueError(f"invalid MXNET_PROFILER_MODE {text!r}: expected a sum of {modes}")
    return int(text)


def _at_exit() -> None:
    if state() != "stop":
        dump(True)


def _in_child() -> None:
    global _lock
    # The writing thread and the holder of the lock exist in the parent only.
    _lock = threading.RLock()
    _writer.forget()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)

# MXNet's switch to profile a program without a change to it.
if os.environ.get("MXNET_PROFILER_AUTOSTART", "").strip().lower() in ("1", "true"):
    _configure(_DEFAULTS["filename"], _mode_of_environment(), _DEFAULTS["aggregate_stats"])
    set_state("run")
