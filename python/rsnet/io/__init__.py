"""Batches of data for training loops.

A `DataIter` yields `DataBatch`es: `NDArrayIter` makes them from arrays in memory, `MNISTIter`,
`CSVIter` and `LibSVMIter` from files, `ImageRecordIter` and its kin from record files of images;
`ResizeIter` changes how many are an epoch, and `PrefetchingIter` makes them ahead of time.
"""

from .._mxnet_names import module_getattr
from .base import DataBatch, DataDesc, DataIter, MXDataIter
from .files import CSVIter, LibSVMIter, MNISTIter
from .image_records import (
    ImageDetRecordIter,
    ImageRecordInt8Iter,
    ImageRecordIter,
    ImageRecordIter_v1,
    ImageRecordUInt8Iter,
    ImageRecordUInt8Iter_v1,
)
from .in_memory import NDArrayIter
from .of_others import ResizeIter
from .prefetching import PrefetchingIter

__all__ = [
    "DataDesc",
    "DataBatch",
    "DataIter",
    "NDArrayIter",
    "ResizeIter",
    "PrefetchingIter",
    "MNISTIter",
    "CSVIter",
    "LibSVMIter",
    "MXDataIter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
    "ImageRecordInt8Iter",
    "ImageDetRecordIter",
]

for _name in __all__:  # pickles and representations name this module
    globals()[_name].__module__ = __name__
del _name

__getattr__ = module_getattr(__name__)
