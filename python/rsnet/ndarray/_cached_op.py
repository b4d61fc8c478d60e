"""`CachedOp`: a symbol that is called like an operator."""

from __future__ import annotations

from typing import Any

from .. import _core
from ..base import limit_bytes, shown
from ._stepwise import StepwiseGraph

NDArray = _core.NDArray

#: MXNet's switches, which change nothing here.
_FLAGS = (
    "backward_bulk_size data_indices forward_bulk_size inline_limit is_dynamic param_indices "
    "static_alloc static_shape subgraph"
).split()


def _check_flags(flags: Any) -> None:
    for name, _ in dict(flags or ()).items():
        if name not in _FLAGS:
            raise ValueError(
                f"CachedOp: invalid flag '{name}': expected one of: {', '.join(_FLAGS)}"
            )


class CachedOp:
    """A symbol that is called like an operator on arrays.

    The symbol is planned once for each combination of shapes, dtypes, device and wanted gradients,
    with memory for its forward and backward passes; further calls run that plan. While recording a
    call is one node of the tape. A symbol with `contrib.boolean_mask`, whose output has a shape
    that numbers decide, runs operator by operator.

    Parameters
    ----------
    sym : Symbol
    flags : list of (str, str)
        MXNet's switches such as ``("static_alloc", "true")``: accepted; memory is always planned.
    parameters : list of str
        Names of inputs that are mostly the same arrays in all calls: the plan is bound to them,
        and their gradients are computed in the buffers of `attach_grad`.
    name : str
        Its name in errors.
    memory_limit : int or str, optional
        The most bytes for intermediate results of each plan, as in `Symbol.simple_bind`.

    Raises
    ------
    MXNetError
        Two inputs of the symbol have one name, or none has the name of a parameter. In a call: the
        limit cannot be met.
    ValueError, TypeError
        An invalid limit, or a flag that MXNet does not have.

    Examples
    --------
    >>> import rsnet as mx
    >>> x = mx.sym.Variable("x")
    >>> op = mx.nd.CachedOp(mx.sym.exp(x) * 2)
    >>> a = mx.nd.zeros((2,))
    >>> a.attach_grad()
    >>> with mx.autograd.record():
    ...     y = op(a)
    >>> y.backward()
    >>> y.asnumpy().tolist(), a.grad.asnumpy().tolist()
    ([2.0, 2.0], [2.0, 2.0])
    """

    def __init__(
        self, sym: Any, flags: Any = (), parameters: Any = (), name: str = "CachedOp",
        memory_limit: int | str | None = None,
    ) -> None:  # fmt: skip
        handle = getattr(sym, "_handle", None)
        if not isinstance(handle, _core.SymbolHandle):
            raise TypeError(f"CachedOp: invalid sym {sym!r}: expected a Symbol")
        self._symbol = sym
        _check_flags(flags)
        limit = limit_bytes(memory_limit)
        self._graph: Any
        if StepwiseGraph.is_needed(sym):
            self._graph = StepwiseGraph(name, sym)
        else:
            self._graph = _core.CachedGraph(name, handle, list(parameters), limit)
        self._monitor: Any = None

    def get_optimized_symbol(self) -> Any:
        """The symbol that is run."""
        return self._symbol

    def __call__(
        self, *args: NDArray, out: Any = None, default_ctx: Any = None, listed: bool = False
    ) -> Any:
        """Computes the outputs.

        Parameters
        ----------
        *args : NDArray
            In the order of the symbol's `list_inputs()`, on one device.
        out : NDArray or list of NDArray, optional
            Where to copy the outputs; not while recording.
        default_ctx : Context, optional
            Accepted for compatibility.
        listed : bool
            Return a list also for one output?

        Returns
        -------
        NDArray or list of NDArray
        """
        for i, arg in enumerate(args):
            if not isinstance(arg, NDArray):
                raise TypeError(f"CachedOp: invalid input {i} {shown(arg)}: expected an NDArray")
        outputs = self._graph(args)
        if out is not None:
            given = [out] if isinstance(out, NDArray) else list(out)
            if len(given) != len(outputs):
                raise ValueError(f"CachedOp: out has {len(given)} arrays, expected {len(outputs)}")
            for source, target in zip(outputs, given):
                source.copyto(target)
            return out
        return outputs if listed or len(outputs) != 1 else outputs[0]

    def _register_op_hook(self, callback: Any, monitor_all: bool = False) -> None:
        """Calls ``callback(name, operator, array)`` with every output of every operator of further
        calls, and with `monitor_all` also with their inputs; None removes it.
        """
        if callback is None:
            self._graph.set_monitor(None, False)
            return
        nodes = self._symbol.graph().nodes
        operators = {node.name: node.op for node in nodes if node.op != "null"}

        def call(name: str, array: NDArray) -> None:
            node = name
            while node not in operators and "_" in node:
                node = node.rpartition("_")[0]
            if node in operators:  # not what a variable holds
                callback(name, operators[node], array)

        self._graph.set_monitor(call, bool(monitor_all))
