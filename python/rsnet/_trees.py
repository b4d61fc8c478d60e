"""What loops and conditions take and return: nested lists of arrays or symbols, functions, a number
of steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import shown

__all__ = ["check_functions", "flat", "like", "listed", "pair", "step_limit"]


def flat(tree: Any, kind: type, what: str) -> list[Any]:
    """The objects of `kind` in a nested list, in order.

    Raises
    ------
    TypeError
        Something in it is of another type; the message names `what`.
    """
    if isinstance(tree, kind):
        return [tree]
    if not isinstance(tree, (list, tuple)):
        got, expected = type(tree).__name__, kind.__name__
        article = "an" if expected == "NDArray" else "a"
        raise TypeError(
            f"invalid {what} of type {got}: expected {article} {expected} or a (nested) list"
        )
    return [leaf for part in tree for leaf in flat(part, kind, what)]


def listed(value: Any) -> list[Any]:
    """A list of the parts of a list or tuple, or of the one object that is neither."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def like(tree: Any, leaves: list[Any]) -> Any:
    """Takes objects from the front of the list, nested as `tree` is."""
    if not isinstance(tree, (list, tuple)):
        return leaves.pop(0)
    return [like(part, leaves) for part in tree]


def pair(result: Any, expected: str) -> tuple[Any, Any]:
    """The two parts of what the body of a loop returned.

    Raises
    ------
    ValueError
        `result` is not a pair; `expected` describes one in the message.
    """
    try:
        first, second = result
    except (TypeError, ValueError):
        text = f"invalid result {shown(result)} of a loop's body: expected {expected}"
        raise ValueError(text) from None
    return first, second


def check_functions(**given: Any) -> None:
    """Refuses an argument that cannot be called, by its name."""
    for what, function in given.items():
        if not callable(function):
            raise TypeError(f"invalid {what} {shown(function)}: expected a function")


def step_limit(max_iterations: Any, least: int) -> int:
    """The greatest number of steps of a loop, which may be an array of one element.

    Raises
    ------
    ValueError
        It is no number, or below `least`.
    """
    limit = max_iterations
    if getattr(limit, "size", 0) == 1:
        limit = limit.item()
    if isinstance(limit, (int, float, np.integer, np.floating)) and least <= limit < 2**63:
        return int(limit)
    raise ValueError(
        f"invalid max_iterations {shown(max_iterations)}: expected a number of {least} or more"
    )
