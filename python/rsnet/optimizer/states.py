"""Reading pickled states of optimizers: rsnet's own, and those that MXNet wrote."""

from __future__ import annotations

import io
import pickle
from typing import Any

from .._mxnet_names import PLACES

__all__ = ["loads"]


class _Unpickler(pickle.Unpickler):
    """Finds MXNet's classes in rsnet, where their pickles have the same form."""

    def find_class(self, module: str, name: str) -> Any:
        package, _, rest = module.partition(".")
        if package == "mxnet":
            module = f"{__name__.partition('.')[0]}.{PLACES.get(rest, rest)}".rstrip(".")
        return super().find_class(module, name)


def loads(states: bytes) -> Any:
    """What was pickled. The file can run code: for trusted sources only."""
    import pickletools  # takes milliseconds, and few programs load states

    # Python takes memory for what a damaged byte announces, gigabytes of it, before it looks.
    for code, number, at in pickletools.genops(states):
        if "PUT" in code.name and isinstance(number, int) and number > len(states):
            raise pickle.UnpicklingError(f"invalid number {number} at byte {at}: expected less")
    return _Unpickler(io.BytesIO(states)).load()
