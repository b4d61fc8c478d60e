"""Classes of sparse arrays, of which there are none: programs ask whether an array is of one."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["BaseSparseNDArray", "CSRNDArray", "RowSparseNDArray"]


class BaseSparseNDArray:
    """Base of the classes of sparse arrays.

    Raises
    ------
    NotImplementedError
        Whenever an instance is made.

    Examples
    --------
    >>> import rsnet as mx
    >>> isinstance(mx.nd.ones((2,)), mx.nd.sparse.CSRNDArray)
    False
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{cls.__name__}: rsnet has no sparse storage: expected a dense NDArray (nd.array)"
        )


class CSRNDArray(BaseSparseNDArray):
    """Matrices of compressed rows, in MXNet."""


class RowSparseNDArray(BaseSparseNDArray):
    """Arrays of which only some rows are stored, in MXNet."""


for _class in (BaseSparseNDArray, CSRNDArray, RowSparseNDArray):
    _class.__module__ = "rsnet.ndarray.sparse"
del _class
