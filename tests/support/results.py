"""Runs every operator case with rsnet or with MXNet, forward and backward, in each of its dtypes,
and stores the results.

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


def dtypes_of(case):
    """Float32 first, if it is among them."""
    return sorted(case.dtypes or ["float32"], key=lambda dtype: dtype != "float32")


def name_of(case, dtype):
    """The case, with its dtype unless that is the first one."""
    return case.id if dtype == dtypes_of(case)[0] else f"{case.id}/{dtype}"


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


def run(mx, case, dtype):
    """Outputs, then the gradients of the differentiated inputs, or the error of either."""
    inputs = [array_of(mx, case)(a, dtype=a.dtype) for a in case.arrays(dtype)]
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


def of_dtype(mx, cases, dtype):
    """Results by case and by what they are: `op-3 output 0`, `op-3/float16 error`."""
    stored = {}
    for case in cases:
        try:
            found = run(mx, case, dtype)
        except Exception as error:
            found = {"error": text_of(error)}
        stored.update({f"{name_of(case, dtype)} {what}": value for what, value in found.items()})
    return stored


def apart(mx, cases, dtype):
    """As `of_dtype`, in a process of its own: some calls end the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.npz"
        child = os.fork()
        if child == 0:
            np.savez(path, **of_dtype(mx, cases, dtype))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status:
            text = f"the process ended with status {status}"
            return {f"{name_of(cases[0], dtype)} error": np.array(text)}
        with np.load(path) as stored:
            return dict(stored)


def results(package, operators):
    mx = importlib.import_module(package)
    stored = {}
    for op, cases in CASES.items():
        if operators and op not in operators:
            continue
        cases = [c for c in cases if not any(0 in i.shape for i in c.inputs)]  # MXNet refuses these
        for dtype in dict.fromkeys(d for case in cases for d in dtypes_of(case)):
            stored |= apart(mx, [c for c in cases if dtype in dtypes_of(c)], dtype)
    return stored


if __name__ == "__main__":
    np.savez(sys.argv[2], **results(sys.argv[1], sys.argv[3:]))
