"""Methods of `NDArray` that need no speed; they are set on the class that the core defines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import _core
from .._core import NDArray
from .._numbers import whole_numbers
from .._warnings import warn
from ..base import (
    MXNetError,
    MXTypeError,
    MXValueError,
    add_foreign_names,
    refuse_keywords,
    shown,
)
from ..context import Context, as_context
from . import _indexing, _io, _sharing
from ._register import op


def _repr(self: NDArray) -> str:
    shape = "x".join(str(d) for d in self.shape)
    return f"\n{self.asnumpy()!s}\n<NDArray {shape} @{self.context}>"


def _asscalar(self: NDArray) -> Any:
    """The value of an array of one element."""
    if self.size != 1:
        raise ValueError(f"asscalar: invalid array of shape {self.shape}: expected one element")
    return self.asnumpy().reshape(())[()]


def _array(self: NDArray, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    values = self.asnumpy()
    return values if dtype is None else values.astype(dtype)


def _iter(self: NDArray) -> Iterator[NDArray]:
    for i in range(len(self)):
        yield self[i]


def _transposed(self: NDArray) -> NDArray:
    """The array with its axes in reverse order; itself if it has less than two."""
    return self if self.ndim < 2 else op.transpose(self)


def _copy_into(source: NDArray, target: NDArray) -> NDArray:
    """Pushes a copy into an array of the same shape, by an operator where it is recorded."""
    if not _indexing.is_recorded(source):
        target._copy_from(source)
    elif source.dtype == target.dtype:
        _core.invoke("_copy", [source], [], [target])
    else:
        _core.invoke("Cast", [source], [("dtype", np.dtype(target.dtype).name)], [target])
    return target


def _copyto(self: NDArray, other: Any) -> NDArray | bool:
    """Copies into another array of the same shape (converting the dtype) or to a context."""
    if isinstance(other, NDArray):
        if other is self:
            warn("You are attempting to copy an array to itself", RuntimeWarning)
            return False
        if other.shape != self.shape:
            raise ValueError(f"copyto: invalid shape {other.shape} of other: expected {self.shape}")
        return _copy_into(self, other)
    if isinstance(other, str):
        other = as_context(other)
    if isinstance(other, Context):
        return _copy_into(self, _core.empty(self.shape, other, self.dtype))
    getattr(other, "dtype", None)  # an operand that is not there says so itself
    raise TypeError(f"copyto: invalid other {shown(other)}: expected an NDArray or a Context")


def _copy(self: NDArray) -> Any:
    """A copy on the same device."""
    return self.copyto(self.context)


def _deepcopy(self: NDArray, memo: object) -> Any:
    return self.copy()


def _as_in_context(self: NDArray, context: Context | str) -> Any:
    """The array on another device; itself if it is there."""
    context = as_context(context, "context")
    return self if self.context == context else self.copyto(context)


def _astype(self: NDArray, dtype: Any, copy: bool = True) -> NDArray:
    """The array converted to another dtype, or to that of another array."""
    dtype = dtype.dtype if isinstance(dtype, NDArray) else dtype
    target = _core.empty((1,), None, dtype).dtype
    if not copy and self.dtype == target:
        return self
    return _copy_into(self, _core.empty(self.shape, self.context, dtype))


def reshape_codes(
    shape: Sequence[int], codes: Sequence[int], reverse: bool = False
) -> tuple[int, ...]:
    """The shape that MXNet's reshape codes (0, -1, -2, -3, -4) make of `shape`."""
    if reverse:
        return tuple(reversed(reshape_codes(shape[::-1], _reversed_codes(codes))))
    out: list[int] = []
    at, i = 0, 0
    unknown: int | None = None

    def take() -> int:
        nonlocal at
        if at >= len(shape):
            raise MXNetError(
                f"invalid reshape codes {shown(tuple(codes))}: expected at most {len(shape)} axes "
                f"of {shape} to be used, and the one at position {i} needs another"
            )
        at += 1
        return shape[at - 1]

    def infer() -> None:
        nonlocal unknown
        if unknown is not None:
            raise MXNetError(
                f"invalid reshape codes {shown(tuple(codes))}: expected one extent at most to infer"
            )
        unknown = len(out)
        out.append(1)

    while i < len(codes):
        code = codes[i]
        if code > 0:
            out.append(code)
            at += 1
        elif code == 0:
            out.append(take())
        elif code == -1:
            infer()
            at += 1
        elif code == -2:
            out.extend(shape[at:])
            at = len(shape)
        elif code == -3:
            out.append(take() * take())
        elif code == -4:
            if i + 2 >= len(codes):
                raise MXNetError("reshape code -4: expected two extents after it")
            whole, a, b = take(), codes[i + 1], codes[i + 2]
            if a == -1 and b == -1:
                raise MXNetError(
                    f"invalid reshape codes {shown(tuple(codes))}: expected one extent at most to "
                    "infer"
                )
            a = whole // b if a == -1 else a
            b = whole // a if b == -1 else b
            if a * b != whole:
                raise MXNetError(
                    f"invalid reshape codes -4, {a}, {b}: expected a product of {whole}"
                )
            out.extend((a, b))
            i += 2
        else:
            raise MXNetError(f"invalid reshape code {code}: expected -4 to -1, 0 or an extent")
        i += 1
    if unknown is not None:
        rest = int(np.prod(out, dtype=np.int64))
        size = int(np.prod(shape, dtype=np.int64))
        if rest and size % rest == 0:
            out[unknown] = size // rest
    return tuple(out)


