"""Text files that are read line by line, whose errors name the file and the line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .base import MXNetError, file_error

__all__ = ["parsed_lines"]

_Item = TypeVar("_Item")


def parsed_lines(path: Any, parse: Callable[[str], _Item]) -> Iterator[tuple[int, _Item]]:
    """The number of each line that is not blank, and what `parse` makes of its text. A mark of the
    order of bytes at the beginning, as spreadsheets write it, is skipped.

    Raises
    ------
    MXNetError
        The file cannot be read, is not UTF-8, or `parse` raised a ValueError or OverflowError.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                text = line.strip()
                if not text:
                    continue
                try:
                    item = parse(text)
                except (ValueError, OverflowError) as error:
                    raise MXNetError(f"{path}:{number}: {error}") from error
                yield number, item
    except (OSError, UnicodeDecodeError) as error:
        raise file_error("cannot read", path, error) from error
