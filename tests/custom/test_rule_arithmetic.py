"""Arithmetic on the entries of a gradient rule computes what arrays compute."""

import operator
from itertools import count

import numpy as np
import pytest

from rsnet import autograd, nd, op

_number = count()
ARITHMETIC = ["add", "sub", "mul", "truediv", "mod", "pow"]
COMPARISONS = ["eq", "ne", "gt", "ge", "lt", "le"]


def by_rule(f):
    """The gradient that the rule `f(a, b)` gives to `a`, for a gradient of ones."""
    name = f"t_rule_{next(_number)}"
    op.define(name, inputs="a, b", infer=lambda ctx: ctx.out("out").like(ctx.inp("a")))
    op.kernel(name)(lambda ctx: ctx.assign("out", ctx.inp("a")))

    @op.grad(name)
    def _(ctx):
        ctx.bind("a", lambda: ctx.grad("out") * f(ctx.inp("a"), ctx.inp("b")))
        ctx.bind("b", lambda: ctx.op("zeros_like", ctx.inp("b")))

    a, b = nd.array([1, 2, 3]), nd.array([3, 2, 1])
    a.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(a, b)
    y.backward()
    return a.grad.asnumpy()


def by_arrays(f):
    return np.broadcast_to(f(nd.array([1, 2, 3]), nd.array([3, 2, 1])).asnumpy(), (3,))


@pytest.mark.parametrize("name", ARITHMETIC + COMPARISONS)
def test_entries_and_numbers(name):
    function = getattr(operator, name)
    for f in (
        lambda a, b: function(a, b),
        lambda a, b: function(a, 2),
        lambda a, b: function(a, np.float32(2)),
        lambda a, b: function(2, a),
    ):
        np.testing.assert_allclose(by_rule(f), by_arrays(f), rtol=1e-6)


def test_signs():
    np.testing.assert_array_equal(by_rule(lambda a, b: abs(-a) - b), [-2, 0, 2])


def test_other_operands_are_refused():
    with pytest.raises(TypeError):
        by_rule(lambda a, b: a + "1")
