"""Arguments that are numbers: what is none, or out of range, is an error that names it."""

from __future__ import annotations

import operator
from typing import Any

from .base import shown

__all__ = ["check_number", "integer"]


def check_number(name: str, value: Any, place: str = "") -> None:
    """Raises a TypeError if `value` is not a number; a numeric string is not one."""
    if not hasattr(value, "__float__"):
        raise TypeError(f"{place}invalid {name} {shown(value)}: expected a number")


def integer(name: str, value: Any, least: int | None = None) -> int:
    """The value as an integer. One that a division gave (8 / 2) is one too.

    Raises
    ------
    TypeError
        It is no integer.
    ValueError
        It is less than `least`.

    Examples
    --------
    >>> integer("batch_size", 4.0, least=1)
    4
    """
    is_whole = isinstance(value, float) and value.is_integer()
    try:
        found = int(value) if is_whole else operator.index(value)
    except TypeError:
        raise TypeError(f"invalid {name} {shown(value)}: expected an integer") from None
    if least is not None and found < least:
        raise ValueError(f"invalid {name} {found}: expected at least {least}")
    return found
