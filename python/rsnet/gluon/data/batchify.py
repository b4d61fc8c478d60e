"""Functions that make a batch of samples: `Stack`, `Pad`, `Group`, `AsList`.

They are classes, so that they can be sent to worker processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...ndarray import NDArray

__all__ = ["AsList", "Group", "Pad", "Stack"]


def as_numpy(x: Any) -> np.ndarray:
    """An array or what NumPy makes of it."""
    return x.asnumpy() if isinstance(x, NDArray) else np.asarray(x)


def stacked(samples: Sequence[Any]) -> np.ndarray:
    """Samples of one shape along a new first axis.

    Raises
    ------
    ValueError
        Their shapes differ.
    """
    arrays = [as_numpy(sample) for sample in samples]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"invalid shape {array.shape} of sample {i} of the batch: expected "
                f"{arrays[0].shape}, as of sample 0; pad or crop them, or give a batchify_fn"
            )
    return np.stack(arrays)


class Stack:
    """Samples of one shape along a new first axis."""

    def __call__(self, data: Sequence[Any]) -> NDArray:
        found = stacked(data)
        return nd.array(found, dtype=found.dtype)


class Pad:
    """Samples padded to the longest along each axis, and stacked.

    Parameters
    ----------
    axis : int
        The axis that differs; accepted for compatibility: all axes are padded.
    val : float
        What to pad with.
    dtype : dtype, optional
        By default that of the samples.
    ret_length : bool
        Return also the lengths along `axis`?

    Examples
    --------
    >>> from rsnet.gluon.data.batchify import Pad
    >>> Pad(val=-1)([[1, 2], [3]]).asnumpy().tolist()
    [[1, 2], [3, -1]]
    """

    def __init__(
        self, axis: int = 0, val: float = 0, dtype: Any = None, ret_length: bool = False
    ) -> None:
        self._axis = axis
        self._val = val
        self._dtype = dtype
        self._ret_length = ret_length

    def __call__(self, data: Sequence[Any]) -> Any:
        arrays = [as_numpy(sample) for sample in data]
        if len({array.ndim for array in arrays}) > 1:
            shapes = [array.shape for array in arrays]
            raise ValueError(f"Pad: samples have shapes {shapes}, expected as many axes in each")
        longest = np.max([array.shape for array in arrays], axis=0)
        dtype = arrays[0].dtype if self._dtype is None else self._dtype
        batch = np.full((len(arrays), *longest), self._val, dtype=dtype)
        for row, array in zip(batch, arrays):
            row[tuple(map(slice, array.shape))] = array
        found = nd.array(batch, dtype=batch.dtype)
        if not self._ret_length:
            return found
        lengths = np.array([array.shape[self._axis] for array in arrays], dtype=np.int32)
        return found, nd.array(lengths, dtype=np.int32)


class AsList:
    """The samples as a list."""

    def __call__(self, data: Sequence[Any]) -> list[Any]:
        return list(data)


class Group:
    """One function for each field of the samples.

    Parameters
    ----------
    fn : callable or list of callable
    *args : callable
        Further ones, if `fn` is one function.
    """

    def __init__(self, fn: Any, *args: Callable[..., Any]) -> None:
        self._fn = list(fn) if isinstance(fn, (list, tuple)) else [fn, *args]

    def __call__(self, data: Sequence[Any]) -> tuple[Any, ...]:
        if len(data[0]) != len(self._fn):
            raise AssertionError(
                f"Group: invalid sample of {len(data[0])} attributes: expected {len(self._fn)}, "
                "one for each function"
            )
        return tuple(fn([sample[i] for sample in data]) for i, fn in enumerate(self._fn))
