"""Inference and gradients that attribute functions share: ``ElemwiseShape`` and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base import MXNetError
from .attrs import Attrs, GradNode
from .checks import invalid
from .gradient import GradEntry, Source


def shape_is_known(shape: Sequence[int] | None) -> bool:
    """Is every extent known? () and None are unknown shapes, 0 an unknown extent."""
    return bool(shape) and all(d > 0 for d in shape)  # type: ignore[union-attr]


def shape_assign(shapes: list[Any], i: int, shape: Sequence[int] | None) -> bool:
    """Merges what ``shape`` knows into ``shapes[i]``; an error if both know and disagree.

    Returns whether ``shapes[i]`` is known completely.
    """
    new = tuple(shape or ())
    old = tuple(shapes[i] or ())
    if new and old:
        if len(new) != len(old) or any(a and b and a != b for a, b in zip(old, new)):
            raise MXNetError(f"invalid shape {new} of entry {i}: expected {old}, known already")
        new = tuple(a or b for a, b in zip(old, new))
    shapes[i] = new or old
    return shape_is_known(shapes[i])


def type_assign(types: list[Any], i: int, dtype: Any) -> bool:
    """Sets ``types[i]`` if it is unknown; an error if it is known and different.

    Returns whether ``types[i]`` is known.
    """
    if dtype is not None:
        if types[i] is not None and np.dtype(types[i]) != np.dtype(dtype):
            new, old = np.dtype(dtype).name, np.dtype(types[i]).name
            raise MXNetError(f"invalid dtype '{new}' of entry {i}: expected {old}, known already")
        types[i] = np.dtype(dtype).type
    return types[i] is not None


def ElemwiseShape(n_in: int, n_out: int) -> Callable[..., bool]:
    """Inference for operators whose inputs and outputs all have one shape."""
    return _alike(n_in, n_out, (), "shape", shape_assign, str)


def ElemwiseType(n_in: int, n_out: int) -> Callable[..., bool]:
    """Inference for operators whose inputs and outputs all have one element type."""
    return _alike(n_in, n_out, None, "dtype", type_assign, lambda t: np.dtype(t).name)


def _alike(
    n_in: int, n_out: int, unknown: Any, what: str, merge: Callable[..., bool],
    shown: Callable[[Any], str],
) -> Callable[..., bool]:  # fmt: skip
    """Inference by ``merge``, which takes over what each operand knows or fails."""

    def infer(attrs: Any, ins: list[Any], outs: list[Any]) -> bool:
        for kind, items, n in (("inputs", ins, n_in), ("outputs", outs, n_out)):
            if n >= 0 and len(items) != n:
                raise invalid(attrs.operator, f"number of {kind}", len(items), n)
        common, known = [unknown], False
        for kind, items in (("input", ins), ("output", outs)):
            for i, item in enumerate(items):
                try:
                    known = merge(common, 0, item)
                except MXNetError:
                    got, expected = shown(item), shown(common[0])
                    raise invalid(attrs.operator, f"{what} of {kind} {i}", got, expected) from None
        ins[:], outs[:] = common * len(ins), common * len(outs)
        return known

    return infer


class OneBackward(NamedTuple):
    """A gradient that one backward operator computes; it reads the output gradients, and also the
    inputs and outputs where that is said.
    """

    backward: str
    inputs: bool
    outputs: bool

    def __call__(self, node: GradNode, out_grads: Sequence[GradEntry]) -> list[GradEntry]:
        inputs = node.inputs if self.inputs else []
        outputs = node.outputs if self.outputs else []
        return node.backward(self.backward, [*out_grads, *inputs, *outputs])

    def deps(self, attrs: Attrs, n_in: int, n_out: int) -> list[tuple[Source, int]]:
        """What the backward operator reads, for the core."""
        counts = (n_out, n_in if self.inputs else 0, n_out if self.outputs else 0)
        sources = zip((Source.OUT_GRAD, Source.INPUT, Source.OUTPUT), counts)
        return [(source, i) for source, n in sources for i in range(n)]


def ElemwiseGradUseNone(backward: str) -> OneBackward:
    """Gradient by the operator ``backward`` over the output gradients alone.

    It is given the same parameters, as text: a backward operator (``TIsBackward``) registered here
    gets what was parsed of them, any other operator parses them for itself.

    >>> from rsnet import autograd, nd, op
    >>> _ = (op.register("doc_scale").set_attr_parser(dict)
    ...      .set_attr("FInferShape", op.ElemwiseShape(1, 1))
    ...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
    ...                op.assign(outputs[0], req[0], inputs[0] * float(attrs["scalar"])))
    ...      .set_attr("FGradient", op.ElemwiseGradUseNone("_mul_scalar")))
    >>> x = nd.array([1, 2])
    >>> x.attach_grad()
    >>> with autograd.record():
    ...     y = nd.doc_scale(x, scalar=3)
    >>> y.backward()
    >>> x.grad.asnumpy().tolist()
    [3.0, 3.0]
    """
    return OneBackward(backward, False, False)


def ElemwiseGradUseIn(backward: str) -> OneBackward:
    """Gradient by the operator ``backward`` over the output gradients and the inputs."""
    return OneBackward(backward, True, False)


def ElemwiseGradUseOut(backward: str) -> OneBackward:
    """Gradient by the operator ``backward`` over the output gradients and the outputs."""
    return OneBackward(backward, False, True)


def ElemwiseGradUseInOut(backward: str) -> OneBackward:
    """Gradient by the operator ``backward`` over the output gradients, inputs and outputs."""
    return OneBackward(backward, True, True)
