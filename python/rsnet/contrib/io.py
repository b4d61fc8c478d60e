"""A data loader of Gluon as a data iterator, for `Module`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ndarray as nd
from ..io import DataDesc, DataIter
from ..ndarray import NDArray

__all__ = ["DataLoaderIter"]


class DataLoaderIter(DataIter):
    """Batches of a `gluon.data.DataLoader` whose samples are pairs of data and label.

    The first batch decides the shapes. A shorter batch is filled with zeros, and its `pad` says
    how many rows they are.

    Parameters
    ----------
    loader : gluon.data.DataLoader
    data_name, label_name : str
    dtype : str
        Of data and label.

    Raises
    ------
    ValueError
        The loader has no batch, or its batches are not pairs.
    """

    def __init__(
        self,
        loader: Any,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
    ) -> None:
        super().__init__()
        self._loader = loader
        self.dtype = dtype
        self._batches = iter(loader)
        self._ahead: list[NDArray] | None = self._load()
        if self._ahead is None:
            raise ValueError("invalid loader: expected at least one batch")
        self._data, self._label = self._ahead
        self.batch_size = self._data.shape[0]
        self.provide_data = [DataDesc(data_name, self._data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, self._label.shape, dtype)]

    def _load(self) -> list[NDArray] | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        if not isinstance(batch, (list, tuple)) or len(batch) != 2:
            raise ValueError("invalid loader: expected batches of data and label")
        return [array.astype(self.dtype) for array in batch]

    def reset(self) -> None:
        self._batches = iter(self._loader)
        self._ahead = None

    def iter_next(self) -> bool:
        loaded, self._ahead = self._ahead or self._load(), None
        if loaded is None:
            return False
        self._data, self._label = loaded
        return True

    def _filled(self, array: NDArray) -> NDArray:
        pad = self.getpad()
        if not pad:
            return array
        zeros = nd.array(np.zeros((pad, *array.shape[1:])), dtype=self.dtype)
        filled: NDArray = nd.concat(array, zeros, dim=0)
        return filled

    def getdata(self) -> list[NDArray]:
        return [self._filled(self._data)]

    def getlabel(self) -> list[NDArray]:
        return [self._filled(self._label)]

    def getpad(self) -> int:
        return self.batch_size - int(self._data.shape[0])
