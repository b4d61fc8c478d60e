"""What `mxnet.gluon.utils` has for messages and representations of blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..gluon.parameter_dict import brief
from ..gluon.utils import indented

__all__ = ["_brief_print_list", "_indent"]


def _indent(s_: str, numSpaces: int) -> str:
    """Indents the lines after the first."""
    return indented(s_, numSpaces)


def _brief_print_list(lst: Iterable[Any], limit: int = 7) -> str:
    """Names in quotes, the middle left out if there are more than `limit`."""
    return brief(lst, limit)
