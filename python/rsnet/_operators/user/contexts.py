"""The contexts of inference, kernel and gradient functions of user operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import MXNetError, MXTypeError
from ..checks import invalid, lookup
from ..operands import assign
from ..requests import OpReq
from .arguments import Conf


class _Context:
    """Operands by argument name and index, and the attributes."""

    __slots__ = ("conf", "ins", "outs")

    def __init__(self, conf: Conf, ins: Any, outs: Any) -> None:
        self.conf, self.ins, self.outs = conf, ins, outs

    def inp(self, name: str, i: int = 0) -> Any:
        """Array ``i`` of an input argument; read-only."""
        return self.ins[self.conf.input(name, i)]

    def out(self, name: str, i: int = 0) -> Any:
        """Array ``i`` of an output argument."""
        return self.outs[self.conf.output(name, i)]

    def attr(self, name: str) -> Any:
        """The value of an attribute, in the normal form of its kind."""
        return self.conf.attr(name)

    def count(self, name: str) -> int:
        """Number of arrays of an argument."""
        n: int = lookup(self.conf.definition.name, "argument", name, self.conf.counts)
        return n


class ShapeUnknown(MXNetError):
    """A function of types and shapes read a shape where types alone are known."""


#: The shape of an input while a graph is asked for its types alone.
UNKNOWN: Any = object()


class OperandDesc:
    """Shape and element type of an input or output."""

    __slots__ = ("_shape", "dtype")

    def __init__(self, shape: Any, dtype: Any) -> None:
        self._shape, self.dtype = shape, dtype

    @property
    def shape(self) -> Any:
        """The extents, a tuple of int."""
        if self._shape is UNKNOWN:
            raise ShapeUnknown("infer reads a shape that is not known yet")
        return self._shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        self._shape = shape

    def like(self, other: OperandDesc) -> OperandDesc:
        """Takes over shape and type of ``other``."""
        if not isinstance(other, OperandDesc):
            described = "an input or output, such as ctx.inp('in')"
            raise invalid("infer", "argument of like", other, described, MXTypeError)
        self._shape, self.dtype = other._shape, other.dtype
        return self


class InputDesc(OperandDesc):
    """Shape and element type of an input, which cannot be set."""

    __slots__ = ()

    def __init__(self, shape: Any, dtype: Any) -> None:
        object.__setattr__(self, "_shape", shape)
        object.__setattr__(self, "dtype", dtype)

    def __setattr__(self, name: str, value: Any) -> None:
        raise MXTypeError(f"infer: invalid write of the {name} of an input: expected an output")


class InferContext(_Context):
    """What ``infer`` and ``infer_dtype`` see.

    ``inp(name, i=0)`` and ``out(name, i=0)`` have a ``shape`` (tuple of int) and a ``dtype`` (NumPy
    type); those of inputs are read-only. Outputs start as copies of the first input; the function
    sets what is different, or calls ``out.like(inp)``. An unknown argument and an index out of
    range are MXNetErrors.

    >>> from rsnet import nd, op
    >>> def infer(ctx):
    ...     n, c = ctx.inp("in").shape
    ...     ctx.out("out").shape = (n,)
    ...     ctx.out("out").dtype = "int32"
    >>> _ = op.define("doc_rows", inputs="in", infer=infer)
    >>> @op.kernel("doc_rows")
    ... def _(ctx):
    ...     ctx.out("out")[:] = ctx.inp("in").asnumpy().argmax(1)
    >>> nd.doc_rows(nd.array([[1, 3], [5, 2]])).asnumpy().tolist()
    [1, 0]
    """

    __slots__ = ()

    def __init__(self, conf: Conf, shapes: Sequence[Any], types: Sequence[Any]) -> None:
        ins = [InputDesc(s, t) for s, t in zip(shapes, types)]
        first: OperandDesc = ins[0] if ins else OperandDesc(None, None)
        outs = [OperandDesc(None, None).like(first) for _ in conf.facts.outputs]
        super().__init__(conf, ins, outs)


class ComputeContext(_Context):
    """What a kernel sees.

    ``inp(name, i=0)`` and ``out(name, i=0)`` are NDArrays over the operands' memory, valid until
    the kernel returns; inputs are read-only, and outputs are written by assigning to their elements
    (requests are honoured). ``tmp`` is the scratch memory (NDArray of uint8) or None, ``state``
    what ``state=`` made, ``stream`` None on the CPU. An unknown argument or attribute is an
    MXNetError.

    >>> from rsnet import nd, op
    >>> _ = op.define("doc_mean", inputs="in*1+",
    ...               infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
    >>> @op.kernel("doc_mean")
    ... def _(ctx):
    ...     n = ctx.count("in")
    ...     ctx.out("out")[:] = sum(ctx.inp("in", i) for i in range(n)) / n
    >>> nd.doc_mean(nd.array([1, 2]), nd.array([3, 6])).asnumpy()
    array([2., 4.], dtype=float32)
    """

    __slots__ = ("ctx", "req", "tmp", "state")

    def __init__(self, conf: Conf, ctx: Any, ins: Any, req: Any, outs: Any) -> None:
        super().__init__(conf, ins, outs)
        self.ctx, self.req = ctx, req
        self.tmp: Any = None
        self.state: Any = None

    def request(self, name: str, i: int = 0) -> OpReq:
        """What is asked of array ``i`` of an output argument.

        ``add`` occurs only if the kernel is registered with ``accumulates=True``.
        """
        req: OpReq = self.req[self.conf.output(name, i)]
        return req

    def assign(self, name: str, value: Any, i: int = 0) -> None:
        """Stores ``value`` in an output as the request asks."""
        assign(self.out(name, i), self.request(name, i), value)

    @property
    def stream(self) -> Any:
        """The stream of the device: None on the CPU."""
        return self.ctx.stream

    @property
    def is_train(self) -> bool:
        """Whether the run is in training mode."""
        return bool(self.ctx.is_train)
