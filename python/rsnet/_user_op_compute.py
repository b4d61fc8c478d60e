"""What the kernel of a user operator sees, and its scratch memory; see ``user_op.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._user_op_def import Conf
from .base import MXNetError


class ComputeContext:
    """What a kernel sees.

    ``inp(name, i=0)`` and ``out(name, i=0)`` are NDArrays over the operands' memory, valid until the
    kernel returns; inputs are read-only, and outputs are written by assigning to their elements
    (requests are honoured behind that). ``tmp`` is the scratch memory (NDArray of uint8) or None,
    ``state`` what ``state=`` made, ``stream`` None on the CPU. An argument, number or attribute that
    there is not is an MXNetError.

    >>> from rsnet import nd, op
    >>> _ = op.define("doc_mean", inputs="in*1+", infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
    >>> @op.kernel("doc_mean")
    ... def _(ctx):
    ...     n = ctx.count("in")
    ...     ctx.out("out")[:] = sum(ctx.inp("in", i) for i in range(n)) / n
    >>> nd.doc_mean(nd.array([1, 2]), nd.array([3, 6])).asnumpy()
    array([2., 4.], dtype=float32)
    """

    __slots__ = ("conf", "ctx", "ins", "req", "outs", "tmp", "state")

    def __init__(self, conf: Conf, ctx: Any, ins: Any, req: Any, outs: Any) -> None:
        self.conf, self.ctx, self.ins, self.req, self.outs = conf, ctx, ins, req, outs
        self.tmp: Any = None
        self.state: Any = None

    def inp(self, name: str, i: int = 0) -> Any:
        """Input array; read it only."""
        return self.ins[self.conf.position(name, i, self.conf.definition.inputs)]

    def out(self, name: str, i: int = 0) -> Any:
        """Output array: assign to its elements."""
        return self.outs[self.conf.position(name, i, self.conf.definition.outputs)]

    def attr(self, name: str) -> Any:
        """The value of an attribute, in the normal form of its kind."""
        return self.conf.attr(name)

    def count(self, name: str) -> int:
        """How many arrays the argument has."""
        return self.conf.counts[name]

    @property
    def stream(self) -> Any:
        """The stream of the device: None on the CPU."""
        return self.ctx.stream

    @property
    def is_train(self) -> bool:
        """Is it a run in training mode?"""
        return self.ctx.is_train


def scratch(k: Any, context: ComputeContext) -> Any:
    """The scratch memory that kernel ``k`` asks for; None for no bytes."""
    given = k.tmp(context) if callable(k.tmp) else k.tmp
    n = checked_bytes(f"{context.conf.definition.name}: kernel {k.name}", given)
    if n == 0:
        return None
    from . import ndarray as nd

    return nd.empty((n,), dtype="uint8")


def checked_bytes(where: str, n: Any) -> int:
    """``n`` if it is a size of scratch memory."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 0 <= n < 2**63:
        raise MXNetError(f"{where}: tmp is {n!r}, expected bytes: 0 to 2**63 - 1")
    return int(n)
