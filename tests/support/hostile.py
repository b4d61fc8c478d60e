"""Calls operators with hostile arguments; `test_hostile_arguments.py` runs it in processes of its
own.

    python hostile.py JOURNAL START STEP STOP [OPERATOR ...]

Every call is a valid one of `cases.py` with one or two things made wrong: a parameter (huge,
negative, not a number, text, of the wrong type), an array (another shape, dtype, or full of NaN),
or their number. The calls are the same in every run. Before each one its number and text go to the
journal, so that the process that started it knows which call it died in; what should not have
happened is written there as well. Calls START, START + STEP, ... below STOP are made.
"""

import faulthandler
import itertools
import os
import re
import resource
import sys
import warnings
import zlib
from pathlib import Path

# Calls of one layer on several devices, of which the others never come.
os.environ["RSNET_SYNC_SECONDS"] = "0.05"
MEMORY_BYTES = (
    3 << 30
)  # what huge arrays must be refused in: address space beyond that of the start
CALL_LIMIT_S = 60  # a call that takes longer hangs
LARGE = 1 << 20  # elements; results beyond are not looked at

INTEGERS = [
    0,
    -1,
    1,
    7,
    -(2**31),
    2**31 - 1,
    2**31,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
    2**63,
    10**30,
]
NUMBERS = [float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324, -0.0, 0.5, -3.7]
TEXTS = ["", "two", "nan", "None", "1e400", "0x10", "(1,", "(2,3)", "\x00", "9" * 400, "ö" * 50]
TUPLES = [
    (), (0,), (-1,), (1, 1), (0, 0), (-1, -1), (3, 3), (2**31 - 1, 2**31 - 1), (2**62, 2),
    (2**63, 1), (-(2**63), -(2**63)), (1,) * 40, (2**40, 2**40), (None, 1), ("a", "b"), (0.5, 0.5),
    ((1, 2), (3, 4)), (100000, 100000), (7, 1, 3), (2, 3, 4, 5, 6),
]  # fmt: skip
OTHERS = [None, True, b"two", {}, [1, 2], object, 3j]
EVERYTHING = [*INTEGERS, *NUMBERS, *TEXTS, *TUPLES, *OTHERS]


def kinds(field_type):
    """The values that hurt most for a parameter of this type: near misses first."""
    if field_type.startswith("{"):
        return [*TEXTS, 0, -1, None, True, (1,)]
    if field_type.startswith(("int", "long")):
        return [*INTEGERS, 0.5, float("nan"), float("inf"), 1e308, "two", "", None, (1,), (), b"x"]
    if field_type.startswith(("float", "double")):
        return [*NUMBERS, 0, -1, 2**40, 10**400, "two", "", None, (1,), b"x"]
    if field_type.startswith(("Shape", "tuple", "Tuple")):
        return [*TUPLES, 0, -1, 2**31, float("nan"), "two", "(1,", "", None]
    if field_type.startswith("boolean"):
        return [2, -1, 0.5, "two", "", None, (1,), True, False]
    return EVERYTHING


def hostile_arrays(mx, np, good):
    """Arrays to put in the place of `good`, each with a name."""
    shape, dtype = good.shape, good.dtype
    yield "nan", np.full(shape, np.nan, "float32").astype(dtype if dtype.kind == "f" else "float32")
    yield "huge", np.full(shape, 3e38 if dtype.kind == "f" else 127, dtype)
    yield (
        "low",
        np.full(shape, -3e38 if dtype.kind == "f" else (0 if dtype.kind == "u" else -128), dtype),
    )
    yield "scalar", np.zeros((1,), dtype)
    yield "flat", np.zeros((max(good.size, 1),), dtype)
    yield "deep", np.zeros((1, 2, 1, 2, 1, 2), dtype)
    yield "wider", np.zeros((*shape[:-1], shape[-1] + 1) if shape else (2,), dtype)
    for other in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"):
        if np.dtype(other) != dtype:
            yield other, np.ones(shape, other)
    yield "text", "two"
    yield "nothing", None
    yield "number", 7


