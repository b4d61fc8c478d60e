"""Values of parameters from a file: all of them, or none if one does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ndarray import NDArray

if TYPE_CHECKING:
    from .block import Block
    from .parameter import Parameter


def check_fits(param: Parameter, data: NDArray, cast_dtype: bool, dtype_source: str) -> None:
    """Refuses values of another shape or dtype than the parameter may have."""
    what = f"Failed loading Parameter '{param.name}' from saved params:"
    if param.shape is not None:
        known = [have in (0, -1, got) for have, got in zip(param.shape, data.shape)]
        if len(param.shape) != len(data.shape) or not all(known):
            raise AssertionError(
                f"{what} shape incompatible expected {param.shape} vs saved {data.shape}"
            )
    if cast_dtype:
        if dtype_source not in ("current", "saved"):
            raise AssertionError(
                f"invalid dtype_source '{dtype_source}': expected 'current' or 'saved'"
            )
    elif np.dtype(param.dtype) != data.dtype:
        raise AssertionError(
            f"{what} dtype incompatible expected {np.dtype(param.dtype)} vs saved "
            f"{np.dtype(data.dtype)}. Set cast_dtype=True to cast the dtype of saved params."
        )


def load_all(
    values: Sequence[tuple[Parameter, NDArray]], ctx: Any, cast_dtype: bool, dtype_source: str
) -> None:
    """Gives parameters their values once all are known to fit."""
    for param, data in values:
        check_fits(param, data, cast_dtype, dtype_source)
    for param, data in values:
        param._load_init(data, ctx, cast_dtype, dtype_source)


def with_short_names(block: Block, arrays: dict[str, NDArray]) -> dict[str, NDArray]:
    """The arrays under the names that `save_parameters` writes: earlier builds wrote whole names
    for the parameters of a `SymbolBlock`, where MXNet leaves out what all of them begin with.
    """
    for place, names in _whole_names(block, ""):
        short = {f"{place}{whole}": f"{place}{name}" for whole, name in names.items()}
        if len(short.keys() & arrays.keys()) > len(set(short.values()) & arrays.keys()):
            arrays = {short.get(name, name): array for name, array in arrays.items()}
    return arrays


def _whole_names(block: Block, place: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Of each block that has some, its place, and its parameters' names in files by whole names."""
    if block._whole_names:
        yield place, block._whole_names
    for name, child in block._children.items():
        yield from _whole_names(child, f"{place}{name}.")
