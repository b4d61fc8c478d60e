"""What `mxnet.gluon.utils` has for messages and representations of blocks, and for the addresses
of files to download.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..gluon.parameter_dict import brief
from ..gluon.utils import indented

__all__ = ["_brief_print_list", "_get_repo_file_url", "_get_repo_url", "_indent"]

_REPOSITORY = "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/"


def _indent(s_: str, numSpaces: int) -> str:
    """Indents the lines after the first."""
    return indented(s_, numSpaces)


def _brief_print_list(lst: Iterable[Any], limit: int = 7) -> str:
    """Names in quotes, the middle left out if there are more than `limit`."""
    return brief(lst, limit)


def _get_repo_url() -> str:
    """Where MXNet keeps weights and data sets: the variable MXNET_GLUON_REPO, or its own place."""
    return os.path.join(os.environ.get("MXNET_GLUON_REPO", _REPOSITORY), "")


def _get_repo_file_url(namespace: str, filename: str) -> str:
    """The address of a file there, as ``("gluon/dataset/squad", "train.zip")``."""
    return f"{_get_repo_url()}{namespace}/{filename}"
