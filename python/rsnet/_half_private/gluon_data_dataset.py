"""What `mxnet.gluon.data.dataset` has for data sets that programs write."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..gluon.data.vision.datasets import _LocalDataset

__all__ = ["_DownloadedDataset"]


class _DownloadedDataset(_LocalDataset):
    """Base of data sets that are read at once: `_get_data`, which a subclass defines, sets `_data`
    and `_label`.

    Parameters
    ----------
    root : str
        Folder of the files; it is made if need be.
    transform : callable, optional
        ``transform(data, label)``.
    """

    def __init__(self, root: str, transform: Callable[..., Any] | None) -> None:
        os.makedirs(os.path.expanduser(root), exist_ok=True)
        super().__init__(root, transform)

    def _get_data(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define _get_data")
