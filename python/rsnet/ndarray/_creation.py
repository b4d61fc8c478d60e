"""Functions that make arrays."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import _core
from .._core import NDArray
from .._numbers import integer, whole_numbers
from ..base import MXNetError, numpy_dtype, refuse_keywords, shown
from ..context import Context, as_context
from ..util import is_np_shape
from ._indexing import axis_of
from ._register import op

__all__ = [
    "arange",
    "array",
    "concatenate",
    "empty",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "histogram",
    "linspace",
    "moveaxis",
    "onehot_encode",
    "ones",
    "ones_like",
    "split_v2",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "zeros",
    "zeros_like",
]


def _extents(shape: Any, zero_is_unknown: bool = False) -> tuple[int, ...]:
    """`shape` as a tuple of numbers that can be extents."""
    extents = whole_numbers(shape, "shape")
    if zero_is_unknown and (not extents or any(d <= 0 for d in extents)):
        raise MXNetError(
            f"invalid shape {shown(extents)}: expected extents of at least 1 (0 and () mean an "
            "unknown extent or rank without np_shape)"
        )
    if any(d < 0 for d in extents):
        raise MXNetError(f"invalid shape {shown(extents)}: expected extents of at least 0")
    return extents


def empty(
    shape: Any, ctx: Context | str | None = None, dtype: Any = None, stype: str | None = None
) -> NDArray:
    """An array with memory that nothing was written to.

    Parameters
    ----------
    shape : int or tuple of int
        An extent of 0, or ``()``, is one here and in `full`, with `np_shape` or without; `zeros`
        and `ones` take them within `np_shape` only.
    ctx : Context or str, default the thread's
    dtype : str or numpy.dtype, default float32
    stype : {"default"}, optional
        All storage is dense.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.empty((2, 3)).shape
    (2, 3)
    """
    if stype not in (None, "default"):
        raise NotImplementedError(
            f"storage type {shown(stype)} is not supported: expected 'default'"
        )
    if ctx is not None:
        ctx = as_context(ctx)
    return _core.empty(_extents(shape), ctx, dtype)


def _filled(shape: Any, value: Any, ctx: Context | str | None, dtype: Any) -> NDArray:
    result = empty(_extents(shape, zero_is_unknown=not is_np_shape()), ctx, dtype)
    result[()] = value
    return result


def zeros(
    shape: Any,
    ctx: Context | str | None = None,
    dtype: Any = None,
    stype: str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """An array of zeros; see `empty` for the parameters.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.zeros((2, 3), dtype="int32").asnumpy()
    array([[0, 0, 0],
           [0, 0, 0]], dtype=int32)
    """
    if kwargs:
        refuse_keywords("zeros", kwargs, "shape, ctx, dtype, stype, out")
    if out is not None:
        out[:] = 0
        return out
    return _filled(shape, 0, ctx, dtype)


def ones(
    shape: Any,
    ctx: Context | str | None = None,
    dtype: Any = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """An array of ones; see `empty` for the parameters.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.ones((2, 3)).asnumpy()
    array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """
    if kwargs:
        refuse_keywords("ones", kwargs, "shape, ctx, dtype, out")
    if out is not None:
        out[:] = 1
        return out
    return _filled(shape, 1, ctx, dtype)


def full(
    shape: Any,
    val: Any,
    ctx: Context | str | None = None,
    dtype: Any = np.float32,
    out: NDArray | None = None,
) -> NDArray:
    """An array filled with `val`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.full((2,), 7).asnumpy()
    array([7., 7.], dtype=float32)
    """
    if out is None:
        out = empty(shape, ctx, dtype)
    out[()] = val
    return out


def _refuse_in_likes(function: str, given: dict[str, Any]) -> None:
    """Refuses keywords but those that libraries pass on with an array, from which the result has
    its device and dtype already.
    """
    surplus = {key: value for key, value in given.items() if key not in ("ctx", "dtype")}
    refuse_keywords(function, surplus, "data, out")


def zeros_like(
    data: NDArray, out: NDArray | None = None, name: str | None = None, **kwargs: Any
) -> Any:
    """Zeros of the shape and dtype of `data`; `ctx` and `dtype` are ignored, as in MXNet.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.zeros_like(nd.ones((2,), dtype="int32")).asnumpy()
    array([0, 0], dtype=int32)
    """
    _refuse_in_likes("zeros_like", kwargs)
    return op.zeros_like(data, out=out)


def ones_like(
    data: NDArray, out: NDArray | None = None, name: str | None = None, **kwargs: Any
) -> Any:
    """Ones of the shape and dtype of `data`; `ctx` and `dtype` are ignored, as in MXNet.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.ones_like(nd.zeros((2,), dtype="int32")).asnumpy()
    array([1, 1], dtype=int32)
    """
    _refuse_in_likes("ones_like", kwargs)
    return op.ones_like(data, out=out)


def array(source_array: Any, ctx: Context | str | None = None, dtype: Any = None) -> NDArray:
    """A copy of anything array-like, with its shape: a number becomes an array of shape ().

    Parameters
    ----------
    source_array : NDArray, numpy.ndarray or nested sequence of numbers
    ctx : Context, default the thread's
    dtype : str or numpy.dtype
        Default: that of `source_array` if it is an NDArray, else float32.

    Raises
    ------
    TypeError
        If `source_array` is not array-like.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.array([[1, 2], [3, 4]]).asnumpy()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    if ctx is not None:
        ctx = as_context(ctx)
    if isinstance(source_array, NDArray):
        dtype = source_array.dtype if dtype is None else dtype
        result = _core.empty(source_array.shape, ctx, dtype)
        return source_array.copyto(result)
    kind = numpy_dtype(np.float32 if dtype is None else dtype).type  # whatever the order of bytes
    try:
        values = np.asarray(source_array, dtype=kind, order="C")
    except (TypeError, ValueError) as error:
        expected = "an array, or nested lists of numbers of one length"
        given = reprlib.repr(source_array)
        raise TypeError(f"invalid source_array {given}: expected {expected}") from error
    return _core.copy_numpy(values, ctx)


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """An array over the memory of a C-contiguous NumPy array, then read-only; or a copy.

    An array over memory that was read-only before cannot be written to either.

    Examples
    --------
    >>> from rsnet import nd
    >>> import numpy as np
    >>> values = np.arange(3)
    >>> nd.from_numpy(values).asnumpy()
    array([0, 1, 2])
    >>> values.flags.writeable
    False
    """
    if not zero_copy:
        return array(ndarray, dtype=ndarray.dtype)
    if not ndarray.flags["C_CONTIGUOUS"]:
        raise ValueError(
            f"invalid strides {ndarray.strides}: expected those of a C-contiguous array"
        )
    result = _core.share_numpy(ndarray, ndarray.flags.writeable)
    ndarray.flags.writeable = False
    return result


