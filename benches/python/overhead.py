"""Overhead of small operations beside NumPy's, timed in turn in the same run.

    python benches/python/overhead.py

Each row is the median over rounds of the time of one call on arrays of 16 floats, and its ratio to
NumPy's call. The target for `a + b` is 0.6. The last line is what importing costs beyond NumPy.
"""

import statistics
import subprocess
import sys
import timeit

import numpy as np

import rsnet as mx

ROUNDS, CALLS = 25, 20000


def cases():
    """Our statements, NumPy's, and the names in them."""
    x = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)
    y = np.linspace(2, 3, 16, dtype="float32").reshape(4, 4)
    a, b = mx.nd.array(x), mx.nd.array(y)
    np.testing.assert_allclose((a + b).asnumpy(), x + y)
    np.testing.assert_allclose(mx.nd.relu(a).asnumpy(), np.maximum(x, 0))
    np.testing.assert_allclose(mx.nd.dot(a, b).asnumpy(), x @ y, rtol=1e-5)
    statements = [
        ("a + b", "x + y"),
        ("a * 2", "x * 2"),
        ("relu(a)", "np.maximum(x, 0)"),
        ("dot(a, b)", "x @ y"),
        ("sum(a)", "x.sum()"),
        ("a[1]", "x[1]"),
        ("a.asnumpy()", "x.copy()"),
    ]
    names = {"a": a, "b": b, "x": x, "y": y, "np": np}
    return statements, names | {f: getattr(mx.nd, f) for f in ("relu", "dot", "sum")}


def import_seconds(code):
    timed = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
    run = [sys.executable, "-c", timed]
    return [float(subprocess.run(run, capture_output=True, check=True).stdout) for _ in range(9)]


def main():
    print(f"{'call':12s} {'rsnet ns':>9s} {'numpy ns':>9s} {'ratio':>6s}")
    statements, names = cases()
    for ours, theirs in statements:
        times = [[], []]
        for _ in range(ROUNDS):
            for kept, call in zip(times, (ours, theirs), strict=True):
                seconds = timeit.timeit(call, globals=names, number=CALLS // ROUNDS)
                kept.append(seconds / (CALLS // ROUNDS) * 1e9)
            mx.nd.waitall()
        mine, other = (statistics.median(t) for t in times)
        print(f"{ours:12s} {mine:9.0f} {other:9.0f} {mine / other:6.2f}")
    numpy, ours = import_seconds("import numpy"), import_seconds("import rsnet")
    print(f"import: {statistics.median(ours) - statistics.median(numpy):.3f} s more than NumPy")


if __name__ == "__main__":
    main()
