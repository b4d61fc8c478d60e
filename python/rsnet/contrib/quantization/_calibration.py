"""Ranges of the numbers in a model, observed on examples."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...base import shown
from ...context import Context
from ...io import DataIter
from ...symbol import Symbol
from ._rewriting import Entry, Range, Rewriting

__all__ = ["Observer", "batches_by_name", "calibrated", "collected"]

#: Bins of a histogram, and the largest share of numbers that a range may leave out.
_BINS = 8001
_CLIPPED = 0.001


def batches_by_name(
    data: Any, names: Sequence[str], ctx: Context
) -> Iterable[dict[str, nd.NDArray]]:
    """Batches of examples as arrays by name."""
    if isinstance(data, DataIter):
        data.reset()
    for batch in data:
        arrays = getattr(batch, "data", batch)
        arrays = arrays if isinstance(arrays, (list, tuple)) else [arrays]
        if len(arrays) < len(names):
            raise ValueError(
                f"invalid calib_data: a batch has {len(arrays)} arrays, expected {len(names)}: "
                f"{', '.join(names)}"
            )
        given = [array if isinstance(array, nd.NDArray) else nd.array(array) for array in arrays]
        yield {n: a.as_in_context(ctx) for n, a in zip(names, given, strict=False)}


class Observer:
    """Range, and for the entropy a histogram, of what one entry was on the examples."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.counts = np.zeros(_BINS)
        self.most = 0.0

    def see(self, values: np.ndarray[Any, Any], with_counts: bool) -> None:
        self.low, self.high = min(self.low, values.min()), max(self.high, values.max())
        if not with_counts:
            return
        most = max(abs(self.low), abs(self.high), 1e-20)
        if self.most == 0.0:
            self.most = most
        while self.most < most:  # two bins become one, around the bin in the middle
            half = self.counts[_BINS // 2 + 1 :].reshape(-1, 2).sum(axis=1)
            low = self.counts[: _BINS // 2].reshape(-1, 2).sum(axis=1)
            pad = np.zeros(_BINS // 2 - len(half))
            middle = self.counts[_BINS // 2 : _BINS // 2 + 1]
            self.counts = np.concatenate([pad, low, middle, half, pad])
            self.most *= 2
        self.counts += np.histogram(values, _BINS, (-self.most, self.most))[0]

    def threshold(self) -> float:
        """The range that loses the least, but not less than what holds all but a few numbers:
        peaks, such as the background of images, would make it far too narrow.
        """
        edges = np.linspace(-self.most, self.most, _BINS + 1)
        found = nd.contrib.calibrate_entropy(nd.array(self.counts), nd.array(edges))
        middle = _BINS // 2
        sizes = self.counts[middle:].copy()
        sizes[1:] += self.counts[:middle][::-1]
        held = np.searchsorted(sizes.cumsum(), (1 - _CLIPPED) * sizes.sum())
        return max(float(found[0].asscalar()), float(edges[middle + 1 + min(held, middle)]))

    def range(self, entropy: bool) -> Range:
        if not entropy:
            return float(self.low), float(self.high)
        threshold = self.threshold()
        return (0.0 if self.low >= 0 else -threshold), threshold


def calibrated(
    rewriting: Rewriting,
    params: Mapping[str, nd.NDArray],
    batches: Iterable[dict[str, nd.NDArray]],
    limit: int | None,
    entropy: bool,
    ctx: Context,
) -> dict[Entry, Range]:
    """The ranges of what the layers that were chosen read and give."""
    observers: defaultdict[Entry, Observer] = defaultdict(Observer)
    for entry, name, output in _observed(rewriting, params, batches, limit, ctx):
        values = output.asnumpy()
        if not np.isfinite(values).all():
            raise ValueError(f"no range of {name}: expected finite numbers for the examples")
        observers[entry].see(values, entropy)
    return {entry: observer.range(entropy) for entry, observer in observers.items()}


def collected(
    rewriting: Rewriting,
    params: Mapping[str, nd.NDArray],
    batches: Iterable[dict[str, nd.NDArray]],
    limit: int | None,
    collector: Any,
    ctx: Context,
) -> dict[Entry, Range]:
    """The ranges in the `min_max_dict` of an object that is shown the examples by its `collect`."""
    names: dict[Entry, str] = {}
    for entry, name, output in _observed(rewriting, params, batches, limit, ctx):
        names[entry] = name
        try:
            collector.collect(name.encode(), output.copy())
        except ctypes.ArgumentError as error:
            raise TypeError(
                f"invalid cast in {type(collector).__name__}.collect: expected a use of the "
                "NDArray that it is given, which is no handle"
            ) from error
    if not names:
        return {}
    found = getattr(collector, "min_max_dict", None)
    if not isinstance(found, Mapping):
        raise TypeError(
            f"invalid min_max_dict {shown(found)} of {type(collector).__name__}: expected a dict "
            "of names and ranges"
        )
    return {entry: _range(name, found[name]) for entry, name in names.items() if name in found}


def _range(name: str, given: Any) -> Range:
    try:
        low, high = map(float, given)
    except (TypeError, ValueError) as error:
        raise TypeError(f"invalid range {shown(given)} of {name}: expected two numbers") from error
    if not -np.inf < low <= high < np.inf:
        raise ValueError(f"invalid range {given} of {name}: expected the lower number first")
    return low, high


def _observed(
    rewriting: Rewriting,
    params: Mapping[str, nd.NDArray],
    batches: Iterable[dict[str, nd.NDArray]],
    limit: int | None,
    ctx: Context,
) -> Iterator[tuple[Entry, str, nd.NDArray]]:
    """What the layers that were chosen read and give on the examples, with its name."""
    if any(rewriting.chosen):
        entries, group = rewriting.observed()
        names = group.list_outputs()
        for outputs in _runs(group, params, batches, limit, ctx):
            yield from zip(entries, names, outputs, strict=True)


def _runs(
    group: Symbol,
    params: Mapping[str, nd.NDArray],
    batches: Iterable[dict[str, nd.NDArray]],
    limit: int | None,
    ctx: Context,
) -> Iterator[list[nd.NDArray]]:
    """What a symbol computes of the batches, until there were `limit` examples."""
    executor, seen = None, 0
    for batch in batches:
        if executor is None:
            inputs = group.list_inputs()
            shapes: dict[str, Any] = {
                name: array.shape for name, array in batch.items() if name in inputs
            }
            missing = [name for name in inputs if name not in batch and name not in params]
            if missing:
                raise ValueError(
                    f"no array for {', '.join(missing)}: expected each argument in arg_params or "
                    "calib_data, each auxiliary state in aux_params"
                )
            executor = group.simple_bind(ctx, grad_req="null", **shapes)
            executor.copy_params_from(
                {n: a for n, a in params.items() if n in executor.arg_dict},
                {n: a for n, a in params.items() if n in executor.aux_dict},
            )
        yield executor.forward(
            is_train=False, **{n: a for n, a in batch.items() if n in executor.arg_dict}
        )
        seen += next(iter(batch.values())).shape[0]
        if limit is not None and seen >= limit:
            break
    if not seen:
        raise ValueError("invalid calib_data without batches: expected one batch at least")
