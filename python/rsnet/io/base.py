"""Batches, their descriptions, and the base classes of iterators over them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._numbers import whole_numbers
from ..base import shown
from ..ndarray import NDArray

__all__ = ["DataDesc", "DataBatch", "DataIter", "MXDataIter"]


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """Name, shape, dtype and layout of one array of a batch; as a tuple it is (name, shape)."""

    dtype: Any
    layout: str | None

    def __new__(
        cls,
        name: str,
        shape: Sequence[int],
        dtype: Any = np.float32,
        layout: str | None = "NCHW",
    ) -> DataDesc:
        desc = super().__new__(cls, name, whole_numbers(shape, f"shape of {shown(name)}"))
        desc.dtype = dtype
        desc.layout = layout
        return desc

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Index of the axis N; 0 if there is no layout."""
        if layout is not None and not isinstance(layout, str):
            raise TypeError(f"invalid layout {shown(layout)}: expected a text, such as 'NCHW'")
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(
        shapes: Sequence[tuple[str, Sequence[int]]], types: Sequence[tuple[str, Any]] | None
    ) -> list[DataDesc]:
        """Descriptions from pairs (name, shape) and, where given, pairs (name, dtype)."""
        dtypes = dict(types or ())
        if types is None:
            return [DataDesc(name, shape) for name, shape in shapes]
        return [DataDesc(name, shape, dtypes[name]) for name, shape in shapes]


class DataBatch:
    """One batch: lists of arrays, and how many of the last rows are padding."""

    def __init__(
        self,
        data: list[NDArray],
        label: list[NDArray] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: list[DataDesc] | None = None,
        provide_label: list[DataDesc] | None = None,
    ) -> None:
        for name, value in (("data", data), ("label", label)):
            if value is not None and not isinstance(value, (list, tuple)):
                raise TypeError(f"invalid {name} {shown(value)}: expected a list of NDArrays")
        self.data = data
        self.label = label
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    def __str__(self) -> str:
        shapes = [d.shape for d in self.data]
        labels = [d.shape for d in self.label] if self.label else None
        return f"DataBatch: data shapes: {shapes} label shapes: {labels}"


class DataIter:
    """Base class of iterators over batches.

    A subclass defines `iter_next` and `getdata`; `getlabel`, `getpad`, `getindex` and `reset` where
    it has labels, padding, indices, or more than one epoch.
    """

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[DataBatch]:
        return self

    def reset(self) -> None:
        """Moves back before the first batch."""

    def next(self) -> DataBatch:
        """Returns the next batch.

        Raises
        ------
        StopIteration
            At the end of the epoch.
        """
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def __next__(self) -> DataBatch:
        return self.next()

    def iter_next(self) -> bool:
        """Moves to the next batch; returns whether there is one."""
        raise NotImplementedError(f"{type(self).__name__} does not define 'iter_next'")

    def getdata(self) -> Any:
        """Data arrays of the current batch; one array of an `MXDataIter`."""
        raise NotImplementedError(f"{type(self).__name__} does not define 'getdata'")

    def getlabel(self) -> Any:
        """Label arrays of the current batch, as `getdata`; `None` if there are no labels."""
        return None

    def getindex(self) -> Any:
        """Indices of the current rows; `None` if they are unknown."""
        return None

    def getpad(self) -> int:
        """Number of rows of the current batch that do not count; 0 by default."""
        return 0


class MXDataIter(DataIter):
    """Base of iterators over files: `MNISTIter`, `CSVIter`, `LibSVMIter`, and those over record
    files of images.
    """

    def next(self) -> DataBatch:
        """As of any iterator; `getdata` and `getlabel` give one array each."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch([self.getdata()], [self.getlabel()], self.getpad(), self.getindex())

    def getlabel(self) -> NDArray:
        """The labels of the current batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define 'getlabel'")


def check_part(part_index: int, num_parts: int) -> None:
    """Refuses a part that is none of `num_parts`."""
    if not 0 <= part_index < num_parts:
        raise ValueError(f"invalid part_index {part_index}: expected 0 to {num_parts - 1}")
