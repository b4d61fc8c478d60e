"""Random shapes and arrays, element-wise Python functions, checks of random generators."""

from __future__ import annotations

import itertools
import random as _random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import context as _context
from .. import ndarray as nd
from ..ndarray import NDArray
from .compare import _host, default_dtype


def _extent(limit: int, allow_zero_size: bool) -> int:
    return int(np.random.randint(0 if allow_zero_size else 1, limit + 1))


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[Any, ...]:
    """Two extents, each uniform in 1 to its limit."""
    return _extent(dim0, allow_zero_size), _extent(dim1, allow_zero_size)


def rand_shape_3d(
    dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False
) -> tuple[Any, ...]:
    """Three extents, each uniform in 1 to its limit."""
    return tuple(_extent(d, allow_zero_size) for d in (dim0, dim1, dim2))


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[Any, ...]:
    """`num_dim` extents, each uniform in 1 to `dim`."""
    return tuple(_extent(dim, allow_zero_size) for _ in range(num_dim))


def rand_ndarray(
    shape: Any,
    stype: str = "default",
    density: Any = None,
    dtype: Any = None,
    modifier_func: Callable[[float], float] | None = None,
    shuffle_csr_indices: bool = False,
    distribution: Any = None,
    ctx: Any = None,
) -> NDArray:
    """Uniform in [-1, 1)."""
    if stype != "default":
        raise NotImplementedError(f"invalid stype {stype!r}: expected 'default'")
    data = np.random.uniform(-1, 1, shape)
    if modifier_func is not None:
        data = assign_each(data, modifier_func)
    return nd.array(data, ctx=ctx, dtype=dtype or default_dtype())


def random_arrays(*shapes: tuple[Any, ...]) -> Any:
    """Standard normal float32 arrays; one array if one shape."""
    arrays = [np.asarray(np.random.standard_normal(s), dtype="float32") for s in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(
    *shapes: tuple[Any, ...], low: float = 0.0, high: float = 1.0, dtype: Any = np.float32
) -> list[np.ndarray]:
    """A list of uniform arrays."""
    return [np.asarray(np.random.uniform(low, high, s), dtype=dtype) for s in shapes]


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """`k` elements without repetition, in random order."""
    return _random.sample(list(population), k)


def np_reduce(dat: np.ndarray, axis: Any, keepdims: bool, numpy_reduce_func: Any) -> np.ndarray:
    """Reduces over the axes one after another, the last first."""
    axes = range(dat.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    out = dat
    for i in sorted((a % dat.ndim for a in axes), reverse=True):
        out = numpy_reduce_func(out, axis=i)
    if keepdims:
        kept = [a % dat.ndim for a in axes]
        out = out.reshape([1 if i in kept else n for i, n in enumerate(dat.shape)])
    return out


def assign_each(the_input: np.ndarray, function: Callable[[Any], Any] | None) -> np.ndarray:
    """`function` of every element; a copy without one."""
    if function is None or not the_input.size:
        return np.array(the_input)
    return np.asarray(np.vectorize(function)(the_input))


def assign_each2(
    input1: np.ndarray, input2: np.ndarray, function: Callable[[Any, Any], Any] | None
) -> np.ndarray:
    """`function` of every pair of elements; a copy of the first array without one."""
    if function is None or not input1.size:
        return np.array(input1)
    return np.asarray(np.vectorize(function)(input1, input2))


def collapse_sum_like(a: np.ndarray, shape: tuple[Any, ...]) -> np.ndarray:
    """Sums over the axes along which `shape` would be broadcast to the shape of `a`."""
    extra = a.ndim - len(shape)
    axes = (*range(extra), *(i + extra for i, n in enumerate(shape) if n == 1))
    return np.asarray(a.sum(axis=axes, keepdims=True)).reshape(shape)


def list_gpus() -> range:
    """Indices of the GPUs that can be used."""
    return range(_context.num_gpus() if hasattr(_context, "num_gpus") else 0)


def mean_check(generator: Any, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Is the mean of `generator(nsamples)` within 3 standard errors of `mu`?"""
    mean = np.mean(_host(generator(nsamples)), dtype="float64")
    return bool(abs(mean - mu) < 3 * sigma / np.sqrt(nsamples))


def var_check(generator: Any, sigma: float, nsamples: int = 1000000) -> bool:
    """Is the variance within 3 standard errors of sigma squared (for normal numbers)?"""
    var = np.var(_host(generator(nsamples)), ddof=1, dtype="float64")
    return bool(abs(var - sigma**2) < 3 * np.sqrt(2 * sigma**4 / (nsamples - 1)))


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[Any], list[Any]]:
    """Buckets of equal probability from a quantile function: (buckets, probabilities)."""
    edges = [float(ppf(i / nbuckets)) for i in range(nbuckets + 1)]
    return list(itertools.pairwise(edges)), [1 / nbuckets] * nbuckets


def chi_square_check(
    generator: Any, buckets: Any, probs: Any, nsamples: int = 1000000
) -> tuple[float, np.ndarray, np.ndarray]:
    """Pearson's test of how often samples fall into buckets: (p value, observed, expected).

    Buckets are half-open (low, high) pairs, or values. Needs SciPy.
    """
    from scipy import stats

    samples = _host(generator(nsamples)).ravel()
    if isinstance(buckets[0], (list, tuple)):
        observed = [((samples >= low) & (samples < high)).sum() for low, high in buckets]
    else:
        observed = [(samples == value).sum() for value in buckets]
    expected = np.asarray(probs) * len(samples)
    _, p = stats.chisquare(np.asarray(observed), expected * sum(observed) / expected.sum())
    return float(p), np.asarray(observed), expected


def verify_generator(
    generator: Any,
    buckets: Any,
    probs: Any,
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """Asserts that enough chi-square tests have p > alpha; returns the p values."""
    ps = [chi_square_check(generator, buckets, probs, nsamples)[0] for _ in range(nrepeat)]
    if sum(p > alpha for p in ps) < nrepeat * success_rate:
        raise AssertionError(f"Generator test fails, Chi-square p={ps}")
    return ps
