"""Signatures of common operators, as data: a function per operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base import MXNetError
from .signature import B, P, S, Sbp

Shapes = Sequence[tuple[int, ...]]
#: Distributions of all inputs, then of the output.
Row = tuple[Sbp, ...]


class Rules(NamedTuple):
    """The rules of one operator."""

    #: Names of the inputs; the last stands for any number of arrays if it begins with ``*``.
    inputs: tuple[str, ...]
    rows: Callable[[Shapes, dict[str, Any]], Iterator[Row]]


def _axis(attrs: dict[str, Any], rank: int, default: int, name: str = "axis") -> int:
    axis = int(attrs.get(name, default))
    if not -rank <= axis < rank:
        raise MXNetError(f"invalid {name} {axis}: expected {-rank} to {rank - 1}")
    return axis % rank


def _nonlinear(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    for i in range(len(shapes[0])):
        yield S(i), S(i)


def _linear(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    yield from _nonlinear(shapes, attrs)
    yield P, P


def _aligned(shapes: Shapes) -> Iterator[Row]:
    """Splits of operators that broadcast: an axis of extent 1, or a missing one, is not split."""
    rank = max(map(len, shapes))
    for i in range(rank):
        own = [i - (rank - len(shape)) for shape in shapes]
        split = [
            S(axis) if axis >= 0 and shape[axis] != 1 else B
            for axis, shape in zip(own, shapes, strict=True)
        ]
        if any(sbp != B for sbp in split):
            yield *split, S(i)


def _add(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    yield from _aligned(shapes)
    yield P, P, P


def _multiply(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    yield from _aligned(shapes)
    yield P, B, P
    yield B, P, P


def _divide(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    yield from _aligned(shapes)
    yield P, B, P


def _add_n(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    for i in range(len(shapes[0])):
        yield (S(i),) * (len(shapes) + 1)
    yield (P,) * (len(shapes) + 1)


def _concat(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    joined = _axis(attrs, len(shapes[0]), 1, "dim")
    rows = _add_n(shapes, attrs)
    return (row for row in rows if row[0] != S(joined))


def _cast(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    """Partial sums become wider numbers of floating point, but are not rounded to narrower
    numbers.
    """
    yield from _nonlinear(shapes, attrs)
    if np.dtype(attrs.get("dtype", "float32")) in ("float32", "float64"):
        yield P, P


def _products(m: Row, n: Row, k: Row) -> Iterator[Row]:
    """A product of matrices: ``m`` and ``n`` split its own axes, ``k`` the one summed over."""
    yield m
    yield n
    yield k
    yield P, B, P
    yield B, P, P


def _dot(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    """Sums over the last axis of the first array and the first axis of the second."""
    a, b = bool(attrs.get("transpose_a", False)), bool(attrs.get("transpose_b", False))
    ranks = [len(shape) for shape in shapes]
    if ranks == [2, 2]:
        yield from _matrix_product(a, b)
        return
    if not (a or b):
        yield from ((S(i), B, S(i)) for i in range(ranks[0] - 1))
        yield from ((B, S(i), S(ranks[0] + i - 2)) for i in range(1, ranks[1]))
        yield S(ranks[0] - 1), S(0), P
    yield P, B, P
    yield B, P, P


def _matrix_product(a: bool, b: bool) -> Iterator[Row]:
    m, k1 = (1, 0) if a else (0, 1)
    k2, n = (1, 0) if b else (0, 1)
    return _products((S(m), B, S(0)), (B, S(n), S(1)), (S(k1), S(k2), P))


def _batch_dot(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    batch = len(shapes[0]) - 2
    for i in range(batch):
        yield S(i), S(i), S(i)
    a, b = bool(attrs.get("transpose_a", False)), bool(attrs.get("transpose_b", False))
    for row in _matrix_product(a, b):
        yield tuple(s if s.axis is None else S(s.axis + batch) for s in row)


def _fully_connected(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    """The weight is (num_hidden, in). A bias must not be added once for each rank: no P."""
    if len(shapes) == 2:
        return _products((S(0), B, S(0)), (B, S(0), S(1)), (S(1), S(1), P))
    return iter([(S(0), B, B, S(0)), (B, S(0), S(0), S(1))])


def _bias_add(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    channel = _axis(attrs, len(shapes[0]), 1)
    for i in range(len(shapes[0])):
        yield (S(i), S(0), S(i)) if i == channel else (S(i), B, S(i))


def _reduced(shapes: Shapes, attrs: dict[str, Any]) -> tuple[set[int], bool]:
    rank, axis = len(shapes[0]), attrs.get("axis", ())
    axes = (axis,) if isinstance(axis, int) else tuple(axis if axis is not None else ())
    chosen = {_axis({"axis": a}, rank, 0) for a in axes or range(rank)}
    if attrs.get("exclude"):
        chosen = set(range(rank)) - chosen
    return chosen, bool(attrs.get("keepdims", False))


def _kept_axes(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    """Reductions: axes that stay, by their number in the output."""
    reduced, keepdims = _reduced(shapes, attrs)
    kept = [i for i in range(len(shapes[0])) if i not in reduced]
    for at, i in enumerate(kept):
        yield S(i), S(i if keepdims else at)


def _reduce_sum(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    yield from _kept_axes(shapes, attrs)
    for i in sorted(_reduced(shapes, attrs)[0]):
        yield S(i), P
    yield P, P


def _reshape(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    """Axes with equally many elements before them, so that the pieces are the same runs of
    elements; axes of extent 1 aside. For numbers of ranks that divide both extents.
    """
    target = tuple(attrs["shape"])
    size = 1
    for extent in shapes[0]:
        size *= extent
    known = 1
    for extent in target:
        known *= extent if extent > 0 else 1
    target = tuple(size // max(known, 1) if extent == -1 else extent for extent in target)

    def by_start(shape: tuple[int, ...]) -> dict[int, int]:
        found, product = {}, 1
        for i, extent in enumerate(shape):
            if extent != 1:
                found[product] = i
            product *= extent
        return found

    before, after = by_start(shapes[0]), by_start(target)
    for product in sorted(before.keys() & after.keys()):
        yield S(before[product]), S(after[product])
    yield P, P


def _transpose(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    rank = len(shapes[0])
    for i, axis in enumerate(attrs.get("axes") or range(rank - 1, -1, -1)):
        yield S(axis), S(i)
    yield P, P


def _softmax(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    axis = _axis(attrs, len(shapes[0]), -1)
    return (row for row in _nonlinear(shapes, attrs) if row[0] != S(axis))


def _batch_first(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    """Only the batch is split, parameters are not (convolution, batch normalisation)."""
    if _axis(attrs, len(shapes[0]), 1) != 0:  # else there is no batch
        yield S(0), *[B] * (len(shapes) - 1), S(0)


def _cross_entropy(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    yield S(0), S(0), S(0)


def _layer_norm(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    for i in range(_axis(attrs, len(shapes[0]), -1)):
        yield S(i), B, B, S(i)


def _take(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    table, indices = shapes
    axis = _axis(attrs, len(table), 0)
    for i in range(len(indices)):
        yield B, S(i), S(axis + i)
    # Rows that another rank has are 0 on this one.
    yield S(axis), B, P
    for j in range(len(table)):
        if j != axis:
            yield S(j), B, S(j if j < axis else j + len(indices) - 1)


def _embedding(shapes: Shapes, attrs: dict[str, Any]) -> Iterator[Row]:
    for indices, *table, out in ((r[1], r[0], r[2]) for r in _take(shapes[::-1], {"axis": 0})):
        yield indices, *table, out


_UNARY, _BINARY = ("data",), ("lhs", "rhs")

RULES: dict[str, Rules] = {
    **dict.fromkeys(("negative", "identity", "_copy", "_mul_scalar", "_div_scalar"),
                    Rules(_UNARY, _linear)),
    **dict.fromkeys(("Cast", "cast"), Rules(_UNARY, _cast)),
    **dict.fromkeys(
        ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "square", "abs", "erf", "softsign",
         "sign", "sin", "cos", "Activation", "LeakyReLU", "clip", "Dropout", "_plus_scalar"),
        Rules(_UNARY, _nonlinear)),
    **dict.fromkeys(("elemwise_add", "elemwise_sub", "broadcast_add", "broadcast_sub"),
                    Rules(_BINARY, _add)),
    **dict.fromkeys(("elemwise_mul", "broadcast_mul"), Rules(_BINARY, _multiply)),
    "multiply": Rules(("x", "y"), _multiply),
    "scalar_mul": Rules(("in",), _linear),
    **dict.fromkeys(("elemwise_div", "broadcast_div"), Rules(_BINARY, _divide)),
    **dict.fromkeys(("broadcast_maximum", "broadcast_minimum"),
                    Rules(_BINARY, lambda shapes, attrs: _aligned(shapes))),
    **dict.fromkeys(("add_n", "ElementWiseSum"), Rules(("*args",), _add_n)),
    **dict.fromkeys(("Concat", "concat"), Rules(("*data",), _concat)),
    "dot": Rules(_BINARY, _dot),
    "batch_dot": Rules(_BINARY, _batch_dot),
    "FullyConnected": Rules(("data", "weight", "bias"), _fully_connected),
    "bias_add": Rules(("data", "bias"), _bias_add),
    **dict.fromkeys(("sum", "mean"), Rules(_UNARY, _reduce_sum)),
    **dict.fromkeys(("max", "min", "prod"), Rules(_UNARY, _kept_axes)),
    **dict.fromkeys(("Reshape", "reshape"), Rules(_UNARY, _reshape)),
    "transpose": Rules(_UNARY, _transpose),
    **dict.fromkeys(("softmax", "log_softmax"), Rules(_UNARY, _softmax)),
    "sparse_cross_entropy": Rules(("prediction", "label"), _cross_entropy),
    "Convolution": Rules(("data", "weight", "bias"), _batch_first),
    "BatchNorm": Rules(("data", "gamma", "beta", "moving_mean", "moving_var"), _batch_first),
    "LayerNorm": Rules(("data", "gamma", "beta"), _layer_norm),
    "take": Rules(("a", "indices"), _take),
    "Embedding": Rules(("data", "weight"), _embedding),
}  # fmt: skip