def arange(
    start: Any,
    stop: Any = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool | None = None,
    ctx: Context | str | None = None,
    dtype: Any = np.float32,
) -> NDArray:
    """Evenly spaced values in ``[start, stop)``, each `repeat` times.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.arange(0, 2, repeat=2).asnumpy()
    array([0., 0., 1., 1.], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    values = np.arange(*map(_exact, (start, stop, step)))
    return array(np.repeat(values, repeat), ctx, dtype)


def _exact(number: Any) -> Any:
    """A number as an integer if it is one that int64 holds, so that none is rounded."""
    whole = isinstance(number, (int, np.integer)) or float(number).is_integer()
    return int(number) if whole and abs(number) < 2**63 else number


def linspace(
    start: Any,
    stop: Any,
    num: int,
    endpoint: bool = True,
    ctx: Context | str | None = None,
    dtype: Any = np.float32,
) -> NDArray:
    """`num` evenly spaced values from `start` to `stop`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.linspace(0, 1, 5).asnumpy()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    start, stop = _exact(start), _exact(stop)
    whole = isinstance(start, int) and isinstance(stop, int) and numpy_dtype(dtype).kind in "iu"
    if whole and max(abs(start), abs(stop)) > 2**53:  # more than the steps of NumPy hold
        parts = max(num - 1 if endpoint else num, 1)
        values = [_quotient(start * parts + i * (stop - start), parts) for i in range(num)]
        return array(values, ctx, dtype)
    return array(np.linspace(start, stop, num, endpoint=endpoint), ctx, dtype)


def _quotient(a: int, b: int) -> int:
    """`a / b` toward 0."""
    return a // b if a >= 0 else -(-a // b)


