"""Operators whose outputs have shapes that numbers decide.

The core knows their names, parameters and dtypes (`OpDef::shaped_by_numbers`), so that symbols may
hold them; they are computed here, when the numbers are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._core import NDArray
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
        `index` is not a vector of the extent of `axis`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.contrib.boolean_mask(nd.array([1, 2, 3]), nd.array([1, 0, 1])).asnumpy().tolist()
    [1.0, 3.0]
    """
    if index.shape != (data.shape[axis],):
        raise ValueError(
            f"invalid index of shape {index.shape}: expected {(data.shape[axis],)}, the extent of "
            f"axis {axis} of data"
        )
    places = np.flatnonzero(index.asnumpy())
    if not len(places):
        start = [slice(None)] * len(data.shape)
        start[axis] = slice(0, 0)
        return data[tuple(start)]
    chosen: NDArray = array_of(places, dtype="int32")
    return op.take(data, chosen, axis=axis, out=out)


#: What computes each of them: called with the inputs, and with the parameters by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {"_contrib_boolean_mask": boolean_mask}
