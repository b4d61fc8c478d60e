"""What the operator tests share: finding functions, running cases, differentiating references."""

import inspect
import re

import all_cases  # noqa: F401  (adds the rows and oracles of every family)
import numpy as np
from naming import function
from reference import REFERENCES

import rsnet as mx
from rsnet import _core

# Random operators: parameters, mean, standard deviation.
RANDOM = {
    "_random_uniform": ({"low": -1.0, "high": 3.0}, 1.0, 4 / np.sqrt(12)),
    "_random_normal": ({"loc": 1.0, "scale": 2.0}, 1.0, 2.0),
    "_random_gamma": ({"alpha": 2.0, "beta": 3.0}, 6.0, np.sqrt(18)),
    "_random_exponential": ({"lam": 2.0}, 0.5, 0.5),
    "_random_poisson": ({"lam": 4.0}, 4.0, 2.0),
    "_random_negative_binomial": ({"k": 3, "p": 0.5}, 3.0, np.sqrt(6)),
    "_random_generalized_negative_binomial": ({"mu": 2.0, "alpha": 0.5}, 2.0, 2.0),
    "_random_randint": ({"low": 0, "high": 10}, 4.5, np.sqrt(99 / 12)),
}


def known_operators():
    """The core's forward operators: documentation, array arguments and parameters. (Operators
    defined in Python have tests of their own.)
    """
    found = {}
    for name in mx._core.operator_names():
        info = mx._core.operator_info(name)
        canonical = info["name"]
        builtin = mx._core.is_builtin_operator(canonical)
        if builtin and not _core.is_backward_operator(canonical):
            params = [(field, text) for field, _, text, _ in info["params"]]
            found[canonical] = {"doc": info["doc"], "arrays": info["arrays"], "params": params}
    return found


EXISTING = known_operators()  # before other test modules register operators of their own


def described(op):
    """Text under each name in the `Parameters` section of a function's docstring."""
    section = inspect.getdoc(function(mx.nd, op)).partition("Parameters")[2].partition("Returns")[0]
    found, name = {}, None
    for line in section.splitlines():
        if re.match(r"\w+ : ", line):
            name = line.split(" : ")[0]
            found[name] = ""
        elif name and line.startswith("    "):
            found[name] += line.strip()
    return found


def host(x):
    return x.asnumpy() if hasattr(x, "asnumpy") else np.asarray(x)


def place(a):
    """The array as an NDArray. An empty one is made as users get one, by slicing."""
    if a.size:
        return mx.nd.array(a, dtype=a.dtype)
    x = mx.nd.zeros(tuple(n or 1 for n in a.shape), dtype=a.dtype)
    return x[tuple(slice(n) for n in a.shape)]


def reference_outputs(case, arrays):
    """The reference's outputs as a list, computed in float64 where the inputs are floats."""
    wide = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
    with np.errstate(all="ignore"):
        out = REFERENCES[case.op](*wide, **case.params)
    return list(out) if isinstance(out, tuple) else [out]


def head_gradients(case, arrays):
    """A gradient for each output, from the same generator in every run."""
    rng = np.random.RandomState(len(case.id))
    return [rng.uniform(0.1, 1.1, np.shape(o)) for o in reference_outputs(case, arrays)]


def numeric_gradient(case, arrays, index, heads, eps=1e-5):
    """Central differences of sum(outputs · heads) of the reference."""

    reference = REFERENCES[case.op]

    def value():
        out = reference(*arrays, **case.params)
        outs = out if isinstance(out, tuple) else (out,)
        return sum(float(np.vdot(o, h)) for o, h in zip(outs, heads, strict=True))

    x = arrays[index]
    grad = np.zeros(x.shape)
    with np.errstate(all="ignore"):
        for at in np.ndindex(*x.shape):
            old = x[at]
            x[at] = old + eps
            high = value()
            x[at] = old - eps
            low = value()
            x[at] = old
            grad[at] = (high - low) / (2 * eps)
    return grad


def run_executor(case, arrays, heads, req):
    """Gradients by position after forward and backward of a bound symbol, and their old values."""
    names = [f"v{i}" for i in range(len(arrays))]
    sym = function(mx.sym, case.op)(*[mx.sym.Variable(n) for n in names], **case.params)
    aux_names = sym.list_auxiliary_states()
    placed = dict(zip(names, map(place, arrays), strict=True))
    aux = {n: placed.pop(n) for n in aux_names}
    wanted = {f"v{i}" for i in case.differentiated()}
    rng = np.random.RandomState(5)
    before = {i: rng.normal(size=a.shape).astype(a.dtype) for i, a in enumerate(arrays)}
    grads = {f"v{i}": place(b) for i, b in before.items() if f"v{i}" in wanted}
    reqs = {n: req if n in wanted else "null" for n in placed}
    exe = sym.bind(
        mx.current_context(), args=placed, args_grad=grads, grad_req=reqs, aux_states=aux
    )
    outs = exe.forward(is_train=True)
    exe.backward([place(h.astype(o.dtype)) for h, o in zip(heads, outs, strict=True)])
    return {i: grads[f"v{i}"] for i in case.differentiated()}, before
