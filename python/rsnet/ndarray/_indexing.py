"""Indexing of arrays: views where the region is one block of memory, copies elsewhere.

Basic keys (integers, slices, None, ...) are strided regions; anything with a list or array in it is
resolved to flat positions by NumPy's own rules.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from .._core import NDArray
from ..base import MXValueError, shown
from ..util import is_np_shape


def axis_of(axis: int, ndim: int) -> int:
    """An axis counted from the front."""
    if not -ndim <= axis < ndim:
        raise ValueError(f"invalid axis {axis}: expected {-ndim} to {ndim - 1}")
    return axis % ndim


_BASIC = (numbers.Integral, slice, type(None), type(Ellipsis))


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _check_kinds(parts: Sequence[Any]) -> bool:
    """Is the key basic? Raises for parts that no key has."""
    basic = True
    for part in parts:
        if isinstance(part, _BASIC):
            continue
        if isinstance(part, NDArray) and part.dtype is np.bool_:
            raise ValueError(
                "invalid index, a boolean mask, on whose values the shape of the result depends: "
                "expected mask.asnumpy(), which waits for them, or a call of "
                "nd.contrib.boolean_mask"
            )
        if isinstance(part, (list, tuple, np.ndarray, NDArray, range)):
            basic = False
        else:
            raise ValueError(
                f"invalid index {shown(part)}: expected integers, slices, None, '...', lists or "
                "arrays"
            )
    return basic


def _row_major(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return strides[::-1]


def _expand(parts: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """The parts with the ellipsis written out: one for every axis, and None."""
    if sum(part is Ellipsis for part in parts) > 1:
        raise IndexError("invalid index: expected one ellipsis at most")
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if used > len(shape):
        raise IndexError(
            f"too many indices ({used}): expected at most {len(shape)}, one for each axis"
        )
    full = [slice(None)] * (len(shape) - used)
    if Ellipsis not in [p for p in parts if not isinstance(p, (np.ndarray, NDArray, list))]:
        return [*parts, *full]
    at = next(i for i, p in enumerate(parts) if p is Ellipsis)
    return [*parts[:at], *full, *parts[at + 1 :]]


def _region(
    shape: Sequence[int], parts: Sequence[Any]
) -> tuple[int, list[int], list[int], list[range]]:
    """Offset, extents and strides (in elements) of a basic key, and its ranges by axis.

    The extents of a single element are empty.
    """
    strides = _row_major(shape)
    offset, extents, steps, ranges, axis = 0, [], [], [], 0
    for part in _expand(parts, shape):
        if part is None:
            extents.append(1)
            steps.append(0)
            continue
        size = shape[axis]
        if isinstance(part, slice):
            chosen = range(*part.indices(size))
            extents.append(len(chosen))
            steps.append(chosen.step * strides[axis])
        else:
            index = int(part)
            if not -size <= index < size:
                raise IndexError(
                    f"invalid index {index} of axis {axis}: expected {-size} to {size - 1}"
                )
            chosen = range(index % size, index % size + 1)
        ranges.append(chosen)
        if len(chosen):
            offset += chosen.start * strides[axis]
        axis += 1
    return offset, extents, steps, ranges


def _single() -> tuple[int, ...]:
    """The shape of a single element: () within `np_shape`, where () is a shape, else (1,)."""
    return () if is_np_shape() else (1,)


def _is_block(extents: Sequence[int], steps: Sequence[int]) -> bool:
    """Is the region one row-major block of memory?"""
    expected = 1
    for extent, step in zip(reversed(extents), reversed(steps)):
        if extent > 1 and step != expected:
            return False
        expected *= max(extent, 1)
    return True


def _places(part: Any) -> list[Any]:
    """A part of a key as it stands for axes: a mask stands for as many as it has."""
    if isinstance(part, _BASIC):
        return [part]
    return [0] * (part.ndim if part.dtype.kind == "b" else 1)


def _positions(shape: Sequence[int], parts: Sequence[Any]) -> np.ndarray:
    """Flat positions that an advanced key selects, by NumPy's rules."""
    resolved = []
    for part in parts:
        if isinstance(part, NDArray):
            part = part.asnumpy()
        if isinstance(part, (list, tuple, np.ndarray, range)):
            part = np.asarray(part)
            if part.dtype.kind != "b":
                part = part.astype(np.int64)
        resolved.append(part)
    _expand([one for part in resolved for one in _places(part)], shape)
    key = tuple(resolved)
    chosen: Any = 0 if shape else np.int64(0).reshape(())[key]
    for axis, (extent, step) in enumerate(zip(shape, _row_major(shape))):
        # A line of this axis, repeated along the others without memory.
        line = np.arange(extent, dtype=np.int64).reshape((-1,) + (1,) * (len(shape) - axis - 1))
        chosen = chosen + np.broadcast_to(line * step, shape)[key]
    if np.ndim(chosen) == 0:
        return np.asarray(chosen).reshape(_single())
    return np.ascontiguousarray(chosen)


