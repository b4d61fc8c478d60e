"""Warnings that name the line of the user's program."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_PACKAGE = f"{__package__}."


def _is_ours(frame: FrameType) -> bool:
    # What `exec` runs may have no name.
    return f"{frame.f_globals.get('__name__')}.".startswith(_PACKAGE)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns on behalf of the first caller outside of the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
