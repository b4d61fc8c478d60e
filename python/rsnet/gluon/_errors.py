"""What errors of a block's call say of the block and of the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._exceptions import add_note
from ..base import MXNetError, MXTypeError, NotImplementedForSymbol
from ..ndarray import NDArray

__all__ = ["is_about_values", "needs_values", "note_dtypes", "within"]


def within(error: MXNetError, block: Any) -> MXNetError:
    """The error with the name of the innermost block in its message."""
    if not hasattr(error, "block") and error.args and isinstance(error.args[0], str):
        vars(error)["block"] = block.name
        error.args = (f"{type(block).__name__} '{block.name}': {error.args[0]}", *error.args[1:])
    return error


def note_dtypes(error: MXNetError, arrays: dict[str, Any]) -> None:
    """Adds the dtypes of all operands to an error about dtypes, the first of each by name."""
    if not isinstance(error, MXTypeError) or hasattr(error, "block"):
        return
    kinds: dict[str, str] = {}
    for name, array in arrays.items():
        if isinstance(array, NDArray):
            kinds.setdefault(np.dtype(array.dtype).name, name)
    if len(kinds) > 1:
        listed = ", ".join(f"'{name}' is {kind}" for kind, name in kinds.items())
        add_note(error, f"{listed}: convert one by astype, or the block by cast")


def needs_values(block: Any, why: str) -> MXNetError:
    return MXNetError(
        f"{type(block).__name__} '{block.name}' cannot be hybridized: its hybrid_forward needs "
        f"values, which a graph does not have before it runs: {why} Compute with F alone, or "
        "do not hybridize this block."
    )


def is_about_values(error: MXNetError) -> bool:
    return isinstance(error.__cause__, NotImplementedForSymbol)
