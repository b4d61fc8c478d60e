"""Symbolic programming: `rsnet.sym`.

Every operator of the registry is a function here, made at its first use: of Symbols it makes a
Symbol. `random`, `linalg`, `contrib`, `image`, `sparse`, `op` and `_internal` are
namespaces of the same functions.

Examples
--------
>>> import rsnet as mx
>>> x = mx.sym.Variable("x")
>>> mx.sym.FullyConnected(x, num_hidden=3, name="fc").list_arguments()
['x', 'fc_weight', 'fc_bias']
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._fluent import add_fluent as _add_fluent
from .._missing_operators import why_missing_in as _why_missing_in
from .._numbers import whole_numbers as _whole_numbers
from .._on_demand import import_on_demand as _import_on_demand
from .._operators import registry as _registry
from ..base import _Null  # noqa: F401  the default that signatures name
from . import operators as _operators  # adds arithmetic to Symbol
from .register import create as _create
from .register import function as _function
from .symbol import Group, Symbol, Variable, fromjson, load, load_json, var

if TYPE_CHECKING:  # stubs of what `__getattr__` makes
    from .op import *  # noqa: F403

__all__ = ["Group", "Symbol", "Variable", "fromjson", "load", "load_json", "var"]


# Of `contrib` beside operators, with their modules; loaded at first use.
_WRITTEN = dict.fromkeys(("cond", "foreach", "while_loop"), "_control_flow")
_WRITTEN |= dict.fromkeys(("adamw_update", "mp_adamw_update", "rand_zipfian"), "_contrib")


class _Namespace(ModuleType):
    """The operators whose names begin with one of some prefixes, under their short names."""

    def __init__(self, name: str, prefixes: tuple[str, ...]) -> None:
        super().__init__(f"rsnet.symbol.{name}")
        self.__dict__["_prefixes"] = prefixes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = self.__name__.rpartition(".")[2]
        if name in _WRITTEN and namespace == "contrib":
            found = getattr(_import_on_demand(f"{__package__}.{_WRITTEN[name]}"), name)
            setattr(self, name, found)
            return found
        for prefix in self._prefixes:
            if _registry.version(prefix + name) is not None:
                return _function(prefix + name)
        text = f"{self.__name__} has no operator '{name}'"
        raise AttributeError(_why_missing_in(namespace, name) or text)

    def __dir__(self) -> list[str]:
        names = [name for name in vars(self) if not name.startswith("_")]
        names += _WRITTEN if self.__name__.endswith(".contrib") else ()
        names += [
            name[len(prefix) :]
            for name in _registry.names()
            for prefix in self._prefixes
            if name.startswith(prefix) and len(name) > len(prefix)
        ]
        return sorted(set(names))


_NAMESPACES = {
    "op": ("",),
    "_internal": ("_", ""),
    "contrib": ("_contrib_",),
    "linalg": ("_linalg_", "linalg_"),
    "image": ("_image_",),
    "sparse": ("_sparse_", ""),
}
for _name, _prefixes in _NAMESPACES.items():
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _Namespace(_name, _prefixes)

from . import random  # noqa: E402, F401


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _function(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_registry.names()})


def zeros(shape: Any, dtype: Any = None, name: str | None = None, **kwargs: Any) -> Symbol:
    """A symbol of zeros.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.zeros((2,)).eval()[0].asnumpy()
    array([0., 0.], dtype=float32)
    """
    return _create("_zeros", "_zeros", [], {}, _created(shape, dtype, kwargs), name)


def ones(shape: Any, dtype: Any = None, name: str | None = None, **kwargs: Any) -> Symbol:
    """A symbol of ones.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.ones((2,)).eval()[0].asnumpy()
    array([1., 1.], dtype=float32)
    """
    return _create("_ones", "_ones", [], {}, _created(shape, dtype, kwargs), name)


def full(
    shape: Any, val: float, dtype: Any = None, name: str | None = None, **kwargs: Any
) -> Symbol:
    """A symbol filled with `val`.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.full((2,), 7).eval()[0].asnumpy()
    array([7., 7.], dtype=float32)
    """
    params = _created(shape, dtype, kwargs) | {"value": float(val)}
    return _create("_full", "_full", [], {}, params, name)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    name: str | None = None,
    dtype: Any = None,
) -> Symbol:
    """Evenly spaced values in `[start, stop)`, each `repeat` times.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.arange(0, 4, 2).eval()[0].asnumpy()
    array([0., 2.], dtype=float32)
    """
    params = {"start": start, "stop": stop, "step": step, "repeat": repeat}
    params |= {"infer_range": infer_range, "dtype": dtype or np.float32}  # type: ignore[dict-item]
    return _create("_arange", "_arange", [], {}, params, name)


def eye(N: int, M: int = 0, k: int = 0, **kwargs: Any) -> Symbol:
    """A matrix with ones on the `k`-th diagonal; `M` = 0 means `N` columns.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.eye(2).eval()[0].asnumpy()
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return _function("_eye")(N=N, M=M, k=k, **kwargs)


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    name: str | None = None,
    dtype: Any = None,
) -> Symbol:
    """`num` evenly spaced values from `start` to `stop`, which is left out without `endpoint`.

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.linspace(0, 1, 3).eval()[0].asnumpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    params = {"start": start, "stop": stop, "num": num, "endpoint": endpoint}
    return _create("_linspace", "_linspace", [], {}, params | {"dtype": dtype or np.float32}, name)


def split_v2(
    ary: Symbol, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False
) -> Symbol:
    """Parts along `axis`: a number of equal ones, or cut before the given indices.

    Examples
    --------
    >>> from rsnet import sym
    >>> halves = sym.split_v2(sym.Variable("x"), 2)
    >>> halves.infer_shape(x=(4, 3))[1]
    [(2, 3), (2, 3)]
    """
    if isinstance(indices_or_sections, int):
        cuts = {"indices": (), "sections": indices_or_sections}
    else:
        cuts = {"indices": (0, *_whole_numbers(indices_or_sections, "indices_or_sections"))}
    params = {"axis": axis, "squeeze_axis": squeeze_axis, **cuts}
    return _create("_split_v2", "_split_v2", [ary], {}, params)


def histogram(a: Symbol, bins: Any = 10, range: Any = None, **kwargs: Any) -> Symbol:
    """Counts of values in bins, and the edges of the bins.

    Parameters
    ----------
    a : Symbol
    bins : Symbol or int
        The edges, or the number of bins of equal width.
    range : (float, float)
        The first and the last edge, where `bins` is a number.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet import sym
    >>> counts = sym.histogram(sym.Variable("x"), bins=2, range=(0, 4))[0]
    >>> counts.eval(x=mx.nd.array([0, 1, 1, 4]))[0].asnumpy()
    array([3, 1])
    """
    if isinstance(bins, Symbol):
        return _function("_histogram")(a, bins, **kwargs)
    if range is None:
        raise ValueError(
            f"histogram: invalid range None: expected (first, last), as bins is {bins!r}"
        )
    return _function("_histogram")(a, bin_cnt=bins, range=range, **kwargs)


def _created(shape: Any, dtype: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return {"shape": shape, "dtype": dtype or np.float32, **kwargs}


def _operand(function: str, numbers: Any, doc: str, example: str) -> Any:
    """A function of two symbols, a symbol and a number in any order, or two numbers; `example` is
    what it makes of 0, 4 and 3.
    """
    op, _, scalar, reverse = _core.binary_operators(symbol=True)[function]

    def run(left: Any, right: Any, name: str | None = None) -> Any:
        if isinstance(left, Symbol) and isinstance(right, Symbol):
            return _create(op, op.lower(), [left, right], {}, {}, name)
        if isinstance(left, Symbol) and np.isscalar(right):
            return _create(scalar, scalar.lower(), [left], {}, {"scalar": right}, name)
        if isinstance(right, Symbol) and np.isscalar(left):
            return _create(reverse, reverse.lower(), [right], {}, {"scalar": left}, name)
        if np.isscalar(left) and np.isscalar(right):
            return numbers(left, right)
        raise TypeError(
            f"types ({type(left)}, {type(right)}) not supported: expected Symbols or numbers"
        )

    run.__name__ = run.__qualname__ = function
    run.__doc__ = f"""{doc} of symbols and numbers; two numbers give a number.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.sym.{function}(mx.sym.Variable("x"), 3).eval(x=mx.nd.array([0, 4]))[0].asnumpy()
    array([{example}], dtype=float32)
    """
    return run


_power = _operand("power", lambda a, b: a**b, "Power", " 0., 64.")


def power(base: Any, exp: Any, name: str | None = None) -> Any:
    """Power of symbols and numbers; two numbers give a number.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet import sym
    >>> sym.power(sym.Variable("x"), 2).eval(x=mx.nd.array([1, 2, 3]))[0].asnumpy()
    array([1., 4., 9.], dtype=float32)
    """
    return _power(base, exp, name)


pow = power
maximum = _operand("maximum", lambda a, b: max(a, b), "The greater value", "3., 4.")
minimum = _operand("minimum", lambda a, b: min(a, b), "The lesser value", "0., 3.")
hypot = _operand("hypot", np.hypot, "Hypotenuse", "3., 5.")


_add_fluent(Symbol, sys.modules[__name__], _operators.FLUENT)
