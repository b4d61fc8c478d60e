"""Nested lists of arrays or symbols as flat lists, and back.

A structure is 0 for one array, -1 for None, n > 0 for a symbol of n outputs, and a list for a list.
"""

from __future__ import annotations

from typing import Any

from .. import symbol as sym
from ..context import Context
from ..ndarray import NDArray

__all__ = [
    "context_of",
    "flat_formats",
    "flatten",
    "holds_symbol",
    "regroup",
    "without_trailing_none",
]


def flatten(args: Any, what: str) -> tuple[list[Any], Any]:
    """The arrays, symbols and None of a nested list, and its structure.

    Raises
    ------
    ValueError
        It has something else.
    """
    if isinstance(args, NDArray):
        return [args], 0
    if isinstance(args, sym.Symbol):
        count = len(args.list_outputs())
        return [args], count if count > 1 else 0
    if args is None:
        return [None], -1
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            f"invalid {what} {args!r} of a hybridized block: expected an NDArray, a Symbol or a "
            "(nested) list of these"
        )
    flat: list[Any] = []
    structure = []
    for arg in args:
        arrays, inner = flatten(arg, what)
        flat.extend(arrays)
        structure.append(inner)
    return flat, structure


def regroup(flat: list[Any], structure: Any) -> tuple[Any, list[Any]]:
    """What has this structure, from the first of `flat`; and the rest of it."""
    if isinstance(structure, int):
        if structure == 0:
            return flat[0], flat[1:]
        if structure == -1:
            if flat[0] is not None:
                raise ValueError(f"invalid value {flat[0]!r}: expected None, as in the first call")
            return None, flat[1:]
        return flat[:structure], flat[structure:]
    found = []
    for inner in structure:
        one, flat = regroup(flat, inner)
        found.append(one)
    return found, flat


def flat_formats(structure: Any) -> list[int]:
    """The entries of a nested structure, one for each array or None."""
    if isinstance(structure, int):
        return [structure] if structure < 1 else [0] * structure
    return [entry for inner in structure for entry in flat_formats(inner)]


def without_trailing_none(structure: Any) -> Any:
    """Arguments at the end that are None may as well be left out."""
    if isinstance(structure, list):
        while structure and structure[-1] == -1:
            structure = structure[:-1]
    return structure


def context_of(x: Any) -> Context | None:
    """The device of an array, or of the first one of a nested list."""
    if isinstance(x, NDArray):
        return x.context
    if isinstance(x, (list, tuple)):
        return next(filter(None, map(context_of, x)), None)
    return None


def holds_symbol(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(holds_symbol, x))
    return isinstance(x, sym.Symbol)
