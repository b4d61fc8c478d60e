"""Samplers: ``nd.random``. Parameters are all numbers (one distribution) or all arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .. import _core
from .._core import NDArray
from ..base import _Null, numpy_dtype, refuse_keywords, shown
from ..context import Context, as_context
from . import _register
from ._creation import _extents, empty

__all__ = [
    "exponential",
    "gamma",
    "generalized_negative_binomial",
    "multinomial",
    "negative_binomial",
    "normal",
    "poisson",
    "randint",
    "randn",
    "shuffle",
    "uniform",
]


def _given(value: Any, default: Any = None) -> Any:
    return default if value is None or value is _Null else value


def _invoke(name: str, inputs: list[Any], params: list[tuple[str, Any]], out: Any) -> Any:
    """Runs an operator; the result is `out`, an array or a list of them, if that is given."""
    if out is None:
        return _core.invoke(name, inputs, params)
    _core.invoke(name, inputs, params, out if isinstance(out, (list, tuple)) else [out])
    return out


def _sample(
    name: str,
    params: dict[str, Any],
    shape: Any,
    dtype: Any,
    ctx: Context | str | None,
    out: Any,
    more: dict[str, Any],
) -> Any:
    """Calls `_random_<name>` for numbers and `_sample_<name>` for arrays; refuses `more`."""
    if more:
        refuse_keywords(name, more, ", ".join((*params, "shape, dtype, ctx, out")))
    shape, dtype = _given(shape), _given(dtype)
    target = out[0] if isinstance(out, (list, tuple)) else out
    arrays = [isinstance(v, NDArray) for v in params.values()]
    if any(arrays):
        if not all(arrays):
            raise AssertionError(
                f"{name}: invalid parameters {list(params.values())}: expected numbers or arrays "
                "only"
            )
        given = [("shape", shape if shape is not None else ())]
        if dtype is not None:
            given.append(("dtype", numpy_dtype(dtype).name))
        return _invoke(f"_sample_{name}", list(params.values()), given, out)
    if shape is None:
        shape = (1,) if out is None else target.shape
    elif out is None and _core.is_np_shape():
        # Extents that a parameter of an operator cannot say: none, and 0.
        extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if not extents or 0 in extents:
            drawn = _sample(name, params, (1,), dtype, ctx, None, {})
            return empty(extents, drawn.context, drawn.dtype) if extents else drawn.reshape(())
    elif out is None:
        shape = _extents(shape, zero_is_unknown=True)
    given = [*params.items(), ("shape", shape)]
    if dtype is not None:
        given.append(("dtype", numpy_dtype(dtype).name))
    elif out is not None:
        given.append(("dtype", np.dtype(target.dtype).name))
    if ctx is None:
        return _invoke(f"_random_{name}", [], given, out)
    with as_context(ctx):
        return _invoke(f"_random_{name}", [], given, out)


def uniform(
    low: Any = 0,
    high: Any = 1,
    shape: Any = _Null,
    dtype: Any = _Null,
    ctx: Context | str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> Any:
    """Samples of the uniform distribution on ``[low, high)``.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.uniform(-1, 1, (2, 3)).shape
    (2, 3)
    """
    return _sample("uniform", {"low": low, "high": high}, shape, dtype, ctx, out, kwargs)


def normal(
    loc: Any = 0,
    scale: Any = 1,
    shape: Any = _Null,
    dtype: Any = _Null,
    ctx: Context | str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> Any:
    """Samples of the normal distribution of mean `loc` and standard deviation `scale`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.normal(0, 2, (2, 3)).shape
    (2, 3)
    >>> nd.random.normal(nd.array([0, 10]), nd.array([1, 1]), 4).shape
    (2, 4)
    """
    return _sample("normal", {"loc": loc, "scale": scale}, shape, dtype, ctx, out, kwargs)


def randn(*shape: Any, **kwargs: Any) -> Any:
    """Samples of the normal distribution, the shape given as arguments.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.randn(2, 3, scale=2).shape
    (2, 3)
    """
    loc, scale = kwargs.pop("loc", 0), kwargs.pop("scale", 1)
    return normal(loc, scale, shape or (1,), **kwargs)


def gamma(
    alpha: Any = 1,
    beta: Any = 1,
    shape: Any = _Null,
    dtype: Any = _Null,
    ctx: Context | str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> Any:
    """Samples of the gamma distribution of shape `alpha` and scale `beta`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.gamma(2, 0.5, (2, 3)).shape
    (2, 3)
    """
    return _sample("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, ctx, out, kwargs)


def _rate(scale: Any) -> Any:
    """The rate of an exponential distribution of mean `scale`, which its operator takes."""
    try:
        return 1.0 / scale
    except (TypeError, ZeroDivisionError):
        raise ValueError(f"invalid scale {shown(scale)}: expected a number above 0") from None


def exponential(
    scale: Any = 1,
    shape: Any = _Null,
    dtype: Any = _Null,
    ctx: Context | str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> Any:
    """Samples of the exponential distribution of mean `scale`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.exponential(3, (2, 3)).shape
    (2, 3)
    """
    return _sample("exponential", {"lam": _rate(scale)}, shape, dtype, ctx, out, kwargs)


def poisson(
    lam: Any = 1,
    shape: Any = _Null,
    dtype: Any = _Null,
    ctx: Context | str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> Any:
    """Samples of the Poisson distribution of mean `lam`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.poisson(4, (2, 3)).shape
    (2, 3)
    """
    return _sample("poisson", {"lam": lam}, shape, dtype, ctx, out, kwargs)


def negative_binomial(
    k: Any = 1,
    p: Any = 1,
    shape: Any = _Null,
    dtype: Any = _Null,
    ctx: Context | str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> Any:
    """Failures before `k` successes of probability `p`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.negative_binomial(3, 0.5, (2, 3)).shape
    (2, 3)
    """
    return _sample("negative_binomial", {"k": k, "p": p}, shape, dtype, ctx, out, kwargs)


def generalized_negative_binomial(
    mu: Any = 1,
    alpha: Any = 1,
    shape: Any = _Null,
    dtype: Any = _Null,
    ctx: Context | str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> Any:
    """Samples of the negative binomial distribution of mean `mu` and dispersion `alpha`.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.generalized_negative_binomial(2, 0.5, (2, 3)).shape
    (2, 3)
    """
    params = {"mu": mu, "alpha": alpha}
    return _sample("generalized_negative_binomial", params, shape, dtype, ctx, out, kwargs)


def randint(
    low: Any,
    high: Any,
    shape: Any = _Null,
    dtype: Any = _Null,
    ctx: Context | str | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> Any:
    """Integers of ``[low, high)``, int32 by default.

    Examples
    --------
    >>> from rsnet import nd
    >>> import numpy as np
    >>> drawn = nd.random.randint(0, 10, (2, 3))
    >>> drawn.dtype is np.int32, bool((drawn.asnumpy() < 10).all())
    (True, True)
    """
    if isinstance(low, NDArray) or isinstance(high, NDArray):
        raise ValueError("randint: invalid low or high, an NDArray: expected numbers")
    if _given(dtype) is None and out is None:
        dtype = "int32"
    return _sample("randint", {"low": low, "high": high}, shape, dtype, ctx, out, kwargs)


def multinomial(
    data: NDArray,
    shape: Any = _Null,
    get_prob: bool = False,
    out: NDArray | list[NDArray] | None = None,
    dtype: Any = "int32",
    **kwargs: Any,
) -> Any:
    """Indices drawn with the probabilities in the last axis of `data`; with `get_prob` a list of
    them and of the logarithms of their probabilities.

    Examples
    --------
    >>> from rsnet import nd
    >>> nd.random.multinomial(nd.array([[0, 1], [1, 0]])).asnumpy()
    array([1, 0], dtype=int32)
    """
    if kwargs:
        refuse_keywords("multinomial", kwargs, "data, shape, get_prob, out, dtype")
    params = [("get_prob", get_prob), ("dtype", dtype)]
    if _given(shape) is not None:
        params.append(("shape", shape))
    return _invoke("_sample_multinomial", [data], params, out)


def shuffle(data: NDArray, out: NDArray | None = None, **kwargs: Any) -> Any:
    """The rows of `data` in random order; with ``out=data`` in place.

    Examples
    --------
    >>> from rsnet import nd
    >>> sorted(nd.random.shuffle(nd.array([1, 2, 3])).asnumpy().tolist())
    [1.0, 2.0, 3.0]
    """
    if kwargs:
        refuse_keywords("shuffle", kwargs, "data, out")
    return _invoke("_shuffle", [data], [], out)


def __getattr__(name: str) -> Any:
    """Samplers in the shape of an array, which are operators: ``uniform_like`` and so on."""
    return _register.get(sys.modules[__name__], "random", name)


def __dir__() -> list[str]:
    return _register.names(sys.modules[__name__], "random")
