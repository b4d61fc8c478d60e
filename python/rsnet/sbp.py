"""SBP: how the tensors of an operator may be distributed over ranks.

A tensor on p ranks is split along an axis (``S(axis)``: the pieces, concatenated, are the tensor),
broadcast (``B``: each rank has a copy) or a partial sum (``P``: the tensors of the ranks add up to
it). A signature says so for every input and output of an operator. ``op.define(..., sbp=...)``
takes the signatures of a user operator: a function of a :class:`SbpContext`, or rules as text.
They are computed and checked whenever the operator is inferred for shapes that are new to it; a run
on one machine has no other use of them. ``signatures`` returns them.

>>> import rsnet as mx
>>> def rules(ctx):
...     for axis in range(ctx.LogicalTensorDesc4InputArgNameAndIndex("in", 0).NumAxes()):
...         ctx.NewBuilder().Split(mx.sbp.OpArg("in", 0), axis).Split(
...             mx.sbp.OpArg("out", 0), axis).Build()
>>> _ = mx.op.define("doc_sbp", inputs="in", sbp=rules,
...                  infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
>>> mx.sbp.signatures("doc_sbp", (4, 5))
[in:S(0) out:S(0), in:S(1) out:S(1), in:B out:B]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._operators import publish, registry
from ._operators.user.signatures import Signatures
from ._sbp.context import SbpContext, SignatureBuilder
from ._sbp.rules import SplitForEachAxis, elementwise, linear
from ._sbp.signature import B, OpArg, P, S, Sbp, Signature, TensorDesc
from .base import MXNetError
from .sbp_rules import RULES, by_table

__all__ = [
    "Sbp", "B", "P", "S", "OpArg", "SbpContext", "Signature", "SignatureBuilder",
    "SplitForEachAxis", "TensorDesc", "elementwise", "linear", "signatures",
]  # fmt: skip


def _shape(op: str, i: int, given: Any) -> tuple[int, ...]:
    shape = getattr(given, "shape", given)
    is_shape = isinstance(shape, tuple | list) and all(
        isinstance(extent, int | np.integer) and not isinstance(extent, bool) and extent >= 0
        for extent in shape
    )
    if not is_shape:
        raise MXNetError(
            f"{op}: invalid input {i}, {given!r}: expected an array or a shape, a tuple of int"
        )
    return tuple(map(int, shape))


def signatures(op: str, *inputs: Any, **attrs: Any) -> list[Signature]:
    """The valid signatures of an operator for inputs of these shapes.

    Parameters
    ----------
    op : str
        A user operator, or one of those of `rsnet.sbp_rules.RULES`.
    *inputs : tuple of int or NDArray
        Shapes, of type float32, or arrays.
    **attrs
        The operator's attributes.

    Returns
    -------
    list of Signature
        The last is always all broadcast.

    Raises
    ------
    MXNetError
        The operator has no rules here, or inputs and attributes do not fit it.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.sbp.signatures("relu", (4, 5))
    [data:S(0) out:S(0), data:S(1) out:S(1), data:B out:B]
    """
    shapes = [_shape(op, i, x) for i, x in enumerate(inputs)]
    types = [np.dtype(getattr(x, "dtype", "float32")).name for x in inputs]
    d = registry.user_operators.get(op)
    # OneFlow's own operators, which are hidden here, have no rules of their own.
    if d is None or (d.registered != op and op in RULES):
        if op not in RULES:
            raise MXNetError(
                f"invalid operator '{op}': expected a user operator, or one of {', '.join(RULES)}"
            )
        return by_table(op, shapes, attrs)
    values = {k: d.attrs[k].normal(op, k, v) if k in d.attrs else v for k, v in attrs.items()}
    counts = d.share_out(len(shapes)) if d.variable else {}
    conf = d.conf(counts, values)
    if len(conf.facts.inputs) != len(shapes):
        raise MXNetError(f"{op}: {len(shapes)} inputs given, expected {len(conf.facts.inputs)}")
    found = d.infer(conf, shapes, types)
    return (d.signatures or Signatures(d, []))(conf, shapes, *found)


publish(__name__, [globals()[name] for name in __all__])
