"""MXNet's old names of the profiler's functions."""

from __future__ import annotations

from .session import dump, set_config, set_state


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """As `set_config`, by its old name.

    Parameters
    ----------
    mode : str, default 'symbolic'
        'symbolic' records bound graphs; 'all' also operators that are called one by one, calls of
        the interface, and memory.
    filename : str, default 'profile.json'
        The file of the trace.

    Raises
    ------
    ValueError
        Another mode.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.profiler.profiler_set_config("all", "trace.json")
    """
    if mode not in ("symbolic", "all"):
        raise ValueError(f"invalid mode {mode!r}: expected 'symbolic' or 'all'")
    others = ("profile_imperative", "profile_api", "profile_memory")
    set_config(filename=filename, **dict.fromkeys(others, mode == "all"))


def profiler_set_state(state: str = "stop") -> None:
    """As `set_state`, by its old name.

    Parameters
    ----------
    state : str, default 'stop'
        'run' or 'stop'.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.profiler.profiler_set_state("stop")
    """
    set_state(state)


def dump_profile() -> None:
    """As ``dump(True)``, by its old name.

    Examples
    --------
    >>> import os, tempfile
    >>> import rsnet as mx
    >>> path = os.path.join(tempfile.mkdtemp(), "trace.json")
    >>> mx.profiler.profiler_set_config(filename=path)
    >>> mx.profiler.dump_profile()
    >>> os.path.exists(path)
    True
    """
    dump(True)