def _slice_params(ranges: Sequence[range]) -> list[tuple[str, Any]]:
    """Ranges as parameters of the operator `slice`, in which -1 counts from the end."""
    begin, end, step = [], [], []
    for chosen in ranges:
        chosen = chosen or range(0)  # bounds of empty ranges may be negative
        begin.append(chosen.start)
        end.append(chosen.stop if chosen.stop >= 0 else None)
        step.append(chosen.step)
    return [("begin", tuple(begin)), ("end", tuple(end)), ("step", tuple(step))]


def is_recorded(array: NDArray) -> bool:
    """Must what is done with the array become part of a graph?"""
    return array._is_tracked and _core.is_recording()


def shaped(array: NDArray, shape: tuple[int, ...]) -> Any:
    """The elements in exactly this shape, in which 0 and () are no codes; without recording they
    share memory.
    """
    if math.prod(shape) != array.size:
        raise MXValueError(f"reshape: invalid shape {shape}: expected one of {array.size} elements")
    if not is_recorded(array):
        return array._reshaped(shape)
    if shape and 0 not in shape:
        return _core.invoke("Reshape", [array], [("shape", shape)])
    return _core.invoke("_np_reshape", [array], [("newshape", shape)])


def _reshaped(array: NDArray, shape: tuple[int, ...]) -> Any:
    """The array itself, or reshaped to this shape."""
    return array if array.shape == shape else shaped(array, shape)


def _recorded_region(array: NDArray, extents: tuple[int, ...], ranges: Sequence[range]) -> Any:
    """The region by differentiable operators."""
    return _reshaped(_core.invoke("slice", [array], _slice_params(ranges)), extents)


def getitem(array: NDArray, key: Any) -> Any:
    """`array[key]`."""
    parts = _parts(key)
    shape = array.shape
    if _check_kinds(parts):
        if parts == () or (
            len(parts) == 1 and isinstance(parts[0], slice) and parts[0] == slice(None)
        ):
            return array
        offset, extents, steps, ranges = _region(shape, parts)
        if is_recorded(array):
            return _recorded_region(array, tuple(extents) or _single(), ranges)
        if _is_block(extents, steps):
            return array._part(offset, extents or _single())
        result = _core.empty(extents, array.context, array.dtype)
        result._copy_region(0, extents, _row_major(extents), array, offset, steps)
        return result
    positions = _positions(shape, parts)
    if is_recorded(array):
        index = _core.copy_numpy(positions.reshape(-1).astype(np.int64))
        flat = array.reshape((-1,))
        return _reshaped(_core.invoke("take", [flat, index], [("axis", 0)]), positions.shape)
    result = _core.empty(positions.shape, array.context, array.dtype)
    result._gather(array, positions.reshape(-1))
    return result


def _as_source(array: NDArray, value: Any) -> NDArray:
    """What is assigned, as an array on the same device, of any shape."""
    if isinstance(value, NDArray):
        return value
    if isinstance(value, (str, bytes)):
        raise TypeError(f"invalid value {shown(value)} to assign: expected numbers or an array")
    try:
        values = np.asarray(value)
        if values.dtype.kind not in "biuf":
            values = values.astype(array.dtype)
        elif values.dtype.name not in ("float32", "float64") or values.ndim:
            values = values.astype(array.dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"invalid value {shown(value)} to assign: expected numbers or an array"
        ) from error
    values = np.ascontiguousarray(values, dtype=array.dtype)
    return _core.copy_numpy(values, array.context)