def eye(
    N: int,
    M: int = 0,
    k: int = 0,
    ctx: Context | str | None = None,
    dtype: Any = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """A matrix with ones on the `k`-th diagonal; `M` = 0 means `N` columns.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.eye(2, 3, k=1).asnumpy()
    array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    if kwargs:
        refuse_keywords("eye", kwargs, "N, M, k, ctx, dtype, out")
    N, M, k = integer("N", N, least=0), integer("M", M, least=0), integer("k", k)
    if out is not None:
        out[:] = np.eye(N, M or N, k)
        return out
    return array(np.eye(N, M or N, k), ctx, dtype)


def concatenate(arrays: Iterable[NDArray], axis: Any = 0, always_copy: bool = True) -> Any:
    """The arrays one after the other along `axis`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.concatenate([nd.ones((1, 2)), nd.zeros((1, 2))]).asnumpy()
    array([[1., 1.],
           [0., 0.]], dtype=float32)
    """
    arrays = list(arrays)
    if not arrays or not all(isinstance(a, NDArray) for a in arrays):
        raise TypeError(f"invalid arrays {shown(arrays)}: expected a list of at least one NDArray")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return op.Concat(*arrays, dim=axis)


def moveaxis(tensor: NDArray, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """The array with axes moved to other positions, as in NumPy.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.moveaxis(nd.ones((2, 3, 4)), 0, 2).shape
    (3, 4, 2)
    """
    given = whole_numbers(source, "source"), whole_numbers(destination, "destination")
    if len(given[0]) != len(given[1]):
        raise ValueError(
            f"moveaxis: invalid destination {shown(given[1])}: expected {len(given[0])} axes, as "
            "of source"
        )
    sources, destinations = ([axis_of(a, tensor.ndim) for a in axes] for axes in given)
    for name, places in (("source", sources), ("destination", destinations)):
        if len(set(places)) != len(places):
            raise ValueError(f"moveaxis: invalid {name} {places}: expected every axis once")
    axes = [i for i in range(tensor.ndim) if i not in sources]
    for to, axis in sorted(zip(destinations, sources)):
        axes.insert(to, axis)
    return op.transpose(tensor, axes=tuple(axes))


def split_v2(
    ary: NDArray,
    indices_or_sections: int | Sequence[int],
    axis: Any = 0,
    squeeze_axis: bool = False,
) -> Any:
    """Parts along `axis`: a number of equal ones, or cuts before the given indices.

    Examples
    --------
    >>> from rsnet import nd
    >>> [part.shape for part in nd.split_v2(nd.ones((6, 2)), (1, 4))]
    [(1, 2), (3, 2), (2, 2)]
    """
    if isinstance(indices_or_sections, int):
        cuts = {"indices": (), "sections": indices_or_sections}
    else:
        cuts = {"indices": (0, *whole_numbers(indices_or_sections, "indices_or_sections"))}
    params = {"axis": axis, "squeeze_axis": squeeze_axis, **cuts}
    return _core.invoke("_split_v2", [ary], list(params.items()))


def histogram(
    a: NDArray, bins: Any = 10, range: tuple[float, float] | None = None
) -> tuple[NDArray, NDArray]:
    """Counts of values in bins, and the edges of the bins, as in NumPy.

    Examples
    --------
    >>> from rsnet import nd
    >>> counts, edges = nd.histogram(nd.array([0, 1, 1, 4]), bins=2)
    >>> counts.asnumpy()
    array([3, 1])
    >>> edges.asnumpy()
    array([0., 2., 4.], dtype=float32)
    """
    edges = bins.asnumpy() if isinstance(bins, NDArray) else bins
    counts, edges = np.histogram(a.asnumpy(), edges, range)
    return array(counts, dtype=np.int64), array(edges, dtype=a.dtype)


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Writes the one-hot rows of `indices` to `out`; an index out of range gives a row of zeros.
    Deprecated.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.onehot_encode(nd.array([2, 0]), nd.empty((2, 3))).asnumpy()
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    if indices.dtype == out.dtype:
        _core.invoke("_onehot_encode", [indices, out], [], [out])
    else:  # in the dtype of the indices, which another may not hold
        like = _core.empty(out.shape, out.context, indices.dtype)
        out[:] = _core.invoke("_onehot_encode", [indices, like], [])
    return out


def to_dlpack_for_read(data: NDArray) -> Any:
    """A DLPack capsule of the array after its pending writes.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.from_dlpack(nd.to_dlpack_for_read(nd.ones((2,)))).asnumpy()
    array([1., 1.], dtype=float32)
    """
    return _core.to_dlpack(data, False)


def to_dlpack_for_write(data: NDArray) -> Any:
    """A DLPack capsule of the array after its pending reads and writes.

    Examples
    --------
    >>> from rsnet import nd
    >>> x = nd.ones((2,))
    >>> shared = nd.from_dlpack(nd.to_dlpack_for_write(x))
    >>> shared[:] = 3
    >>> x.asnumpy()
    array([3., 3.], dtype=float32)
    """
    return _core.to_dlpack(data, True)


def from_dlpack(dlpack: Any) -> NDArray:
    """An array over the memory of a DLPack capsule, which is used up.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.from_dlpack(nd.to_dlpack_for_read(nd.ones((2,)))).asnumpy()
    array([1., 1.], dtype=float32)
    """
    return _core.from_dlpack(dlpack)
