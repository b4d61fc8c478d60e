"""Helpers for tests of operators and models: comparison, gradient checks, random data.

Tolerances come from the dtypes of both operands, the looser one counting. The gradient checks
bind a symbol, run it, and compare with expectations or with central finite differences.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random as _random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import context as _context
from . import ndarray as nd
from . import symbol as sym_module
from .ndarray import NDArray

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
) -> bool:
    """Is |a - b| <= atol + rtol * |b| everywhere?"""
    a, b = _host(a), _host(b)
    if not use_broadcast and a.shape != b.shape:
        return False
    rtol, atol = _tolerance(rtol, _RTOL, a, b), _tolerance(atol, _ATOL, a, b)
    return bool(np.allclose(_wide(a), _wide(b), rtol=rtol, atol=atol, equal_nan=equal_nan))


def _wide(x: np.ndarray) -> np.ndarray:
    """Enough precision that comparing adds no error of its own."""
    return x.astype("float64") if x.dtype.kind == "f" else x.astype("int64")


def _violations(a: np.ndarray, b: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> Any:
    """|a - b| / (atol + rtol |b|) element by element; inf where only one is nan."""
    a, b = np.broadcast_arrays(_wide(a), _wide(b))
    with np.errstate(all="ignore"):
        ratio = np.abs(a - b) / (atol + rtol * np.abs(b) + 1e-300)
    ratio = np.where(a == b, 0.0, ratio)
    nans = np.isnan(a) | np.isnan(b)
    agree = np.isnan(a) & np.isnan(b) & equal_nan
    return np.where(nans, np.where(agree, 0.0, np.inf), ratio)


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Asserts |a - b| <= atol + rtol * |b|.

    Raises
    ------
    AssertionError
        With the largest violation, where it is, and up to `mismatches[1]` places that differ.
    """
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
    f: Callable[..., Any], exception_type: type, *args: Any, **kwargs: Any
) -> None:
    """Asserts that `f(*args, **kwargs)` raises that type."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{f} did not raise {exception_type.__name__}")


def same_array(a: NDArray, b: NDArray) -> bool:
    """Do the arrays share memory? Adds 1 to one, looks at the other, and takes it back."""
    if a.shape != b.shape:
        return False
    a[:] = a + 1
    moved = same(a, b)
    a[:] = a - 1
    return moved and same(a, b)


def same_symbol_structure(sym1: Any, sym2: Any) -> bool:
    """Have the symbols the same operators and wiring, names ignored?"""

    def shape_of(sym: Any) -> list[tuple[str, list[Any]]]:
        import json

        graph = json.loads(sym.tojson())
        return [(n["op"], [i[:2] for i in n["inputs"]]) for n in graph["nodes"]]

    return shape_of(sym1) == shape_of(sym2)


# ---- checks of operators -------------------------------------------------------------------------


def _named(given: Any, names: list[str], what: str) -> dict[str, Any]:
    if isinstance(given, dict):
        if set(given) != set(names):
            raise ValueError(f"{what} has the names {sorted(given)}, the symbol {sorted(names)}")
        return {n: given[n] for n in names}
    if len(given) != len(names):
        raise ValueError(f"{what} has {len(given)} values for the names {names}")
    return dict(zip(names, given, strict=True))


def _arrays(given: Any, names: list[str], what: str, ctx: Any, dtype: Any) -> dict[str, NDArray]:
    """NDArrays by name; `dtype` "asnumpy" keeps each array's own."""
    out = {}
    for name, value in _named(given, names, what).items():
        host = _host(value)
        wanted = host.dtype if isinstance(dtype, str) and dtype == "asnumpy" else dtype
        out[name] = nd.array(host, ctx=ctx, dtype=wanted)
    return out


def _aux(sym: Any, aux_states: Any, ctx: Any, dtype: Any) -> dict[str, NDArray]:
    names = sym.list_auxiliary_states()
    if aux_states is None:
        return {}
    return _arrays(aux_states, names, "aux_states", ctx, dtype)


