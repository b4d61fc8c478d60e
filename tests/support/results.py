"""Runs every operator case with rsnet or with MXNet, forward and backward, and stores the results.

    python tests/support/results.py rsnet|mxnet OUT.npz [OPERATOR ...]

Imports nothing of rsnet, so that a Python with MXNet alone can run it. An operator that the package
does not have, or that raises, is stored as the text of the error; one that ends the process as
well.
"""

import importlib
import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import all_cases  # noqa: F401
from cases import CASES
from naming import function, is_numpy


def arrays_of(case):
    dtype = "float32" if "float32" in case.dtypes or not case.dtypes else case.dtypes[0]
    return case.arrays(dtype)


def array_of(mx, case):
    """The function that makes arrays for an operator: MXNet has a class of them for its NumPy
    interface.
    """
    if not is_numpy(case.op) or not hasattr(mx, "npx"):
        return mx.nd.array
    mx.npx.set_np()
    return mx.np.array


def given_outputs(case, inputs):
    """Arrays for `out=`, which MXNet's operators on many weights do not do without."""
    count = case.params.get("num_weights") or case.params.get("num_tensors")
    if not count:
        return {}
    stride = len(inputs) // count if "preloaded" not in case.op else (len(inputs) - 2) // count
    return {"out": [inputs[i * stride].copy() for i in range(count)]}


def run(mx, case):
    """Outputs, then the gradients of the differentiated inputs, or the error of either."""
    inputs = [array_of(mx, case)(a, dtype=a.dtype) for a in arrays_of(case)]
    wrt = case.differentiated() if case.grad != "none" else ()
    for i in wrt:
        inputs[i].attach_grad()
    with mx.autograd.record() if wrt else mx.autograd.train_mode():
        out = function(mx.nd, case.op)(*inputs, **case.params, **given_outputs(case, inputs))
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
    found = {f"output {i}": o.asnumpy() for i, o in enumerate(outs)}
    if wrt:
        rng = np.random.RandomState(len(case.id))
        array = array_of(mx, case)
        heads = [array(rng.uniform(0.1, 1.1, o.shape), dtype=o.dtype) for o in outs]
        try:
            mx.autograd.backward(outs, heads)
            found |= {f"gradient {i}": inputs[i].grad.asnumpy() for i in wrt}
        except Exception as error:
            found["error"] = text_of(error)
    return found


def text_of(error):
    text = re.sub(r"\[\d\d:\d\d:\d\d\] ", "", str(error)).strip()
    return np.array(f"{type(error).__name__}: {text[-300:]}")


def of_operator(mx, cases):
    """Results by case and by what they are."""
    stored = {}
    for case in cases:
        if any(0 in i.shape for i in case.inputs):
            continue  # MXNet refuses empty arrays
        try:
            found = run(mx, case)
        except Exception as error:
            found = {"error": text_of(error)}
        stored.update({f"{case.id} {what}": value for what, value in found.items()})
    return stored


def apart(mx, cases):
    """As `of_operator`, in a process of its own: some calls end the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.npz"
        child = os.fork()
        if child == 0:
            np.savez(path, **of_operator(mx, cases))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status:
            return {f"{cases[0].id} error": np.array(f"the process ended with status {status}")}
        with np.load(path) as stored:
            return dict(stored)


def results(package, operators):
    mx = importlib.import_module(package)
    stored = {}
    for op, cases in CASES.items():
        if not operators or op in operators:
            stored |= apart(mx, cases)
    return stored


if __name__ == "__main__":
    np.savez(sys.argv[2], **results(sys.argv[1], sys.argv[3:]))
