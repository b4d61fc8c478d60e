"""Element-wise work of operators in Python on several threads of the engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import engine
from .checks import invalid, is_integer
from .operands import assign
from .requests import OpReq

#: Elements of one part, unless the caller asks for others: enough to outweigh handing it over.
GRAIN = 65_536


def launch(f: Callable[[int, int], Any], n: int, *, grain: int = GRAIN) -> None:
    """Calls ``f(begin, end)`` for consecutive ranges that cover ``0 .. n``, side by side.

    The first range runs on the calling thread, the others on threads of the engine; the call
    returns when all have ended. NumPy and rsnet release the interpreter while they compute, plain
    Python code does not gain.

    Parameters
    ----------
    f : callable
        Its result is ignored. It may run on any thread.
    n : int
        The end of the last range.
    grain : int
        Least extent of a range.

    Raises
    ------
    Exception
        The first error of a range, in their order.

    Examples
    --------
    >>> import numpy as np
    >>> from rsnet import op
    >>> squares = np.empty(1000)
    >>> def fill(begin, end):
    ...     squares[begin:end] = np.arange(begin, end) ** 2
    >>> op.launch(fill, 1000, grain=100)
    >>> float(squares[-1])
    998001.0
    """
    for what, value, least in (("n", n, 0), ("grain", grain, 1)):
        if not is_integer(value, least, 2**63 - 1):
            raise invalid("launch", what, value, f"an integer of {least} or more")
    parts = max(1, min(-(-int(n) // int(grain)), engine.num_threads()))
    ends = [n * i // parts for i in range(parts + 1)]
    done = [engine.new_variable() for _ in ends[2:]]
    for var, begin, end in zip(done, ends[1:], ends[2:]):
        engine.push_sync(lambda rc, b=begin, e=end: _call(f, b, e), mutate_vars=[var])
    errors: list[BaseException] = []
    # The other ranges use the same memory: they end before this call does.
    waits = [partial(engine.wait_for_var, var) for var in done]
    for step in (partial(f, 0, ends[1]), *waits) if n else ():
        try:
            step()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _call(f: Callable[[int, int], Any], begin: int, end: int) -> None:
    f(begin, end)


def map(
    f: Callable[..., Any], out: Any, *inputs: Any, req: OpReq | str = "write", grain: int = GRAIN
) -> None:
    """Computes ``out = f(*inputs)`` element by element, in parts side by side.

    Parameters
    ----------
    f : callable
        Gets NumPy arrays of one axis, equal parts of the inputs, and returns an array of that
        length, of real numbers.
    out : NDArray or numpy.ndarray
        The output of an operator.
    *inputs : NDArray or numpy.ndarray
        Arrays of the shape of ``out``.
    req : OpReq
        The request for the output.
    grain : int
        As for :func:`launch`.

    Examples
    --------
    >>> import numpy as np
    >>> from rsnet import nd, op
    >>> @op.kernel("doc_map_relu")
    ... def _(ctx):
    ...     op.map(lambda x: np.maximum(x, 0), ctx.out("out"), ctx.inp("in"))
    >>> op.define("doc_map_relu", inputs="in", infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
    <user operator doc_map_relu: in -> out>
    >>> nd.doc_map_relu(nd.array([-1, 2])).asnumpy()
    array([0., 2.], dtype=float32)
    """
    if req == "null":
        return
    for i, array in enumerate(inputs):
        if tuple(array.shape) != tuple(out.shape):
            raise invalid("map", f"shape of input {i}", tuple(array.shape), out.shape)
    sources = [_view(array).reshape(-1) for array in inputs]
    result = np.empty(out.size, np.dtype(out.dtype))

    def part(begin: int, end: int) -> None:
        values = np.asarray(f(*(source[begin:end] for source in sources)))
        if values.dtype.kind not in "biuf" and values.dtype != result.dtype:
            raise invalid("map", "dtype of the result of f", values.dtype.name, result.dtype.name)
        result[begin:end] = values

    launch(part, result.size, grain=grain)
    assign(out, req, result.reshape(out.shape))


def _view(array: Any) -> np.ndarray[Any, Any]:
    return array if isinstance(array, np.ndarray) else np.from_dlpack(array)
