"""Arguments of layers with windows: extents by axis, and orders of axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._numbers import whole_numbers
from ...base import shown

__all__ = ["checked_layout", "per_axis"]


def per_axis(value: Any, axes: int, what: str) -> tuple[int, ...]:
    """An int for every axis, from one int or as many as there are axes."""
    found = whole_numbers(value, what)
    found = found * axes if isinstance(value, (int, np.integer)) else found
    if len(found) != axes:
        raise AssertionError(f"invalid {what} {shown(value)}: expected an int or {axes} of them")
    return found


def checked_layout(block: str, layout: str | None, axes: int, what: str = "layout") -> str:
    """`layout` if there is such an order of axes; the usual one for None."""
    layouts = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[axes]
    if layout and layout not in layouts:
        raise AssertionError(f"{block}: invalid {what} '{layout}': expected one of {layouts}")
    return layout or layouts[0]
