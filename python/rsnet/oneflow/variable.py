"""Variables of jobs: ``get_variable(name, shape, initializer=...)``, and their initializers.

A variable belongs to the program, not to a job: every job that asks for the name gets the same
array, as jobs of one OneFlow session do.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from .. import initializer as init
from .. import ndarray as nd
from .._operators.checks import fail
from . import job
from .dtypes import float32

_variables: dict[str, Any] = {}
_lock = threading.Lock()


def get_variable(
    name: str, shape: Any = None, dtype: Any = float32, initializer: Any = None,
    trainable: bool = True,
) -> Any:  # fmt: skip
    """The variable of this name; made, and filled by ``initializer``, when first asked for.

    Parameters
    ----------
    name : str
    shape : tuple of int
        May be left out where the variable exists.
    dtype : optional
        Default float32.
    initializer : optional
        ``constant_initializer(2.0)`` and its kin, or anything that ``rsnet.initializer`` knows.
    trainable : bool
        Does ``minimize`` of a train job update it?

    Returns
    -------
    NDArray

    Raises
    ------
    rsnet.MXNetError
        Outside a job; for a new variable without shape or initializer; or where the variable exists
        with another shape or dtype.
    """
    running = job.current("get_variable")
    kind = np.dtype(getattr(dtype, "numpy_name", dtype))
    with _lock:
        found = _variables.get(name)
        if found is None:
            if shape is None or initializer is None:
                raise fail("get_variable", f"expected shape and initializer, as '{name}' is new")
            found = nd.zeros(tuple(shape), dtype=kind)
            init.create(initializer)._init_weight(name, found)
            _variables[name] = found
    found_kind = np.dtype(found.dtype)
    if (shape is not None and found.shape != tuple(shape)) or found_kind != kind:
        has = f"has shape {found.shape} and dtype {found_kind}"
        raise fail("get_variable", f"'{name}' {has}, expected shape {shape} and dtype {kind}")
    if trainable:
        running.train(name, found)
    return found


def clear_default_session() -> None:
    """Forgets all variables."""
    with _lock:
        _variables.clear()


def constant_initializer(value: float = 0.0) -> Any:
    """Every element is ``value``."""
    return init.Constant(value)


def zeros_initializer() -> Any:
    """Every element is 0."""
    return init.Constant(0.0)


def ones_initializer() -> Any:
    """Every element is 1."""
    return init.Constant(1.0)
