"""List files: lines of id, labels and path of an image, with tabs between them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._text_files import parsed_lines
from ..base import MXNetError

__all__ = ["images_by_id", "read_list"]

_Line = tuple[int, np.ndarray, str]


def read_list(path: str) -> Iterator[tuple[int, _Line]]:
    """The number of each line of a list file, with its id, labels and path.

    Raises
    ------
    MXNetError
        The file cannot be read, or a line is none of a list; the message names it.
    """
    return parsed_lines(path, _parse)


def _parse(line: str) -> _Line:
    fields = line.split("\t")
    try:
        labels = np.array(fields[1:-1], dtype="float32")
        if not labels.size:
            raise ValueError("expected a label at least")
        return int(float(fields[0])), labels, fields[-1]
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"expected id, labels and path, with tabs between them: {error}"
        ) from error


def images_by_id(path: str) -> dict[int, tuple[np.ndarray, str]]:
    """Labels and path of each image of a list file, by id.

    Raises
    ------
    MXNetError
        As `read_list`; or two lines have the same id.
    """
    images: dict[int, tuple[np.ndarray, str]] = {}
    for number, (key, labels, name) in read_list(path):
        if key in images:
            raise MXNetError(
                f"{path}:{number}: invalid id {key}, that of a line before: expected one of its own"
            )
        images[key] = labels, name
    return images
