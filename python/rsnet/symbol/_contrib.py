"""Functions of ``sym.contrib`` written by hand beside loops and conditions."""

from __future__ import annotations

import math
from typing import Any

from . import random
from .register import function
from .symbol import Symbol

__all__ = ["adamw_update", "mp_adamw_update", "rand_zipfian"]


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


def _factor(rescale_grad: Any) -> Symbol:
    """The factor of the gradients as a symbol of one element."""
    if isinstance(rescale_grad, Symbol):
        return rescale_grad
    made: Symbol = function("_full")(shape=(1,), value=float(rescale_grad))
    return made


def adamw_update(
    weight: Symbol,
    grad: Symbol,
    mean: Symbol,
    var: Symbol,
    rescale_grad: Any,
    lr: float,
    eta: float,
    **kwargs: Any,
) -> Any:
    """One step of AdamW, as ``nd.contrib.adamw_update``; `rescale_grad` is a symbol or a number.

    Examples
    --------
    >>> import rsnet as mx
    >>> arrays = [mx.sym.var(name) for name in ("weight", "grad", "mean", "var")]
    >>> step = mx.sym.contrib.adamw_update(*arrays, rescale_grad=1, lr=0.1, eta=1, epsilon=0)
    >>> one, zero = mx.nd.ones((1,)), mx.nd.zeros((1,))
    >>> float(step.eval(weight=one, grad=one, mean=zero, var=zero.copy())[0].asscalar() < 1)
    1.0
    """
    arrays = (weight, grad, mean, var, _factor(rescale_grad))
    return function("_adamw_update")(*arrays, lr=lr, eta=eta, **kwargs)


def mp_adamw_update(
    weight: Symbol,
    grad: Symbol,
    mean: Symbol,
    var: Symbol,
    weight32: Symbol,
    rescale_grad: Any,
    lr: float,
    eta: float,
    **kwargs: Any,
) -> Any:
    """`adamw_update` of a weight with a copy in float32.

    Examples
    --------
    >>> import rsnet as mx
    >>> arrays = [mx.sym.var(name) for name in ("weight", "grad", "mean", "var", "copy")]
    >>> made = mx.sym.contrib.mp_adamw_update(*arrays, rescale_grad=1, lr=0.1, eta=1, name="w")
    >>> made.list_outputs()
    ['w_output']
    """
    arrays = (weight, grad, mean, var, weight32, _factor(rescale_grad))
    return function("_mp_adamw_update")(*arrays, lr=lr, eta=eta, **kwargs)
