"""What can be shown on a stream."""

from __future__ import annotations

from typing import Any


def is_terminal(stream: Any) -> bool:
    """Whether a line written to `stream` can be redrawn."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # replaced by another object, or closed
        return False