def _reversed_codes(codes: Sequence[int]) -> list[int]:
    """The codes from the last to the first; the two extents of a -4 stay after it, swapped."""
    out: list[int] = []
    i = 0
    while i < len(codes):
        if codes[i] == -4:
            out[:0] = [-4, *codes[i + 1 : i + 3][::-1]]
            i += 3
        else:
            out.insert(0, codes[i])
            i += 1
    return out


def _reshape(self: NDArray, *given: Any, **kwargs: Any) -> NDArray:
    """The elements in another shape, sharing memory.

    0 copies an extent, -1 is inferred, -2 copies all that are left, -3 merges two, -4 splits one
    into the two that follow; with ``reverse=True`` from the last axis on.

    Raises
    ------
    ValueError
        If the number of elements would change.
    """
    reverse = kwargs.pop("reverse", False)
    named = kwargs.pop("shape", ())
    shape: Any = given or named
    if len(given) == 1 and isinstance(shape[0], (tuple, list)):
        shape = shape[0]
    if kwargs:
        raise TypeError(f"reshape() got unexpected keyword arguments {sorted(kwargs)}")
    codes = whole_numbers(shape, "shape")
    if not codes and self.size != 1:
        raise ValueError(f"reshape: invalid shape (): expected one of {self.size} elements")
    target = reshape_codes(self.shape, codes, reverse)
    if math.prod(target) != self.size:
        raise MXValueError(
            f"reshape: invalid shape {shown(codes)}: expected one of {self.size} elements"
        )
    result: NDArray = _indexing.shaped(self, target)
    return result


def _reshape_like(self: NDArray, other: NDArray, **kwargs: Any) -> NDArray:
    """The elements in the shape of another array; by keywords, some axes in that of some of its."""
    return op.reshape_like(self, other, **kwargs) if kwargs else _indexing.shaped(self, other.shape)


def _flatten(self: NDArray, inplace: bool = False) -> NDArray:
    """Rows of all but the first axis merged."""
    return self.reshape((self.shape[0], -1)) if inplace else op.Flatten(self)


def _expand_dims(self: NDArray, axis: int, inplace: bool = False) -> Any:
    """A new axis of extent 1 before `axis`."""
    if not inplace:
        return op.expand_dims(self, axis=axis)
    if not -self.ndim - 1 <= axis <= self.ndim:
        raise ValueError(
            f"expand_dims: invalid axis {axis}: expected {-self.ndim - 1} to {self.ndim}"
        )
    at = axis if axis >= 0 else axis + self.ndim + 1
    return _indexing.shaped(self, (*self.shape[:at], 1, *self.shape[at:]))


def _squeeze(self: NDArray, axis: Any = None, inplace: bool = False) -> NDArray:
    """The array without axes of extent 1; with `inplace` it shares memory."""
    if not inplace:
        return op.squeeze(self, axis=axis)
    if axis is None:
        drop = [i for i, d in enumerate(self.shape) if d == 1]
    else:
        drop = [_indexing.axis_of(a, self.ndim) for a in whole_numbers(axis, "axis")]
    if any(self.shape[a] != 1 for a in drop):
        raise ValueError(
            f"squeeze: invalid axes {tuple(drop)} of shape {self.shape}: expected extents of 1"
        )
    kept = tuple(d for i, d in enumerate(self.shape) if i not in drop)
    result: NDArray = _indexing.shaped(self, kept or (1,))
    return result