def check_symbolic_forward(
    sym: Any,
    location: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    ctx: Any = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> list[NDArray]:
    """Compares the outputs of `forward(is_train=False)` with `expected`.

    Parameters
    ----------
    sym : Symbol
    location : list or dict
        Argument values in `list_arguments()` order or by name.
    expected : list or dict
        Outputs in order or by name.

    Returns
    -------
    list of NDArray
        The outputs.
    """
    ctx = ctx or default_context()
    args = _arrays(location, sym.list_arguments(), "location", ctx, dtype)
    grads = {k: nd.zeros(v.shape, ctx=ctx, dtype=v.dtype) for k, v in args.items()}
    exe = sym.bind(ctx, args=args, args_grad=grads, aux_states=_aux(sym, aux_states, ctx, dtype))
    outputs = exe.forward(is_train=False)
    for (name, value), out in zip(
        _named(expected, sym.list_outputs(), "expected").items(), outputs, strict=True
    ):
        assert_almost_equal(
            out, value, rtol, atol, (f"EXPECTED_{name}", f"FORWARD_{name}"), equal_nan
        )
    return outputs


def _check_gradient(
    name: str, req: str, got: Any, expected: Any, before: Any, rtol: Any, atol: Any, nan: bool
) -> None:
    wanted = {"null": before, "write": expected}.get(req, _host(expected) + before)
    assert_almost_equal(got, wanted, rtol, atol, (f"GRAD_{name}", f"EXPECTED_{name}"), nan)


def check_symbolic_backward(
    sym: Any,
    location: Any,
    out_grads: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    grad_req: Any = "write",
    ctx: Any = None,
    grad_stypes: Any = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> list[NDArray]:
    """Compares the gradients of `backward(out_grads)` with `expected`, by their requests.

    The gradient arrays hold random values before: 'write' replaces them, 'add' adds to them,
    'null' leaves them.

    Returns
    -------
    list of NDArray
        The gradient arrays.
    """
    ctx = ctx or default_context()
    names = sym.list_arguments()
    args = _arrays(location, names, "location", ctx, dtype)
    if isinstance(expected, (list, tuple)):
        expected = dict(zip(names, expected, strict=False))
    before = {k: np.random.normal(size=args[k].shape) for k in expected}
    grads = {k: nd.array(v, ctx=ctx, dtype=args[k].dtype) for k, v in before.items()}
    before = {k: v.asnumpy() for k, v in grads.items()}
    if isinstance(grad_req, str):
        reqs = {k: grad_req if k in expected else "null" for k in names}
    else:
        given = grad_req if isinstance(grad_req, dict) else dict(zip(names, grad_req, strict=True))
        reqs = {k: given.get(k, "null") for k in names}
    aux = _aux(sym, aux_states, ctx, dtype)
    exe = sym.bind(ctx, args=args, args_grad=grads, aux_states=aux, grad_req=reqs)
    exe.forward(is_train=True)
    if out_grads is None:
        exe.backward()
    else:
        heads = _arrays(out_grads, sym.list_outputs(), "out_grads", ctx, dtype)
        exe.backward(list(heads.values()))
    for name, value in expected.items():
        got = exe.grad_dict[name]
        got = before[name] if got is None else got
        _check_gradient(name, reqs[name], got, value, before[name], rtol, atol, equal_nan)
    return exe.grad_arrays


def numeric_grad(
    executor: Any,
    location: dict[str, Any],
    aux_states: dict[str, Any] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = np.float32,
) -> dict[str, np.ndarray]:
    """Central finite differences of the sum of the executor's outputs, by argument name.

    Every element of every float argument is moved by `eps` / 2 to both sides.
    """

    def value() -> float:
        for name, aux in (aux_states or {}).items():
            executor.aux_dict[name][:] = nd.array(_host(aux), dtype=executor.aux_dict[name].dtype)
        outputs = executor.forward(is_train=use_forward_train)
        return sum(float(o.asnumpy().sum(dtype="float64")) for o in outputs)

    grads = {}
    for name, given in location.items():
        target = executor.arg_dict[name]
        if np.dtype(target.dtype).kind != "f":
            continue
        start = np.array(_host(given), dtype=target.dtype)
        grad = np.zeros(start.shape, dtype=dtype)
        for i in np.ndindex(*start.shape):
            sides = []
            for sign in (1, -1):
                moved = start.copy()
                moved[i] += sign * eps / 2
                target[:] = nd.array(moved, dtype=moved.dtype)
                sides.append((value(), float(moved[i])))
            (high, x_high), (low, x_low) = sides
            grad[i] = (high - low) / ((x_high - x_low) or eps)
        target[:] = nd.array(start, dtype=start.dtype)
        grads[name] = grad
    return grads


def check_numeric_gradient(
    sym: Any,
    location: Any,
    aux_states: Any = None,
    numeric_eps: float | None = None,
    rtol: Any = None,
    atol: Any = None,
    grad_nodes: Any = None,
    use_forward_train: bool = True,
    ctx: Any = None,
    grad_stype_dict: Any = None,
    dtype: Any = np.float32,
) -> None:
    """Compares an executor's gradients with finite differences.

    The scalar that is differentiated is sum(sym * R) with R uniform in [0.1, 1.1), so that errors
    of single elements do not cancel; R enters as the variable `__random_proj`.

    Parameters
    ----------
    grad_nodes : list of str or dict of str to request, optional
        Which arguments to check, all by default.
    """
    ctx = ctx or default_context()
    eps = numeric_eps if numeric_eps is not None else _EPS[np.dtype(dtype).name]
    names = sym.list_arguments()
    args = _arrays(location, names, "location", ctx, dtype)
    aux = _aux(sym, aux_states, ctx, dtype)
    if grad_nodes is None:
        grad_nodes = names
    reqs = dict(grad_nodes) if isinstance(grad_nodes, dict) else dict.fromkeys(grad_nodes, "write")
    _, out_shapes, _ = sym.infer_shape(**{k: v.shape for k, v in args.items()})
    proj = sym_module.Variable("__random_proj")
    out = sym_module.make_loss(sym_module.sum(sym * proj))
    args["__random_proj"] = nd.array(
        np.random.uniform(0.1, 1.1, size=out_shapes[0]), ctx=ctx, dtype=dtype
    )
    before = {k: np.random.normal(size=v.shape).astype(v.dtype) for k, v in args.items()}
    grads = {k: nd.array(before[k], ctx=ctx, dtype=args[k].dtype) for k in reqs}
    exe = out.bind(ctx, args=args, args_grad=grads, aux_states=aux, grad_req=reqs)
    exe.forward(is_train=True)
    exe.backward()
    got = {k: exe.grad_dict[k].asnumpy() for k in reqs if exe.grad_dict[k] is not None}
    start = {k: v.asnumpy() for k, v in args.items() if k in reqs}
    aux_start = {k: v.asnumpy() for k, v in _aux(sym, aux_states, ctx, dtype).items()}
    numeric = numeric_grad(exe, start, aux_start, eps, use_forward_train, dtype="float64")
    for name, req in reqs.items():
        if name in numeric and name in got:
            _check_gradient(
                name, req, got[name], numeric[name].astype(dtype), before[name], rtol, atol, False
            )


def check_consistency(
    sym: Any,
    ctx_list: list[dict[str, Any]],
    scale: float = 1.0,
    grad_req: str = "write",
    arg_params: dict[str, Any] | None = None,
    aux_params: dict[str, Any] | None = None,
    rtol: Any = None,
    atol: Any = None,
    raise_on_err: bool = True,
    ground_truth: dict[str, np.ndarray] | None = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = np.float64,
) -> dict[str, np.ndarray]:
    """Runs one symbol (or one each) in several settings with the same data, and compares.

    Each setting is a dict of `ctx`, input shapes by name and optionally `type_dict`. The run with
    the highest precision is the truth. Returns the truth: outputs and gradients by name.
    """
    syms = list(sym) if isinstance(sym, (list, tuple)) else [sym] * len(ctx_list)
    exes = [s.simple_bind(grad_req=grad_req, **c) for s, c in zip(syms, ctx_list, strict=True)]
    shapes = {k: v.shape for k, v in exes[0].arg_dict.items()}
    draw = np.random.uniform if use_uniform else np.random.normal
    data = {}
    for name, shape in shapes.items():
        low_or_mean = -scale if use_uniform else 0.0
        data[name] = draw(low_or_mean, scale, size=shape).astype(rand_type)
    data.update({k: _host(v) for k, v in (arg_params or {}).items()})
    runs = []
    for exe in exes:
        for name, arr in exe.arg_dict.items():
            arr[:] = nd.array(data[name], dtype=arr.dtype)
        for name, arr in exe.aux_dict.items():
            arr[:] = _host((aux_params or {}).get(name, 0.0))
        heads = exe.forward(is_train=grad_req != "null")
        run = {f"output{i}": o.asnumpy() for i, o in enumerate(heads)}
        if grad_req != "null":
            exe.backward([nd.array(np.ones(o.shape), dtype=o.dtype) for o in heads])
            run |= {f"grad_{k}": g.asnumpy() for k, g in exe.grad_dict.items() if g is not None}
        runs.append(run)
    best = max(range(len(runs)), key=lambda i: runs[i]["output0"].dtype.itemsize)
    truth = ground_truth or runs[best]
    for setting, run in zip(ctx_list, runs, strict=True):
        for name, value in run.items():
            try:
                assert_almost_equal(
                    value, truth[name], rtol, atol, (name, f"truth {name}"), equal_nan
                )
            except AssertionError as error:
                if raise_on_err:
                    raise
                print(f"{setting}: {error}", file=sys.stderr)
    return truth


def check_speed(
    sym: Any,
    location: dict[str, Any] | None = None,
    ctx: Any = None,
    N: int = 20,
    grad_req: str | None = None,
    typ: str = "whole",
    **shapes: Any,
) -> float:
    """Seconds a run: forward and backward ("whole") or "forward" alone, over `N` runs."""
    if typ not in ("whole", "forward"):
        raise ValueError(f"typ is {typ!r}, expected 'whole' or 'forward'")
    ctx = ctx or default_context()
    if location is not None:
        shapes = {k: _host(v).shape for k, v in location.items()}
    req = grad_req or ("write" if typ == "whole" else "null")
    exe = sym.simple_bind(ctx, grad_req=req, **shapes)
    for name, arr in exe.arg_dict.items():
        arr[:] = nd.array(
            _host(location[name]) if location else np.random.normal(size=arr.shape), dtype=arr.dtype
        )

    def run() -> None:
        heads = exe.forward(is_train=typ == "whole")
        if typ == "whole":
            exe.backward(heads)

    run()
    nd.waitall()
    start = time.perf_counter()
    for _ in range(N):
        run()
    nd.waitall()
    return (time.perf_counter() - start) / N


def simple_forward(sym: Any, ctx: Any = None, is_train: bool = False, **inputs: Any) -> Any:
    """NumPy in, NumPy out (a list if there are several outputs)."""
    ctx = ctx or default_context()
    args = {k: nd.array(v) for k, v in inputs.items()}
    outputs = [o.asnumpy() for o in sym.bind(ctx, args=args).forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Any = None, atol: Any = None) -> None:
    """Asserts that two nests of arrays, tuples and None are almost equal."""
    if t1 is None or t2 is None:
        assert t1 is None and t2 is None, f"{t1!r} against {t2!r}"
    elif isinstance(t1, (tuple, list)):
        for s1, s2 in zip(t1, t2, strict=True):
            compare_ndarray_tuple(s1, s2, rtol, atol)
    else:
        assert_almost_equal(t1, t2, rtol, atol)


def compare_optimizer(
    opt1: Any,
    opt2: Any,
    shape: Any,
    dtype: Any,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """Gives two optimizers the same weights and gradients, and compares what they make of them."""
    for index in range(ntensors):
        weight, grad = (random_uniform_arrays(shape, low=-1.0, dtype=dtype)[0] for _ in range(2))
        w1, w2 = nd.array(weight, dtype=dtype), nd.array(weight, dtype=dtype)
        s1 = opt1.create_state_multi_precision(index, w1)
        s2 = opt2.create_state_multi_precision(index, w2)
        if compare_states:
            compare_ndarray_tuple(s1, s2, rtol, atol)
        opt1.update_multi_precision(index, w1, nd.array(grad, dtype=dtype), s1)
        opt2.update_multi_precision(index, w2, nd.array(grad, dtype=dtype), s2)
        if compare_states:
            compare_ndarray_tuple(s1, s2, rtol, atol)
        assert_almost_equal(w1, w2, rtol, atol)


# ---- random data ---------------------------------------------------------------------------------


def _extent(limit: int, allow_zero_size: bool) -> int:
    return int(np.random.randint(0 if allow_zero_size else 1, limit + 1))


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple:
    """Two extents, each uniform in 1 to its limit."""
    return _extent(dim0, allow_zero_size), _extent(dim1, allow_zero_size)


def rand_shape_3d(
    dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False
) -> tuple:
    """Three extents, each uniform in 1 to its limit."""
    return tuple(_extent(d, allow_zero_size) for d in (dim0, dim1, dim2))


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple:
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
        raise NotImplementedError(f"storage type {stype!r}: only 'default' is there")
    data = np.random.uniform(-1, 1, shape)
    if modifier_func is not None:
        data = assign_each(data, modifier_func)
    return nd.array(data, ctx=ctx, dtype=dtype or default_dtype())


def random_arrays(*shapes: tuple) -> Any:
    """Standard normal float32 arrays; one array if one shape."""
    arrays = [np.asarray(np.random.standard_normal(s), dtype="float32") for s in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(
    *shapes: tuple, low: float = 0.0, high: float = 1.0, dtype: Any = np.float32
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


def assign_each(x: np.ndarray, f: Callable[[Any], Any]) -> np.ndarray:
    """`f` of every element."""
    return np.vectorize(f)(x) if x.size else x


def assign_each2(x: np.ndarray, y: np.ndarray, f: Callable[[Any, Any], Any]) -> np.ndarray:
    """`f` of every pair of elements."""
    return np.vectorize(f)(x, y) if x.size else x


def collapse_sum_like(a: np.ndarray, shape: tuple) -> np.ndarray:
    """Sums over the axes along which `shape` would be broadcast to the shape of `a`."""
    extra = a.ndim - len(shape)
    axes = (*range(extra), *(i + extra for i, n in enumerate(shape) if n == 1))
    return a.sum(axis=axes, keepdims=True).reshape(shape)


def list_gpus() -> range:
    """Indices of the GPUs that can be used."""
    return range(_context.num_gpus() if hasattr(_context, "num_gpus") else 0)


# ---- random generators ---------------------------------------------------------------------------


def mean_check(generator: Any, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Is the mean of `generator(nsamples)` within 3 standard errors of `mu`?"""
    mean = np.mean(_host(generator(nsamples)), dtype="float64")
    return bool(abs(mean - mu) < 3 * sigma / np.sqrt(nsamples))


def var_check(generator: Any, sigma: float, nsamples: int = 1000000) -> bool:
    """Is the variance within 3 standard errors of sigma squared (for normal numbers)?"""
    var = np.var(_host(generator(nsamples)), ddof=1, dtype="float64")
    return bool(abs(var - sigma**2) < 3 * np.sqrt(2 * sigma**4 / (nsamples - 1)))


def gen_buckets_probs_with_ppf(ppf: Callable[[float], float], nbuckets: int) -> tuple[list, list]:
    """Buckets of equal probability from a quantile function: (buckets, probabilities)."""
    edges = [float(ppf(i / nbuckets)) for i in range(nbuckets + 1)]
    return list(zip(edges, edges[1:], strict=False)), [1 / nbuckets] * nbuckets


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


# ---- surroundings --------------------------------------------------------------------------------


@contextlib.contextmanager
def environment(*args: Any) -> Iterator[None]:
    """Sets environment variables for a block: `environment(name, value)` or a dict; None unsets.

    Waits for all work before it restores them.
    """
    changes = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {k: os.environ.get(k) for k in changes}

    def apply(values: dict[str, str | None]) -> None:
        for key, value in values.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value

    apply(changes)
    try:
        yield
    finally:
        nd.waitall()
        apply(before)


@contextlib.contextmanager
def discard_stderr() -> Iterator[None]:
    """Silences file descriptor 2 for a block."""
    kept = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def retry(n: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: runs a test up to `n` times while it fails with AssertionError."""
    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1")

    def deco(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            for left in range(n - 1, -1, -1):
                try:
                    return test(*args, **kwargs)
                except AssertionError:
                    if not left:
                        raise
                    nd.waitall()

        return run

    return deco


def reldiff(a: Any, b: Any) -> float:
    """sum|a - b| / (sum|a| + sum|b|), the measure of older versions."""
    a, b = _host(a), _host(b)
    total = np.abs(a).sum() + np.abs(b).sum()
    diff = np.abs(a - b).sum()
    return float(diff / total) if diff else 0.0
