"""Helpers of Gluon programs: splitting batches over devices, clipping gradients, files."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import uuid
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np

from .. import ndarray as nd
from .._mxnet_names import module_getattr
from .._numbers import check_number
from ..base import shown
from ..ndarray import NDArray
from ..util import is_np_shape

__all__ = [
    "HookHandle",
    "check_sha1",
    "clip_global_norm",
    "download",
    "replace_file",
    "shape_is_known",
    "split_and_load",
    "split_data",
]


class HookHandle:
    """Adds a hook by `attach`; removes it by `detach`, or at the end of a ``with`` block."""

    def __init__(self) -> None:
        self._hooks: OrderedDict[int, Any] | None = None

    def attach(self, hooks_dict: OrderedDict[int, Any], hook: Any) -> None:
        """Adds a hook to those of a block.

        Raises
        ------
        RuntimeError
            The handle has a hook already.
        """
        if self._hooks is not None:
            raise RuntimeError("attach: the handle has a hook already, expected a new HookHandle")
        self._hooks = hooks_dict
        hooks_dict[id(self)] = hook

    def detach(self) -> None:
        """Removes the hook."""
        if self._hooks is not None:
            self._hooks.pop(id(self), None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.detach()


def shape_is_known(shape: Any) -> bool:
    """Whether all extents are known: neither 0 nor, with np_shape, -1."""
    if shape is None:
        return False
    unknown = -1 if is_np_shape() else 0
    if len(shape) == 0:
        return unknown == -1
    return all(extent != unknown for extent in shape)


def indented(text: str, spaces: int) -> str:
    """Indents the lines after the first."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