def _broadcast_to(self: NDArray, shape: Any) -> NDArray:
    """The array repeated along axes of extent 1 to `shape`."""
    shape = whole_numbers(shape, "shape")
    source = self.shape
    error = ValueError(
        f"operands could not be broadcast together with remapped shapes"
        f"[original->remapped]: {source} and requested shape {shown(shape)}, "
        "expected equal extents, or 1 in the former"
    )
    if len(shape) < len(source):
        raise error
    padded = (1,) * (len(shape) - len(source)) + source
    if any(a != b and a != 1 for a, b in zip(padded, shape)):
        raise error
    array: NDArray = self if padded == source else _indexing.shaped(self, padded)
    if padded == shape:
        return array
    if 0 in shape:  # which the operator takes for a code: the extent of the array
        return op.broadcast_like(array, _core.empty(shape, self.context, self.dtype))
    return op.broadcast_to(array, shape=shape)


def _broadcast_like(self: NDArray, other: NDArray) -> NDArray:
    """The array repeated to the shape of another one."""
    return self.broadcast_to(other.shape)


def _tostype(self: NDArray, stype: str) -> NDArray:
    """The array itself: only dense storage is supported."""
    if stype != "default":
        raise NotImplementedError(
            f"storage type {shown(stype)} is not supported: expected 'default'"
        )
    return self


def _attach_grad(self: NDArray, grad_req: str = "write", stype: str | None = None) -> None:
    """Makes the array a leaf of the tape with a gradient buffer of zeros; forgets its history."""
    buffer = _core.empty(self.shape, self.context, self.dtype)
    buffer[:] = 0
    _core.mark_variables([self], [buffer], [grad_req])


def _backward(
    self: NDArray,
    out_grad: NDArray | None = None,
    retain_graph: bool = False,
    train_mode: bool = True,
) -> None:
    """Gradients of this array written to the buffers of the leaves it was computed from."""
    if out_grad is not None and not isinstance(out_grad, NDArray):
        raise MXTypeError(f"invalid out_grad {shown(out_grad)}: expected an NDArray or None")
    _core.backward([self], [out_grad], bool(retain_graph), bool(train_mode))


def _slice_assign(
    self: NDArray,
    rhs: Any,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    step: Sequence[int | None] | None,
) -> NDArray:
    """Assigns `rhs` to a region."""
    self[tuple(slice(b, e, s) for b, e, s in zip(begin, end, step or [None] * len(begin)))] = rhs
    return self


def _slice_assign_scalar(
    self: NDArray,
    value: Any,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    step: Sequence[int | None] | None,
) -> NDArray:
    """Assigns a number to a region."""
    return _slice_assign(self, value, begin, end, step)


def _blank(source: None) -> NDArray:
    """The array that a state fills. Pickles name it and not the class, which has the name of its
    module from MXNet where rsnet takes MXNet's place.
    """
    return NDArray(source)


def _reduce(self: NDArray) -> tuple[Any, ...]:
    kind = type(self)
    return _blank if kind is NDArray else kind, (None,), self.__getstate__()


def _getstate(self: NDArray) -> dict[str, Any]:
    """The state that pickles hold: ``{"handle": the bytes of a record}``, as MXNet's do."""
    return {"handle": _io.dumps_record(self)}


def _setstate(self: NDArray, state: dict[str, Any]) -> None:
    """Makes an array of ``NDArray(None)`` what a state says."""
    record = state.get("handle")
    array = None if record is None else _io.loads_record(record)
    if array is not None:
        self._restore(array)


def _sync_copyfrom(self: NDArray, source_array: Any) -> None:
    """Copies a NumPy array of the same shape into this one, at once.

    Raises
    ------
    ValueError
        The shapes differ.
    """
    source: np.ndarray = np.asarray(source_array, dtype=self.dtype, order="C")
    if source.shape != self.shape:
        raise ValueError(f"invalid shape {source.shape} to copy: expected {self.shape}")
    self[()] = source
    self.wait_to_read()


