"""Warnings that name the line of the user's program."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = f"{__package__}."


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns on behalf of the first caller outside of the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and f"{frame.f_globals['__name__']}.".startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