def split_data(
    data: NDArray, num_slice: int, batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """Splits a batch along an axis.

    Parameters
    ----------
    data : NDArray
    num_slice : int
    batch_axis : int
    even_split : bool
        Must all slices be equally long? If not, the first ones may be one row longer.

    Raises
    ------
    ValueError
        Slices of equal length are impossible, or there are more slices than rows.

    Examples
    --------
    >>> from rsnet import gluon, nd
    >>> [part.shape for part in gluon.utils.split_data(nd.zeros((4, 3)), 2)]
    [(2, 3), (2, 3)]
    """
    size = data.shape[batch_axis]
    if num_slice < 1:
        raise ValueError(f"invalid num_slice {num_slice}: expected at least 1")
    if even_split and size % num_slice:
        raise ValueError(
            f"split_data: axis {batch_axis} of shape {data.shape} has {size} elements, expected a "
            f"multiple of {num_slice} (even_split=False makes unequal slices)"
        )
    if size < num_slice:
        raise ValueError(
            f"Too many slices for data with shape {data.shape}: num_slice={num_slice} and "
            f"batch_axis={batch_axis}, expected at most {size} slices."
        )
    if num_slice == 1:
        return [data]
    short, longer = divmod(size, num_slice)
    # The first slices are one row longer.
    bounds = [i * short + min(i, longer) for i in range(num_slice + 1)]
    return [
        nd.slice_axis(data, axis=batch_axis, begin=begin, end=end)
        for begin, end in pairwise(bounds)
    ]


def split_and_load(
    data: Any, ctx_list: Sequence[Any], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """Splits a batch and copies each slice to its device, see `split_data`."""
    if not isinstance(ctx_list, Sequence) or isinstance(ctx_list, str) or not ctx_list:
        raise TypeError(f"invalid ctx_list {shown(ctx_list)}: expected a list of Contexts")
    if not isinstance(data, NDArray):
        data = nd.array(data, ctx=ctx_list[0])
    if len(ctx_list) == 1:
        return [data.as_in_context(ctx_list[0])]
    slices = split_data(data, len(ctx_list), batch_axis, even_split)
    return [part.as_in_context(ctx) for part, ctx in zip(slices, ctx_list, strict=True)]


def clip_global_norm(
    arrays: Sequence[NDArray], max_norm: float, check_isfinite: bool = True
) -> Any:
    """Scales arrays in place so that the root of the sum of all squares is at most `max_norm`.

    Parameters
    ----------
    arrays : list of NDArray
    max_norm : float
    check_isfinite : bool
        Wait for the norm, and warn if it is not finite? Then a float is returned, else an array of
        shape (1,).

    Returns
    -------
    float or NDArray
        The norm before.

    Examples
    --------
    >>> from rsnet import gluon, nd
    >>> x = nd.array([3.0, 4.0])
    >>> gluon.utils.clip_global_norm([x], 1.0)
    5.0
    >>> x.asnumpy().round(4).tolist()
    [0.6, 0.8]
    """
    if not len(arrays):
        raise AssertionError("clip_global_norm: expected at least one array")
    check_number("max_norm", max_norm, "clip_global_norm: ")
    ctx = arrays[0].context
    squares = [nd.sum(nd.square(_wide(a))).astype("float32").as_in_context(ctx) for a in arrays]
    norm = nd.sqrt(nd.add_n(*squares))
    if check_isfinite:
        value = float(norm.asscalar())
        if not math.isfinite(value):
            warnings.warn(
                UserWarning("nan or inf is detected. Clipping results will be undefined."),
                stacklevel=2,
            )
    scale = nd.minimum(max_norm / (norm + 1e-8), 1.0)
    for array in arrays:
        wide = _wide(array)
        wide *= scale.as_in_context(wide.context).astype(wide.dtype)
        if wide is not array:
            wide.astype(array.dtype).copyto(array)
    return value if check_isfinite else norm


def _wide(array: NDArray) -> NDArray:
    """The array; one in half precision, whose squares would not fit, in single precision."""
    return array.astype("float32") if array.dtype == np.float16 else array


def check_sha1(filename: str, sha1_hash: str) -> bool:
    """Whether the file's SHA-1 digest is this one (as hexadecimal text)."""
    sha1 = hashlib.sha1()
    with open(filename, "rb") as file:
        while data := file.read(1 << 20):
            sha1.update(data)
    return sha1.hexdigest() == sha1_hash


def replace_file(src: str, dst: str) -> None:
    """Moves a file onto another at once."""
    os.replace(src, dst)


def download(
    url: str,
    path: str | None = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """Copies a local file, given by its path or as ``file://``; rsnet fetches nothing from a
    network.

    Parameters
    ----------
    url : str
    path : str, optional
        Where to: a file or a folder; the current folder if None.
    overwrite : bool
        Copy even if the file is there already?
    sha1_hash : str, optional
        What the file must have.
    retries, verify_ssl
        Accepted for compatibility.

    Returns
    -------
    str
        The path of the file.

    Raises
    ------
    RuntimeError
        The URL names another machine, and the file is not there yet.
    OSError
        The copy has another digest.
    """
    parts = urlparse(url)
    name = os.path.basename(parts.path) or "downloaded"
    target = name if path is None else os.path.expanduser(path)
    if os.path.isdir(target):
        target = os.path.join(target, name)

    def is_good(file: str) -> bool:
        return os.path.exists(file) and (not sha1_hash or check_sha1(file, sha1_hash))

    if is_good(target) and not overwrite:
        return target
    if parts.scheme not in ("", "file"):
        why = ""
        if sha1_hash and os.path.exists(target):
            why = f" (the file that is there has another SHA-1 digest than {sha1_hash})"
        raise RuntimeError(
            f"cannot download {url}, as rsnet fetches nothing from a network: expected the file at "
            f"'{target}'{why}"
        )
    source = unquote(parts.path)
    folder = os.path.dirname(os.path.abspath(target))
    os.makedirs(folder, exist_ok=True)
    partial = f"{target}.{uuid.uuid4().hex}"
    shutil.copyfile(source, partial)
    if not is_good(partial):
        os.remove(partial)
        raise OSError(f"invalid file '{source}': expected the SHA-1 digest {sha1_hash}")
    replace_file(partial, target)
    return target


__getattr__ = module_getattr(__name__)