def _broadcast_steps(source_shape: Sequence[int], extents: Sequence[int]) -> list[int]:
    """Strides by which `source_shape` spreads over `extents`."""
    shape = list(source_shape)
    while len(shape) > len(extents) and shape[0] == 1:
        shape.pop(0)
    fits = len(shape) <= len(extents)
    pad = len(extents) - len(shape)
    strides = [0] * pad + _row_major(shape)
    shape = [1] * pad + shape
    fits = fits and all(s == e or s == 1 for s, e in zip(shape, extents))
    if not fits:
        raise ValueError(
            f"could not broadcast input array from shape {tuple(source_shape)}: expected "
            f"{tuple(extents)}, or one that broadcasts to it"
        )
    return [0 if s == 1 else step for s, step in zip(shape, strides)]


_ALL = slice(None)
_FLOATS = (np.float16, np.float32, np.float64)
_SIGNED = (*_FLOATS, np.int8, np.int32, np.int64)


def _record_assignment(array: NDArray, key: Any, value: NDArray) -> None:
    """`array[key] = value` by operators, for a value that belongs to a graph."""
    parts, shape = _parts(key), array.shape
    value = value.astype(array.dtype, copy=False)
    if not _check_kinds(parts):
        positions = _positions(shape, parts)
        spread = _spread(value, positions.shape).reshape((-1,))
        places = np.stack(np.unravel_index(positions.reshape(-1), shape)).astype(np.int64)
        inputs = [array, spread, _core.copy_numpy(np.ascontiguousarray(places))]
        _core.invoke("_scatter_set_nd", inputs, [("shape", shape)], [array])
        return
    _, extents, _, ranges = _region(shape, parts)
    extents = extents or [1]
    region = tuple(len(chosen) for chosen in ranges)
    if 0 in region:
        _broadcast_steps(value.shape, extents)
        return
    value = _reshaped(_spread(value, tuple(extents)), region)
    if region == shape and all(chosen.step > 0 for chosen in ranges):
        value.copyto(array)
        return
    _core.invoke("_slice_assign", [array, value], _slice_params(ranges), [array])


def _spread(value: NDArray, extents: tuple[int, ...]) -> NDArray:
    """A recorded value broadcast to a region."""
    _broadcast_steps(value.shape, extents)
    extra = value.ndim - len(extents)
    if extra > 0:
        value = shaped(value, value.shape[extra:])
    return value if value.shape == extents else value.broadcast_to(extents)


def _whole(array: NDArray, key: Any) -> Any:
    """`key`, or `()` in place of `:` if the array has no axes."""
    return () if not array.shape and isinstance(key, slice) and key == _ALL else key


def _is_all(key: Any) -> bool:
    return key == _ALL if isinstance(key, slice) else isinstance(key, tuple) and not key


def _is_exact(value: Any, dtype: Any) -> bool:
    """Is it a plain number that is the same in float64 and then in `dtype`, or is rounded once?"""
    if type(value) is float:
        return dtype in _FLOATS
    return type(value) is int and -128 < value < 128 and (value >= 0 or dtype in _SIGNED)


def setitem(array: NDArray, key: Any, value: Any) -> None:
    """`array[key] = value`."""
    key = _whole(array, key)
    if isinstance(value, NDArray) and is_recorded(value):
        _record_assignment(array, key, value)
        return
    shape = array.shape
    if _is_all(key) and _is_exact(value, array.dtype):
        array._fill(value)
        return
    parts = _parts(key)
    if _check_kinds(parts):
        offset, extents, steps, _ = _region(shape, parts)
        extents, steps = extents or [1], steps or [1]
        whole = offset == 0 and int(np.prod(extents)) == array.size and _is_block(extents, steps)
        if whole and isinstance(value, np.ndarray) and value.shape == tuple(extents):
            array._copy_from_numpy(np.ascontiguousarray(value, dtype=array.dtype))
            return
        source = _as_source(array, value)
        spread = _broadcast_steps(source.shape, extents)
        array._copy_region(offset, extents, steps, source, 0, spread)
        return
    positions = _positions(shape, parts)
    source = _as_source(array, value)
    spread = _broadcast_steps(source.shape, positions.shape)
    is_read = array._same_memory(source)  # else what was written would be read
    if is_read or source.shape != positions.shape or source.dtype != array.dtype:
        full = _core.empty(positions.shape, array.context, array.dtype)
        full._copy_region(0, positions.shape, _row_major(positions.shape), source, 0, spread)
        source = full
    array._scatter(source, positions.reshape(-1))
