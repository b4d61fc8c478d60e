"""Defaults and comparison of arrays, with tolerances by dtype (the looser of both operands)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import context as _context
from ..ndarray import NDArray

_default_ctx: list[Any] = [None]

_RTOL = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-5}
_ATOL = {"float16": 1e-1, "float32": 1e-3, "float64": 1e-20}
_EPS = {"float16": 2.0**-6, "float32": 2.0**-9, "float64": 2.0**-14}
_EXACT = ("bool", "int8", "uint8", "int32", "int64")


def _table(floats: dict[str, float]) -> dict[np.dtype, float]:
    return {np.dtype(k): v for k, v in floats.items()} | {np.dtype(k): 0.0 for k in _EXACT}


def default_rtols() -> dict[np.dtype, float]:
    """Relative tolerance by dtype."""
    return _table(_RTOL)


def default_atols() -> dict[np.dtype, float]:
    """Absolute tolerance by dtype."""
    return _table(_ATOL)


def default_numeric_eps() -> dict[np.dtype, float]:
    """Width of finite differences by dtype."""
    return {np.dtype(k): v for k, v in _EPS.items()}


def default_context() -> Any:
    """What `set_default_context` set, else the current context."""
    return _default_ctx[0] or _context.current_context()


def set_default_context(ctx: Any) -> None:
    """Sets the context that the checks here use."""
    _default_ctx[0] = ctx


def default_dtype() -> type:
    """float32."""
    return np.float32


def _host(x: Any) -> np.ndarray:
    return x.asnumpy() if hasattr(x, "asnumpy") else np.asarray(x)


def _tolerance(given: Any, table: dict[str, float], a: np.ndarray, b: np.ndarray) -> float:
    """`given`, or by dtype: the looser of the two."""
    by_dtype = given if isinstance(given, dict) else table
    if given is None or isinstance(given, dict):
        known = {np.dtype(k): v for k, v in by_dtype.items()}
        return max(known.get(a.dtype, 0.0), known.get(b.dtype, 0.0))
    return float(given)


def same(a: Any, b: Any) -> bool:
    """Are the arrays exactly equal?"""
    return np.array_equal(_host(a), _host(b))


def almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
    threshold: float | None = None,
) -> bool:
    """Is |a - b| <= atol + rtol * |b| everywhere? With `threshold`, is `reldiff` no greater?"""
    if threshold is not None:
        return reldiff(a, b) <= threshold
    a, b = _host(a), _host(b)
    if not use_broadcast and a.shape != b.shape:
        return False
    rtol, atol = _tolerance(rtol, _RTOL, a, b), _tolerance(atol, _ATOL, a, b)
    return bool(np.allclose(_wide(a), _wide(b), rtol=rtol, atol=atol, equal_nan=equal_nan))


def _wide(x: np.ndarray) -> np.ndarray:
    """Enough precision that comparing adds no error of its own."""
    return x.astype("float64") if x.dtype.kind == "f" else x.astype("int64")


def _violations(a: np.ndarray, b: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> Any:
    """|a - b| / (atol + rtol |b|) element by element; inf where only one is nan, or b is infinite
    and a is not b.
    """
    a, b = np.broadcast_arrays(_wide(a), _wide(b))
    with np.errstate(all="ignore"):
        ratio = np.abs(a - b) / (atol + rtol * np.abs(b) + 1e-300)
    ratio = np.where(np.isinf(b), np.inf, ratio)  # there it would be inf / inf
    ratio = np.where(a == b, 0.0, ratio)
    nans = np.isnan(a) | np.isnan(b)
    agree = np.isnan(a) & np.isnan(b) & equal_nan
    return np.where(nans, np.where(agree, 0.0, np.inf), ratio)


def checkShapes(a: Any, b: Any) -> None:
    """An error unless both arrays have one shape."""
    if a.shape != b.shape:
        raise AssertionError(
            f"Items are not equal: a.shape = {a.shape} and b.shape = {b.shape} are not equal\n"
            f" ACTUAL: {a!r}\n DESIRED: {b!r}"
        )


def locationError(
    a: Any, b: Any, index: Any, names: tuple[str, str], maxError: bool = False
) -> str:
    """Says what both arrays, called `names`, have at `index`."""
    which = "Location of maximum error" if maxError else "Location of error"
    left, right = float(a[index].item()), float(b[index].item())
    return f"{which}: {index}, {names[0]}={left:.8f}, {names[1]}={right:.8f}"


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
    threshold: float | None = None,
) -> None:
    """Asserts |a - b| <= atol + rtol * |b|; with `threshold`, as older versions, a bound on
    `reldiff`.

    Raises
    ------
    AssertionError
        With the largest violation, where it is, and up to `mismatches[1]` places that differ.
    """
    if threshold is not None:
        diff = reldiff(a, b)
        # Not `diff > threshold`, which a nan would pass.
        if not diff <= threshold:
            raise AssertionError(f"{names[0]} and {names[1]}: reldiff {diff} exceeds {threshold}")
        return
    assert_almost_equal_with_err(
        a, b, rtol, atol, 0.0, names, equal_nan, mismatches, use_broadcast=use_broadcast
    )


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    etol: float = 0.0,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    mismatches: tuple[int, int] = (10, 10),
    use_broadcast: bool = True,
) -> None:
    """`assert_almost_equal`, except that a share `etol` of the elements may differ."""
    a, b = _host(a), _host(b)
    if not use_broadcast and a.shape != b.shape:
        raise AssertionError(f"{names[0]} has shape {a.shape}, {names[1]} {b.shape}")
    rtol, atol = _tolerance(rtol, _RTOL, a, b), _tolerance(atol, _ATOL, a, b)
    ratio = _violations(a, b, rtol, atol, equal_nan)
    wrong = np.argwhere(ratio > 1)
    if len(wrong) <= etol * ratio.size:
        return
    wide_a, wide_b = np.broadcast_arrays(a, b)
    order = sorted(map(tuple, wrong.tolist()), key=lambda i: -ratio[i])
    worst = order[0]
    places = "\n".join(
        f"  {i}: {names[0]}={wide_a[i]!r} {names[1]}={wide_b[i]!r}" for i in order[: mismatches[1]]
    )
    raise AssertionError(
        f"Error {ratio[worst]:f} exceeds tolerance rtol={rtol:e}, atol={atol:e} "
        f"(mismatch {100 * len(wrong) / ratio.size:f}%).\nLocation of maximum error: {worst}, "
        f"{names[0]}={wide_a[worst]!r}, {names[1]}={wide_b[worst]!r}\n{places}"
    )


def _without_nans(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.copy(_host(a)), np.copy(_host(b))
    nans = np.isnan(a) | np.isnan(b)
    a[nans] = 0
    b[nans] = 0
    return a, b


def almost_equal_ignore_nan(a: Any, b: Any, rtol: Any = None, atol: Any = None) -> bool:
    """`almost_equal`, a nan in either being equal to anything."""
    return almost_equal(*_without_nans(a, b), rtol, atol)


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, names: tuple[str, str] = ("a", "b")
) -> None:
    """`assert_almost_equal`, a nan in either being equal to anything."""
    assert_almost_equal(*_without_nans(a, b), rtol, atol, names)


def assert_allclose(
    a: Any, b: Any, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True
) -> None:
    """NumPy's `assert_allclose`, for our arrays too."""
    np.testing.assert_allclose(_host(a), _host(b), rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_exception(
    f: Callable[..., Any], exception_type: type[BaseException], *args: Any, **kwargs: Any
) -> None:
    """Asserts that `f(*args, **kwargs)` raises that type."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{f} did not raise {exception_type.__name__}")


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """Do the arrays share memory? Adds 1 to one, looks at the other, and takes it back."""
    if array1.shape != array2.shape:
        return False
    array1[:] = array1 + 1
    moved = same(array1, array2)
    array1[:] = array1 - 1
    return moved and same(array1, array2)


def same_symbol_structure(sym1: Any, sym2: Any) -> bool:
    """Have the symbols the same operators and wiring, names ignored?"""

    def shape_of(sym: Any) -> list[tuple[str, list[Any]]]:
        graph = json.loads(sym.tojson())
        return [(n["op"], [i[:2] for i in n["inputs"]]) for n in graph["nodes"]]

    return shape_of(sym1) == shape_of(sym2)


def reldiff(a: Any, b: Any) -> float:
    """sum|a - b| / (sum|a| + sum|b|), the measure of older versions."""
    a, b = _host(a), _host(b)
    total = np.abs(a).sum() + np.abs(b).sum()
    diff = np.abs(a - b).sum()
    return float(diff / total) if diff else 0.0
