"""Reading pickled states of optimizers: rsnet's own, and those that MXNet wrote."""

from __future__ import annotations

import io
import pickle
from typing import Any

from .._mxnet_names import PLACES
from ..ndarray import NDArray
from ..ndarray._io import loads_record

__all__ = ["loads"]


class _Array:
    """An array of MXNet: its pickle calls the class, and then sets the bytes of the array."""

    def __init__(self, handle: None = None) -> None:
        self.array: NDArray | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.get("handle") is not None:
            self.array = loads_record(bytes(state["handle"]))


class _Unpickler(pickle.Unpickler):
    """Finds MXNet's classes in rsnet."""

    def find_class(self, module: str, name: str) -> Any:
        package, _, rest = module.partition(".")
        if package == "mxnet":
            if name == "NDArray":
                return _Array
            module = f"{__name__.partition('.')[0]}.{PLACES.get(rest, rest)}".rstrip(".")
        return super().find_class(module, name)


def loads(states: bytes) -> Any:
    """What was pickled, with arrays of rsnet. The file can run code: for trusted sources only."""
    return _own(_Unpickler(io.BytesIO(states)).load())


def _own(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.array
    if isinstance(value, dict):
        return {key: _own(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_own, value))
    return value
