"""Operators whose outputs have shapes that numbers decide.

The core knows their names, parameters and dtypes (`OpDef::shaped_by_numbers`), so that symbols may
hold them; they are computed here, when the numbers are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._core import NDArray
from ..base import MXValueError, shown
from ._creation import array as array_of
from ._register import op

__all__ = ["boolean_mask"]


def boolean_mask(
    data: NDArray,
    index: NDArray,
    axis: int = 0,
    out: NDArray | None = None,
    name: str | None = None,
) -> Any:
    """The slices of `data` along `axis` where `index` is not zero. It waits for `index`, whose
    values decide the shape of the result.

    Parameters
    ----------
    data : NDArray
        The array.
    index : NDArray
        A vector of the extent of the axis.
    axis : int
        The axis along which slices are taken.
    out : NDArray, optional
        Where to write them.
    name : str, optional
        Accepted, without effect, as by every function of `nd`.

    Returns
    -------
    NDArray
        The slices, in their order.

    Raises
    ------
    ValueError
        Data has no such axis, `index` is not a vector of its extent, or `out` has another shape
        than the slices.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.contrib.boolean_mask(nd.array([1, 2, 3]), nd.array([1, 0, 1])).asnumpy().tolist()
    [1.0, 3.0]
    """
    for what, given in (("data", data), ("index", index)):
        if not isinstance(given, NDArray):
            raise TypeError(f"boolean_mask: invalid {what} {shown(given)}: expected an NDArray")
    rank = len(data.shape)
    if not -rank <= axis < rank:
        raise MXValueError(
            f"boolean_mask: invalid axis {axis}: expected {-rank} to {rank - 1}, an axis of data"
        )
    if index.shape != (data.shape[axis],):
        raise MXValueError(
            f"boolean_mask: invalid index of shape {index.shape}: expected {(data.shape[axis],)}, "
            f"the extent of axis {axis} of data"
        )
    places = np.flatnonzero(index.asnumpy())
    if len(places):
        chosen: NDArray = array_of(places, dtype="int32")
        return op.take(data, chosen, axis=axis, out=out)
    start = [slice(None)] * rank
    start[axis] = slice(0, 0)
    nothing = data[tuple(start)]
    if out is None:
        return nothing
    if out.shape != nothing.shape:
        raise MXValueError(
            f"boolean_mask: invalid out of shape {out.shape}: expected {nothing.shape}"
        )
    return out


#: What computes each of them: a function of the inputs, and the names of its parameters.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "_contrib_boolean_mask": (boolean_mask, ("axis",)),
}
