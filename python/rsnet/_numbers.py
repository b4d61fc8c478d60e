"""Arguments that are numbers: what is none, or out of range, is an error that names it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from typing import Any

from .base import MXValueError, shown

__all__ = ["check_number", "check_range", "integer", "listed_numbers", "whole_numbers"]


def check_number(name: str, value: Any, place: str = "") -> None:
    """Raises a TypeError if `value` is not a number; a numeric string is not one."""
    if not hasattr(value, "__float__"):
        raise TypeError(f"{place}invalid {name} {shown(value)}: expected a number")


#: What can be iterated over and is no list of numbers: text, bytes, and what has no order.
_NO_LISTS = (str, bytes, bytearray, memoryview, Set, Mapping)


def whole_numbers(numbers: Any, what: str) -> tuple[int, ...]:
    """One number or several, as of a shape, as a tuple.

    Raises
    ------
    TypeError
        It is something else, or has a number that is not whole; the message begins with "invalid"
        and `what`.
    MXValueError
        A number has more than 64 bits.

    Examples
    --------
    >>> whole_numbers(3, "shape"), whole_numbers([2, 3], "shape")
    ((3,), (2, 3))
    """
    try:
        found: tuple[int, ...] = (operator.index(numbers),)
    except TypeError:
        try:
            found = listed_numbers(numbers)
        except TypeError:
            expected = "an int or a tuple of ints"
            raise TypeError(f"invalid {what} {shown(numbers)}: expected {expected}") from None
    check_range(found, what)
    return found


def check_range(numbers: Sequence[int | None], what: str, place: str = "") -> None:
    """Raises an MXValueError if one of the numbers has more than 64 bits."""
    if not all(number is None or -(2**63) <= number < 2**63 for number in numbers):
        expected = "numbers of less than 2**63"
        raise MXValueError(f"{place}invalid {what} {shown(numbers)}: expected {expected}")


def listed_numbers(numbers: Any) -> tuple[int, ...]:
    """The whole numbers of a list, tuple, array or the like; a bare TypeError for anything else."""
    if isinstance(numbers, _NO_LISTS):
        raise TypeError
    return tuple([operator.index(number) for number in numbers])


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