def calls_of(op, cases, fields, np):
    """(text, arrays, parameters) of every hostile call of one operator."""
    for case in cases:
        dtype = case.dtypes[0] if case.dtypes else "float64"
        arrays, params = case.arrays(dtype), case.params
        for name, kind in fields:
            for value in kinds(kind):
                yield f"{op}({params} + {name}={value!r})", arrays, {**params, name: value}
        for (a, ka), (b, kb) in itertools.combinations(fields, 2):
            rng = np.random.RandomState(zlib.crc32(f"{op} {a} {b}".encode()))
            for _ in range(2):
                values = [k[rng.randint(len(k))] for k in (kinds(ka), kinds(kb))]
                given = {**params, a: values[0], b: values[1]}
                yield f"{op}({params} + {a}={values[0]!r}, {b}={values[1]!r})", arrays, given
        for i, good in enumerate(arrays):
            for what, bad in hostile_arrays(None, np, good):
                given = [*arrays[:i], bad, *arrays[i + 1 :]]
                yield f"{op}({params}, array {i}: {what} of {good.shape})", given, params
        everywhere = [next(hostile_arrays(None, np, a))[1] for a in arrays]
        yield f"{op}({params}, nan everywhere)", everywhere, params
        empty = [np.zeros((0, *a.shape[1:]), a.dtype) for a in arrays]
        yield f"{op}({params}, no rows)", empty, params
        yield f"{op}({params}, an array too many)", [*arrays, *arrays[:1]], params
        yield f"{op}({params}, an array too few)", arrays[:-1], params
        yield f"{op}({params} + nonsense=1)", arrays, {**params, "nonsense": 1}
        yield f"{op}(no parameters)", arrays, {}


def all_calls(wanted):
    """Every hostile call, in the same order in every run."""
    import all_cases  # noqa: F401  (adds the rows and oracles of every family)
    import numpy as np
    from cases import CASES, Case
    from operators import EXISTING, RANDOM, function

    import rsnet as mx

    for op in sorted(EXISTING):
        if wanted and op not in wanted:
            continue
        fields = [(n, t) for n, t, *_ in mx._core.operator_info(op)["params"]]
        cases = [c for c in CASES.get(op, []) if not any(0 in x.shape for x in c.inputs)][:2]
        if op in RANDOM:
            cases = [Case(op, (), {**RANDOM[op][0], "shape": (3, 4)})]
        f = function(mx.nd, op)
        for text, arrays, params in calls_of(op, cases or [Case(op)], fields, np):
            yield text, op, f, arrays, params


def make(mx, np, f, arrays, params):
    """One call, with its gradient: what may fail is caught by the caller."""
    from operators import place

    given = [place(a) if isinstance(a, np.ndarray) else a for a in arrays]
    floats = [a for a in given if isinstance(a, mx.nd.NDArray) and is_float(np, a)]
    for a in floats:
        a.attach_grad()
    with mx.autograd.record():
        out = f(*given, **params)
    outs = list(out) if isinstance(out, (list, tuple)) else [out]
    if any(o.size > LARGE for o in outs):
        return
    for o in outs:
        o.asnumpy()
    heads = [o for o in outs if is_float(np, o)]
    if heads and floats:
        mx.autograd.backward(heads)
        for a in floats:
            a.grad.asnumpy()


def is_float(np, array):
    return np.dtype(array.dtype).kind == "f"


# Errors a user may meet; anything else is a mistake of ours.
ALLOWED = (ValueError, TypeError, IndexError, MemoryError, OverflowError, KeyError)


def allowed(mx, error):
    of_mxnet = isinstance(error, AssertionError) and "expected an NDArray" in str(error)
    return of_mxnet or isinstance(error, (*ALLOWED, mx.MXNetError))


def address_space():
    """Bytes mapped by this process; the engine reserves addresses that take no memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def main(journal, start, step, stop, wanted):
    out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(line):
        os.write(out, (line.replace("\n", "\\n") + "\n").encode("utf-8", "backslashreplace"))

    warnings.simplefilter("ignore")
    import numpy as np

    import rsnet as mx

    limit = address_space() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    made = 0
    for n, (text, _, f, arrays, params) in enumerate(all_calls(wanted)):
        if n >= stop:
            break
        if n < start or (n - start) % step:
            continue
        tell(f"call {n} {text}")
        faulthandler.dump_traceback_later(CALL_LIMIT_S, exit=True)
        made += 1
        try:
            make(mx, np, f, arrays, params)
        except Exception as error:
            message = str(error)
            if re.search(r"panic|internal error|unreachable|overflow when|assertion", message):
                tell(f"bad {n} {text}: {message}")
            elif not allowed(mx, error):
                tell(f"bad {n} {text}: {type(error).__name__}: {message}")
            elif not message.strip():
                tell(f"bad {n} {text}: {type(error).__name__} without a message")
        try:
            mx.nd.waitall()
        except Exception as error:
            if "panic" in str(error):
                tell(f"bad {n} {text}: {error}")
        if (mx.nd.ones((2,)) + 1).asnumpy().tolist() != [2.0, 2.0]:
            tell(f"bad {n} {text}: afterwards 1 + 1 is no longer 2")
    faulthandler.cancel_dump_traceback_later()
    tell(f"end {made}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])
