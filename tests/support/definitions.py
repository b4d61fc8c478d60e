"""Operators by attributes, for tests."""

import itertools

from rsnet import op

_count = itertools.count()


def fresh():
    """A name that no operator has."""
    return f"t_doors_{next(_count)}"


def double(attrs, ctx, inputs, req, outputs):
    op.assign(outputs[0], req[0], 2 * inputs[0])


def computed(name):
    """A record with a way to compute."""
    entry = op.register(name).set_attr("FInferShape", op.ElemwiseShape(-1, 1))
    return entry.set_attr("FCompute<cpu>", double)
