"""Arguments of user operators that may be absent, several, or lists."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op

X = np.array([-2, -1, 0, 1, 2], "float32")


def like(out, inp):
    return lambda ctx: ctx.out(out).like(ctx.inp(inp))


def scale_and_shift(ctx):
    y = ctx.inp("x") * 2
    ctx.out("out")[:] = y + ctx.inp("shift") if ctx.count("shift") else y


op.define("t_shift", inputs="x, shift?", infer=like("out", "x"))
op.kernel("t_shift")(scale_and_shift)


def test_an_optional_input_may_be_there_or_not():
    x, b = nd.array(X), nd.ones((5,))
    assert nd.t_shift(x).asnumpy().tolist() == (2 * X).tolist()
    assert nd.t_shift(x, b).asnumpy().tolist() == (2 * X + 1).tolist()
    builder = mx.user_op_builder("o").Op("t_shift").Input("x", [x]).Output("out")
    assert builder.Build().SoleOutputBlob().asnumpy().tolist() == (2 * X).tolist()
    y = builder.Input("shift", [b]).Build().InferAndTryRun().SoleOutputBlob()
    assert y.asnumpy().tolist() == (2 * X + 1).tolist()
    s = mx.sym.t_shift(mx.sym.Variable("x"), mx.sym.Variable("b"))
    assert s.list_arguments() == ["x", "b"]
    exe = s.bind(mx.cpu(), {"x": x, "b": b})
    assert exe.forward()[0].asnumpy().tolist() == (2 * X + 1).tolist()


op.define("t_many", inputs="x, more*5+?", infer=like("out", "x"))


@op.kernel("t_many")
def _(ctx):
    total = ctx.inp("x")
    for i in range(ctx.count("more")):
        total = total + ctx.inp("more", i)
    ctx.out("out")[:] = total


@op.grad("t_many")
def _(ctx):
    ctx.bind("x", lambda: ctx.grad("out"))
    for i in range(ctx.count("more")):
        ctx.bind(("more", i), lambda i=i: ctx.grad("out") * float(i + 2))


@pytest.mark.parametrize("n", [0, 5, 7])
def test_none_or_at_least_five(n):
    x, more = nd.array(X), [nd.full((5,), i) for i in range(n)]
    for m in more:
        m.attach_grad()
    with autograd.record():
        y = nd.t_many(x, *more)
    assert y.asnumpy().tolist() == (X + n * (n - 1) / 2).tolist()
    if n:
        y.backward()
        assert [m.grad.asnumpy()[0] for m in more] == [float(i + 2) for i in range(n)]
    builder = mx.user_op_builder("m").Op("t_many").Input("x", [x]).Output("out")
    built = (builder.Input("more", more) if n else builder).Build()
    assert built.SoleOutputBlob().asnumpy().tolist() == y.asnumpy().tolist()


@pytest.mark.parametrize("n", [1, 4])
def test_some_but_fewer_than_five(n):
    more = [nd.ones((5,))] * n
    with pytest.raises(MXNetError, match=f"'more' {n}: expected at least 5 or none"):
        nd.t_many(nd.array(X), *more)


def test_an_optional_input_goes_by_its_name():
    op.define("user_op_maybe", inputs="x, w?", infer=lambda ctx: ctx.out("out").like(ctx.inp("x")))

    @op.kernel("user_op_maybe")
    def _(ctx):
        ctx.out("out")[:] = ctx.inp("x") * 2

    x, w = nd.ones((2,)), nd.full((2,), 3.0)
    for y in (nd.user_op_maybe(x), nd.user_op_maybe(x, w=w), nd.user_op_maybe(x=x, w=w)):
        assert y.asnumpy().tolist() == [2, 2]
    s = mx.sym.user_op_maybe(x=mx.sym.var("a"), w=mx.sym.var("b"))
    assert s.list_arguments() == ["a", "b"]


def test_two_open_ended_inputs_are_shared_out_by_the_caller():
    op.define(
        "t_two_open", inputs="x*2+, y*1+", infer=lambda ctx: ctx.out("out").like(ctx.inp("x"))
    )
    seen = []

    @op.kernel("t_two_open")
    def _(ctx):
        seen.append((ctx.count("x"), ctx.count("y")))
        ctx.out("out")[:] = 0

    arrays = [nd.array([k]) for k in range(5)]
    nd.t_two_open(*arrays[:3]).asnumpy()
    nd.t_two_open(*arrays, arg_counts=(2, 3)).asnumpy()
    assert seen == [(2, 1), (2, 3)]
    with pytest.raises(MXNetError, match=r"x and y take any number.*arg_counts, .* x, y"):
        nd.t_two_open(*arrays)
    with pytest.raises(
        MXNetError, match="invalid number of inputs 1: expected at least 3, 2 of 'x', 1 of 'y'"
    ):
        nd.t_two_open(arrays[0])
