"""Nested lists of arrays or symbols as flat lists, and back.

A structure is 0 for one array, -1 for None, n > 0 for a symbol of n outputs, and a list for a list.
"""

from __future__ import annotations

from typing import Any

from .. import symbol as sym
from ..ndarray import NDArray

__all__ = ["flatten", "regroup"]


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
