"""Functions of ``sym.contrib`` written by hand beside loops and conditions."""

from __future__ import annotations

import math
from typing import Any

from . import random
from .register import function
from .symbol import Symbol

__all__ = ["rand_zipfian"]


def rand_zipfian(
    true_classes: Symbol, num_sampled: int, range_max: int
) -> tuple[Symbol, Symbol, Symbol]:
    """Classes drawn with replacement from an approximately log-uniform distribution, as
    ``nd.contrib.rand_zipfian`` draws them.

    Returns
    -------
    samples : Symbol of shape (num_sampled,), int64
    expected_true, expected_sampled : Symbol, float64
        How often each of `true_classes` and of the samples is expected in `num_sampled` draws.

    Raises
    ------
    ValueError
        `range_max` is less than 1.

    Examples
    --------
    >>> import rsnet as mx
    >>> samples, true, sampled = mx.sym.contrib.rand_zipfian(mx.sym.var("classes"), 4, 5)
    >>> true.eval(classes=mx.nd.array([3]))[0].asnumpy().round(4).tolist()
    [0.4982]
    """
    if range_max < 1:
        raise ValueError(f"invalid range_max {range_max}: expected 1 or more")
    whole = math.log(range_max + 1)
    draws = random.uniform(0, whole, shape=(num_sampled,), dtype="float64")
    places: Any = function("exp")(draws)
    places = function("clip")(places - 1, a_min=0, a_max=range_max - 1)
    samples = function("Cast")(places, dtype="int64")

    def expected(classes: Symbol) -> Any:
        wide: Any = function("Cast")(classes, dtype="float64")
        log: Any = function("log")((wide + 2) / (wide + 1))
        return log * (num_sampled / whole)

    return samples, expected(true_classes), expected(samples)
