"""Functions of ``nd.contrib`` written by hand: loops and conditions, tests for special values,
`rand_zipfian`.

Loops run at once, in Python, so that autograd records what they call; `foreach` and `while_loop`
stack what every step returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._core import NDArray
from .._trees import check_functions, flat, like, listed, pair, step_limit
from ..base import shown
from . import random
from ._register import op

__all__ = [
    "cond",
    "foreach",
    "isfinite",
    "isinf",
    "isnan",
    "rand_zipfian",
    "while_loop",
]


def _flat(tree: Any, what: str) -> list[NDArray]:
    """The arrays of a nested list, in order."""
    return flat(tree, NDArray, what)


#: The arrays that are stacked by one call.
_STACKED = 1 << 12


def _stacked(steps: list[Any], missing: int = 0) -> Any:
    """What the steps returned, stacked along a new first axis, with zeros for missing steps."""
    rows = [_flat(step, "output") for step in steps]
    first = rows[0]
    if any(len(row) != len(first) for row in rows):
        raise ValueError("invalid outputs: expected the same number of arrays from every step")
    return like(steps[0], [_column(column, missing) for column in zip(*rows, strict=True)])


def _column(arrays: tuple[NDArray, ...], missing: int) -> Any:
    parts = [
        op.stack(*arrays[first : first + _STACKED], axis=0)
        for first in range(0, len(arrays), _STACKED)
    ]
    if missing:
        zero = op.expand_dims(op.zeros_like(arrays[0]), axis=0)
        parts.append(op.broadcast_axis(zero, axis=0, size=missing))
    return parts[0] if len(parts) == 1 else op.concat(*parts, dim=0)


def foreach(
    body: Callable[[Any, Any], tuple[Any, Any]], data: Any, init_states: Any, name: str = "foreach"
) -> tuple[Any, Any]:
    """Runs `body` on the slices of `data` along axis 0, handing states from step to step.

    Parameters
    ----------
    body : callable
        ``body(slices, states) -> (outputs, states)``; each is an array or a nested list of arrays.
    data : NDArray or nested list of NDArray
        Arrays of one extent along axis 0, at least 1.
    init_states : NDArray or nested list of NDArray
        States of the first step.
    name : str
        Accepted, without effect.

    Returns
    -------
    tuple
        The outputs of all steps, stacked along axis 0, and the states of the last.

    Raises
    ------
    ValueError
        The arrays of `data` have different extents along axis 0, none, or 0; the body returns no
        pair.

    Examples
    --------
    >>> from rsnet import nd
    >>> step = lambda x, total: (total + x, total + x)
    >>> sums, total = nd.contrib.foreach(step, nd.array([1, 2, 3]), nd.array([0]))
    >>> sums.asnumpy().ravel().tolist()
    [1.0, 3.0, 6.0]
    """
    check_functions(body=body)
    arrays = _flat(data, "data")
    if not all(array.shape for array in arrays):
        raise ValueError("invalid data of shape (): expected one axis at least")
    lengths = {array.shape[0] for array in arrays}
    if len(lengths) != 1:
        raise ValueError(
            f"invalid data with extents {sorted(lengths)} along axis 0: expected arrays of one "
            "extent"
        )
    if lengths == {0}:
        raise ValueError("invalid data of extent 0 along axis 0: expected at least 1")
    _flat(init_states, "init_states")
    outputs, states = [], init_states
    for i in range(lengths.pop()):
        step = body(like(data, [array[i] for array in arrays]), states)
        out, states = pair(step, "(outputs, states)")
        outputs.append(out)
    return _stacked(outputs), states


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., tuple[Any, Any]],
    loop_vars: Any,
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> tuple[Any, Any]:
    """Runs ``outputs, loop_vars = func(*loop_vars)`` while ``cond(*loop_vars)`` is not zero.

    Parameters
    ----------
    cond : callable
        Takes the loop variables; returns an array of one element, or a number.
    func : callable
        Takes the loop variables; returns outputs (None for none), and as many new loop variables.
    loop_vars : NDArray or list of NDArray
        The first loop variables, at least one.
    max_iterations : int, or NDArray of one element
        Greatest number of steps; required.
    name : str
        Accepted, without effect.

    Returns
    -------
    tuple
        The outputs of all steps, stacked along axis 0 and filled up with zeros to `max_iterations`
        rows (``[]`` if no step ran), and the last loop variables.

    Raises
    ------
    ValueError
        `max_iterations` is no number of 0 or more, there are no loop variables, their number
        changes, or `func` returns no pair.

    Examples
    --------
    >>> from rsnet import nd
    >>> i = nd.array([1])
    >>> twice = lambda i: (i * 2, i + 1)
    >>> out, last = nd.contrib.while_loop(lambda i: i < 3, twice, i, max_iterations=4)
    >>> out.asnumpy().ravel().tolist(), float(last.asscalar())
    ([2.0, 4.0, 0.0, 0.0], 3.0)
    """
    check_functions(cond=cond, func=func)
    limit = step_limit(max_iterations, 0)
    several = isinstance(loop_vars, (list, tuple))
    states = listed(loop_vars)
    if not _flat(states, "loop_vars"):
        raise ValueError("invalid loop_vars []: expected at least one array")
    outputs: list[Any] = []
    while len(outputs) < limit and _truth(cond(*states)):
        out, new = pair(func(*states), "(outputs, loop_vars)")
        new = listed(new)
        if len(new) != len(states):
            raise ValueError(
                f"invalid number of new loop variables {len(new)}: expected {len(states)}"
            )
        outputs.append([] if out is None else out)
        states = new
    last = states if several else states[0]
    if not outputs:
        return [], last
    return _stacked(outputs, limit - len(outputs)), last


def _truth(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return bool(value)
    if not isinstance(value, (NDArray, np.ndarray, np.generic)):
        raise TypeError(
            f"invalid condition {shown(value)}: expected an array of one element, or a number"
        )
    if value.size != 1:
        raise ValueError(f"invalid condition of shape {value.shape}: expected one element")
    return bool(value.item())


def cond(
    pred: Any,
    then_func: Callable[[], Any],
    else_func: Callable[[], Any],
    name: str = "cond",
) -> Any:
    """What ``then_func()`` returns if `pred`, an array of one element or a number, is not zero,
    else what ``else_func()`` does.

    Raises
    ------
    ValueError, TypeError
        `pred` has another number of elements, or is something else.

    Examples
    --------
    >>> from rsnet import nd
    >>> x = nd.array([-2])
    >>> float(nd.contrib.cond(x < 0, lambda: -x, lambda: x).asscalar())
    2.0
    """
    check_functions(then_func=then_func, else_func=else_func)
    return then_func() if _truth(pred) else else_func()


def _is_float(data: NDArray) -> bool:
    return np.issubdtype(np.dtype(data.dtype), np.floating)


def isinf(data: NDArray) -> NDArray:
    """1 where an element is infinite, else 0, in data's dtype.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.contrib.isinf(nd.array([1, float("-inf"), float("nan")])).asnumpy().tolist()
    [0.0, 1.0, 0.0]
    """
    return op.abs(data) == np.inf if _is_float(data) else op.zeros_like(data)


def isfinite(data: NDArray) -> NDArray:
    """1 where an element is neither infinite nor NaN, else 0, in data's dtype.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.contrib.isfinite(nd.array([1, float("-inf"), float("nan")])).asnumpy().tolist()
    [1.0, 0.0, 0.0]
    """
    return op.abs(data) < np.inf if _is_float(data) else op.ones_like(data)


def isnan(data: NDArray) -> NDArray:
    """1 where an element is NaN, else 0, in data's dtype.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.contrib.isnan(nd.array([1, float("-inf"), float("nan")])).asnumpy().tolist()
    [0.0, 0.0, 1.0]
    """
    return data != data


def rand_zipfian(
    true_classes: NDArray, num_sampled: int, range_max: int, ctx: Any = None
) -> tuple[NDArray, NDArray, NDArray]:
    """Classes drawn with replacement from an approximately log-uniform distribution, for sampled
    losses over classes in the order of their frequency: class c has the probability
    log((c + 2) / (c + 1)) / log(range_max + 1).

    Returns
    -------
    samples : NDArray of shape (num_sampled,), int64
        The classes drawn, from 0 to range_max - 1.
    expected_true, expected_sampled : NDArray, float64
        How often each of `true_classes` and of the samples is expected in `num_sampled` draws.

    Raises
    ------
    ValueError
        `range_max` is less than 1.

    Examples
    --------
    >>> from rsnet import nd
    >>> samples, true, sampled = nd.contrib.rand_zipfian(nd.array([3]), 4, 5)
    >>> samples.shape, true.asnumpy().round(4).tolist()
    ((4,), [0.4982])
    """
    if range_max < 1:
        raise ValueError(f"invalid range_max {range_max}: expected 1 or more")
    whole = math.log(range_max + 1)
    draws = random.uniform(0, whole, shape=(num_sampled,), dtype="float64", ctx=ctx)
    samples = op.clip(op.exp(draws) - 1, 0, range_max - 1).astype("int64")

    def expected(classes: NDArray) -> NDArray:
        wide = classes.astype("float64")
        return op.log((wide + 2) / (wide + 1)) * (num_sampled / whole)

    return samples, expected(true_classes.as_in_context(samples.context)), expected(samples)
