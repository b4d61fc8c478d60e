"""Checks of operators: bind a symbol, run it, compare with expectations or finite differences."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from .. import symbol as sym_module
from ..ndarray import NDArray
from .compare import _EPS, _host, assert_almost_equal, default_context
from .data import random_uniform_arrays


def _named(given: Any, names: list[str], what: str) -> dict[str, Any]:
    if isinstance(given, dict):
        if set(given) != set(names):
            raise ValueError(
                f"invalid names {sorted(given)} of {what}: expected {sorted(names)}, the symbol's"
            )
        return {n: given[n] for n in names}
    if len(given) != len(names):
        raise ValueError(
            f"invalid number of values {len(given)} of {what}: expected {len(names)}, for {names}"
        )
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
    check_eps: float | None = None,
) -> list[NDArray]:
    """Compares the outputs of `forward(is_train=False)` with `expected`.

    Parameters
    ----------
    sym : Symbol
    location : list or dict
        Argument values in `list_arguments()` order or by name.
    expected : list or dict
        Outputs in order or by name.
    check_eps : float, optional
        A bound on `reldiff` in place of `rtol` and `atol`, as in older versions.

    Returns
    -------
    list of NDArray
        The outputs.
    """
    ctx = ctx or default_context()
    args = _arrays(location, sym.list_arguments(), "location", ctx, dtype)
    grads = {k: nd.zeros(v.shape, ctx=ctx, dtype=v.dtype) for k, v in args.items()}
    exe = sym.bind(ctx, args=args, args_grad=grads, aux_states=_aux(sym, aux_states, ctx, dtype))
    outputs: list[NDArray] = exe.forward(is_train=False)
    for (name, value), out in zip(
        _named(expected, sym.list_outputs(), "expected").items(), outputs, strict=True
    ):
        labels = (f"FORWARD_{name}", f"EXPECTED_{name}")
        assert_almost_equal(out, value, rtol, atol, labels, equal_nan, threshold=check_eps)
    return outputs


def _check_gradient(
    name: str, req: str, got: Any, expected: Any, before: Any, tolerance: dict[str, Any]
) -> None:
    wanted = {"null": before, "write": expected}.get(req, _host(expected) + before)
    names = (f"GRAD_{name}", f"EXPECTED_{name}")
    assert_almost_equal(got, wanted, names=names, **tolerance)


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
    check_eps: float | None = None,
) -> list[NDArray]:
    """Compares the gradients of `backward(out_grads)` with `expected`, by their requests.

    The gradient arrays hold random values before: 'write' replaces them, 'add' adds to them,
    'null' leaves them. `check_eps`: as in `check_symbolic_forward`.

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
    before: dict[str, np.ndarray] = {k: np.random.normal(size=args[k].shape) for k in expected}
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
    tolerance = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "threshold": check_eps}
    for name, value in expected.items():
        got = exe.grad_dict[name]
        got = before[name] if got is None else got
        _check_gradient(name, reqs[name], got, value, before[name], tolerance)
    arrays: list[NDArray] = exe.grad_arrays
    return arrays


def numeric_grad(
    executor: Any,
    location: dict[str, Any],
    aux_states: dict[str, Any] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = np.float32,
    weights: Sequence[np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Central finite differences of the sum of the executor's outputs, by argument name.

    The sum is taken in float64; `weights`, one array per output, are factors in it. Every element
    of every float argument is moved by `eps` / 2 to both sides.
    """

    def value() -> float:
        for name, aux in (aux_states or {}).items():
            executor.aux_dict[name][:] = nd.array(_host(aux), dtype=executor.aux_dict[name].dtype)
        outputs = executor.forward(is_train=use_forward_train)
        values = [o.asnumpy().astype("float64") for o in outputs]
        if weights is not None:
            values = [v * w for v, w in zip(values, weights, strict=True)]
        return float(sum(v.sum() for v in values))

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
    check_eps: float | None = None,
) -> None:
    """Compares an executor's gradients with finite differences.

    The scalar that is differentiated is sum(sym * R) with R uniform in [0.1, 1.1), so that errors
    of single elements do not cancel; R enters as the variable `__random_proj`.

    Parameters
    ----------
    grad_nodes : list of str or dict of str to request, optional
        Which arguments to check, all by default.
    check_eps : float, optional
        A bound on `reldiff` in place of `rtol` and `atol`, as in older versions.
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
    out = sym_module.make_loss(sym * proj)
    args["__random_proj"] = nd.array(
        np.random.uniform(0.1, 1.1, size=out_shapes[0]), ctx=ctx, dtype=dtype
    )
    before: dict[str, Any] = {
        k: np.random.normal(size=v.shape).astype(v.dtype) for k, v in args.items()
    }
    grads = {k: nd.array(before[k], ctx=ctx, dtype=args[k].dtype) for k in reqs}
    exe = out.bind(ctx, args=args, args_grad=grads, aux_states=aux, grad_req=reqs)
    exe.forward(is_train=True)
    exe.backward()
    got = {k: g.asnumpy() for k, g in exe.grad_dict.items() if k in reqs and g is not None}
    start = {k: v.asnumpy() for k, v in args.items() if k in reqs}
    aux_start = {k: v.asnumpy() for k, v in _aux(sym, aux_states, ctx, dtype).items()}
    # Weighted and summed outside of the graph: in half precision it would lose the differences.
    weights = [args.pop("__random_proj").asnumpy()]
    plain = sym.bind(ctx, args=args, aux_states=_aux(sym, aux_states, ctx, dtype), grad_req="null")
    numeric = numeric_grad(plain, start, aux_start, eps, use_forward_train, "float64", weights)
    tolerance = {"rtol": rtol, "atol": atol, "threshold": check_eps}
    for name, req in reqs.items():
        if name in numeric and name in got:
            expected = numeric[name].astype(dtype)
            _check_gradient(name, req, got[name], expected, before[name], tolerance)


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
    """Runs one symbol, or one per setting, in several settings with the same data, and compares.

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
    """Seconds per run: forward and backward ("whole") or "forward" alone, over `N` runs."""
    if typ not in ("whole", "forward"):
        raise ValueError(f"invalid typ {typ!r}: expected 'whole' or 'forward'")
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
    """Outputs as NumPy arrays for inputs as NumPy arrays; a list if there are several outputs."""
    ctx = ctx or default_context()
    args = {k: nd.array(v) for k, v in inputs.items()}
    outputs = [o.asnumpy() for o in sym.bind(ctx, args=args).forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Any = None, atol: Any = None) -> None:
    """Asserts that two nested structures of arrays, tuples and `None` are almost equal."""
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
    """Gives two optimizers the same weights and gradients, and compares the results."""
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