def _full(self: NDArray, value: float) -> None:
    """Fills the array."""
    self[()] = value


def _as_nd_ndarray(self: NDArray) -> NDArray:
    """The array itself: all arrays are of `nd`."""
    return self


def _as_np_ndarray(self: NDArray) -> Any:
    """Raises: the arrays of `mx.np` do not exist."""
    raise NotImplementedError("`mx.np` is not in rsnet yet (docs/from_mxnet.md lists what is)")


def _property(name: str, get: Callable[[Any], Any], doc: str) -> None:
    setattr(NDArray, name, property(get, doc=doc))


def _install() -> None:
    methods = {
        "__repr__": _repr,
        "__iter__": _iter,
        "__array__": _array,
        "__copy__": _copy,
        "__deepcopy__": _deepcopy,
        "__dlpack__": _sharing.dlpack,
        "__dlpack_device__": _sharing.dlpack_device,
        "__getstate__": _getstate,
        "__reduce__": _reduce,
        "__setstate__": _setstate,
        "_full": _full,
        "_sync_copyfrom": _sync_copyfrom,
        "as_nd_ndarray": _as_nd_ndarray,
        "as_np_ndarray": _as_np_ndarray,
        "as_in_context": _as_in_context,
        "as_in_ctx": _as_in_context,
        "asscalar": _asscalar,
        "astype": _astype,
        "attach_grad": _attach_grad,
        "backward": _backward,
        "broadcast_like": _broadcast_like,
        "broadcast_to": _broadcast_to,
        "copy": _copy,
        "copyto": _copyto,
        "expand_dims": _expand_dims,
        "flatten": _flatten,
        "item": _asscalar,
        "reshape": _reshape,
        "reshape_like": _reshape_like,
        "slice_assign": _slice_assign,
        "slice_assign_scalar": _slice_assign_scalar,
        "squeeze": _squeeze,
        "tostype": _tostype,
    }
    for name, method in methods.items():
        if not name.startswith("__"):
            method.__name__ = name
            method.__qualname__ = f"NDArray.{name}"
        setattr(NDArray, name, method)
    NDArray.__array_priority__ = 1000.0
    NDArray.stype = "default"
    _property(
        "__cuda_array_interface__",
        _sharing.cuda_array_interface,
        "The memory of an array on a CUDA device for other libraries: ``cupy.asarray(x)`` shares "
        "it.",
    )
    _property("T", _transposed, "The array with its axes in reverse order.")
    _property("handle", lambda self: id(self), "A number that identifies the array.")


# Functions that are methods as well: `x.exp()` is `nd.exp(x)`.
FLUENT = """
abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort broadcast_axes
cbrt ceil clip cos cosh degrees depth_to_space diag dot exp expm1 fix flip floor gamma gammaln
log log10 log1p log2 log_softmax max mean min nanprod nansum norm one_hot ones_like pad pick prod
radians rcbrt reciprocal relu repeat rint round rsqrt shape_array sigmoid sign sin sinh size_array
slice
slice_axis slice_like softmax softmin sort space_to_depth split split_v2 sqrt square sum swapaxes
take tan tanh tile to_dlpack_for_read to_dlpack_for_write topk transpose trunc zeros_like
""".split()


def fluent_names() -> list[str]:
    """The methods that were made of functions."""
    return [name for name in FLUENT if hasattr(getattr(NDArray, name, None), "__wrapped__")]


def _transpose(self: NDArray, *axes: Any, **kwargs: Any) -> NDArray:
    """The array with permuted axes, reversed by default."""
    given = kwargs.pop("axes", axes[0] if len(axes) == 1 else axes)
    if kwargs:
        refuse_keywords("transpose", kwargs, "axes")
    order = () if given is None else whole_numbers(given, "axes")
    return op.transpose(self, axes=order) if order else op.transpose(self)


#: Attributes of PyTorch's arrays, for which `_pytorch_names` knows what they are here.
FOREIGN = """
bool chunk clone cpu cuda device dim double expand fill_ float half int long masked_fill matmul mm
numel numpy permute requires_grad requires_grad_ scatter_ std t to tolist type unsqueeze var view
zero_
""".split()


_install()
add_foreign_names(NDArray, "NDArray", FOREIGN)
NDArray.transpose = _transpose  # type: ignore[method-assign]
