"""Random symbols: `sym.random`. Parameters may be numbers or symbols (then one draw per
parameter).
"""

from __future__ import annotations

from typing import Any

from .._operators import registry
from ..base import shown
from ..ndarray.random import _rate
from .register import create, function
from .symbol import Symbol

# Name, operator suffix, parameters with their defaults.
_DISTRIBUTIONS = [
    ("uniform", "uniform", {"low": 0.0, "high": 1.0}),
    ("normal", "normal", {"loc": 0.0, "scale": 1.0}),
    ("poisson", "poisson", {"lam": 1.0}),
    ("exponential", "exponential", {"scale": 1.0}),
    ("gamma", "gamma", {"alpha": 1.0, "beta": 1.0}),
    ("negative_binomial", "negative_binomial", {"k": 1, "p": 1.0}),
    ("generalized_negative_binomial", "generalized_negative_binomial", {"mu": 1.0, "alpha": 1.0}),
]


def _distribution(name: str, suffix: str, defaults: dict[str, float]) -> Any:
    order = [*defaults, "shape", "dtype"]

    def run(*args: Any, **kwargs: Any) -> Symbol:
        if len(args) > len(order):
            raise TypeError(f"{name}() takes at most {len(order)} positional arguments")
        given = {**defaults, **dict(zip(order, args, strict=False)), **kwargs}
        symbol_name, attr = given.pop("name", None), given.pop("attr", None)
        given = {k: v for k, v in given.items() if v is not None}
        if name == "exponential":  # the operator takes the rate
            given = {"lam": _rate(given.pop("scale")), **given}
        parameters = list(given)[: len(defaults)]
        symbols = [given[k] for k in parameters if isinstance(given[k], Symbol)]
        if not symbols:
            op = f"_random_{suffix}"
            return create(op, op, [], {}, given, symbol_name, attr)
        if len(symbols) != len(defaults):
            raise ValueError(
                f"{name}: invalid parameters {shown(given)}: expected all numbers or all symbols"
            )
        params = {k: v for k, v in given.items() if k not in parameters}
        op = f"_sample_{suffix}"
        return create(op, op, symbols, {}, params, symbol_name, attr)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"""Draws from the {name} distribution with the parameters {", ".join(defaults)}.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.random.{name}(shape=(2, 3)).eval()[0].shape
    (2, 3)
    """
    return run


for _name, _suffix, _defaults in _DISTRIBUTIONS:
    globals()[_name] = _distribution(_name, _suffix, _defaults)


def randn(
    *shape: int, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = None, **kwargs: Any
) -> Symbol:
    """Normally distributed numbers of the given shape.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.random.randn(2, 3).eval()[0].shape
    (2, 3)
    """
    made: Symbol = globals()["normal"](loc, scale, shape, dtype, **kwargs)
    return made


def randint(low: int, high: int, shape: Any = None, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Integers in `[low, high)`.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.random.randint(0, 10, (2, 3)).eval()[0].shape
    (2, 3)
    """
    made: Symbol = _named("randint")(
        low=low, high=high, shape=(1,) if shape is None else shape, dtype=dtype or "int32", **kwargs
    )
    return made


def multinomial(
    data: Symbol, shape: Any = None, get_prob: bool = True, dtype: Any = "int32", **kwargs: Any
) -> Symbol:
    """Draws of class numbers from the distributions in `data`'s last axis.

    Examples
    --------
    >>> from rsnet import nd, sym
    >>> sym.random.multinomial(sym.Variable("p")).eval(p=nd.array([[0, 1], [1, 0]]))[0].asnumpy()
    array([1, 0], dtype=int32)
    """
    params = {"get_prob": get_prob, "dtype": dtype} | ({"shape": shape} if shape else {})
    return function("_sample_multinomial")(data, **params, **kwargs)


def shuffle(data: Symbol, **kwargs: Any) -> Symbol:
    """The rows in random order.

    Examples
    --------
    >>> from rsnet import nd, sym
    >>> sym.random.shuffle(sym.Variable("x")).eval(x=nd.array([1, 1]))[0].asnumpy()
    array([1., 1.], dtype=float32)
    """
    return function("_shuffle")(data, **kwargs)


def _named(name: str) -> Any:
    for candidate in (f"_random_{name}", f"_sample_{name}", f"random_{name}"):
        if registry.version(candidate) is not None:
            return function(candidate)
    raise AttributeError(f"module 'rsnet.symbol.random' has no attribute '{name}'")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _named(name)


def __dir__() -> list[str]:
    prefix = "_random_"
    made = [name.removeprefix(prefix) for name in registry.names() if name.startswith(prefix)]
    return sorted({*globals(), *made})
