"""What a call of a compiled operator costs beyond its kernel, beside built-in operators.

    python benches/python/plugins.py

Each row is the time of one node in a planned graph: that of a chain of 1100 nodes less that of one
of 100, on arrays of 4 floats, so that the kernel itself costs next to nothing. The least of several
rounds, in which the operators take turns. The target is 50 ns beyond the built-in operator. The
libraries do the same through each interface: `plugin.h`, MXNet's two and OneFlow's.

Below, a call from Python on such an array, beside built-in operators that are called as any
operator is (not by the shortcut for element-wise ones) and one that takes that shortcut.
"""

import time
from pathlib import Path

import numpy as np

import rsnet as mx
from rsnet import nd, sym

HERE = Path(__file__).parent
SOURCES = [
    HERE.parents[1] / "tests" / "plugin" / "sources" / "scale.c",
    *sorted((HERE / "scale").iterdir()),
]
ROUNDS, CALLS, SHORT, LONG = 300, 3, 100, 1100


def chain(op, nodes):
    """An executor of `nodes` operators one after another, and the pass to time."""
    y = sym.var("a")
    for _ in range(nodes):
        y = op(y)
    exe = y.simple_bind(mx.cpu(), a=(4,), grad_req="null")
    exe.arg_dict["a"][:] = 1
    np.testing.assert_allclose(exe.forward()[0].asnumpy(), 1.0, rtol=1e-4)

    def run():
        exe.forward()
        exe.outputs[0].wait_to_read()

    return run


def seconds(run):
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    return (time.perf_counter() - start) / CALLS


def load():
    """Loads `scale` through every interface, compiled as the documentation does it."""
    for source in SOURCES:
        mx.load_library(mx.build_extension(source, verbose=False))


def main():
    load()
    operators = {
        "built in: a * 1.0": lambda y: y * 1.0,
        "built in: clip": lambda y: sym.clip(y, a_min=-9, a_max=9),
        "library in C: c_scale": lambda y: sym.c_scale(y, by=1.0),
        "NNVM_REGISTER_OP": lambda y: sym.nnvm_scale(y, by=1.0),
        "OperatorProperty": lambda y: sym.property_scale(y, by=1.0),
        "REGISTER_USER_OP": lambda y: sym.oneflow_scale(y, by=1.0),
    }
    chains = {name: (chain(op, SHORT), chain(op, LONG)) for name, op in operators.items()}
    best = {name: [float("inf")] * 2 for name in operators}
    for _ in range(ROUNDS):
        for name, runs in chains.items():
            best[name] = [min(b, seconds(run)) for b, run in zip(best[name], runs, strict=True)]
    per_node = {n: (b[1] - b[0]) / (LONG - SHORT) * 1e9 for n, b in best.items()}
    least = next(iter(per_node.values()))
    print(f"{'node':24s} {'ns':>6s} {'more':>6s}")
    for name, ns in per_node.items():
        print(f"{name:24s} {ns:6.0f} {ns - least:6.0f}")
    calls()


def calls():
    """The least time of a call from Python."""
    x, square = nd.ones(4), nd.ones((2, 2))
    functions = {
        "built in: softmax": lambda: nd.softmax(square),
        "built in: transpose": lambda: nd.transpose(square),
        "built in: relu (shortcut)": lambda: nd.relu(x),
        "library in C: c_scale": lambda: nd.c_scale(x, by=1.0),
    }
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(ROUNDS):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(100):
                function()
            best[name] = min(best[name], (time.perf_counter() - start) / 100)
            nd.waitall()
    print(f"\n{'call from Python':26s} {'ns':>6s}")
    for name, took in best.items():
        print(f"{name:26s} {took * 1e9:6.0f}")


if __name__ == "__main__":
    main()
