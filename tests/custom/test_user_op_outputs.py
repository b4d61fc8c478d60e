"""Outputs of user operators in all forms, and what a gradient function learns of operands."""

import itertools

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op

_count = itertools.count()
X = np.array([1, 2, 3], "float32")


def pieces(outputs):
    """An operator whose array ``i`` of all outputs is the input plus ``i``."""
    name = f"t_outputs{next(_count)}"
    args = [form.strip().split("*")[0].rstrip("?") for form in outputs.split(",")]
    op.define(name, inputs="in", outputs=outputs, infer=lambda ctx: None)

    @op.kernel(name)
    def _(ctx):
        places = [(arg, i) for arg in args for i in range(ctx.count(arg))]
        for n, (arg, i) in enumerate(places):
            ctx.out(arg, i)[:] = ctx.inp("in") + n

    op.grad(name)(lambda ctx: ctx.bind("in", lambda: ctx.grad(args[0]) * 3.0))
    return name


def listed(result):
    return [r.asnumpy().tolist() for r in (result if isinstance(result, list) else [result])]


@pytest.mark.parametrize(
    ("outputs", "given", "n"),
    [
        ("a", None, 1), ("a*3", None, 3), ("a*2+", None, 2), ("a*2+", (4,), 4),
        ("a, b?", None, 1), ("a, b?", (1, 1), 2), ("a, b*2?", (1, 2), 3), ("a, b*2+?", (1, 3), 4),
        ("a, b*2+?", (1, 0), 1), ("a?, b", (1, 1), 2),
    ],
)  # fmt: skip
def test_calls_and_graphs(outputs, given, n):
    name = pieces(outputs)
    params = {} if given is None else {"out_counts": given}
    want = [(X + i).tolist() for i in range(n)]
    assert listed(getattr(nd, name)(nd.array(X), **params)) == want
    symbol = getattr(mx.sym, name)(mx.sym.Variable("x"), **params)
    assert len(symbol.list_outputs()) == n
    exe = mx.sym.load_json(symbol.tojson()).simple_bind(mx.cpu(), grad_req="null", x=(3,))
    exe.arg_dict["x"][:] = X
    assert listed(exe.forward()) == want


def test_the_builder_declares_them():
    name = pieces("a, b*2+?")
    b = mx.user_op_builder("y").Op(name).Input("in", [nd.array(X)])
    three = b.Output("a").Output("b", 2).Build().InferAndTryRun()
    assert listed(list(three.RemoteBlobList())) == [(X + i).tolist() for i in range(3)]
    assert three.conf["output"] == {"a": ["y/a_0"], "b": ["y/b_0", "y/b_1"]}


@pytest.mark.parametrize(
    ("outputs", "given", "says"),
    [
        ("a*2+", (1,), "argument 'a' 1: expected at least 2"),
        ("a, b*2?", (1, 1), "argument 'b' 1: expected 2 or none"),
        ("a, b?", (1,), "invalid out_counts \\(1,\\): expected 2 numbers, for a, b"),
        ("a?", None, "number of outputs 0: expected at least 1"),
    ],
)
def test_numbers_that_do_not_fit(outputs, given, says):
    name = pieces(outputs)
    with pytest.raises(MXNetError, match=says):
        getattr(nd, name)(nd.array(X), **({} if given is None else {"out_counts": given}))


def test_gradients_of_outputs_that_vary():
    name = pieces("a*1+")
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        first, _, _ = getattr(nd, name)(x, out_counts=(3,))
    first.backward()
    assert x.grad.asnumpy().tolist() == [3, 3, 3]


def test_a_gradient_function_learns_name_shapes_and_types():
    name, seen = pieces("a"), []
    other = f"t_outputs{next(_count)}"
    op.define(other, inputs="in", infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
    op.kernel(other)(lambda ctx: ctx.assign("out", ctx.inp("in")))

    @op.grad(other)
    def _(ctx):
        fw = ctx.FwOp()
        try:
            desc = fw.arg_tensor_desc("in", 0)
            seen.append((fw.op_name(), desc.shape, desc.dtype))
        except MXNetError as error:
            seen.append((fw.op_name(), str(error)))
        ctx.bind("in", lambda: ctx.grad("out"))

    x = nd.ones((2, 3), dtype="float64")
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, other)(x)
    y.backward()
    assert seen == [(other, (2, 3), np.float64)]
    getattr(mx.sym, other)(mx.sym.Variable("x"), name="n").simple_bind(mx.cpu(), x=(2, 3))
    assert seen[1][0] == "n" and "not known while a graph is differentiated" in seen[1][1]
    assert name


def test_the_builder_leaves_out_optional_outputs_that_are_not_declared():
    name = pieces("a*2, b?, c*1+")
    b = mx.user_op_builder("o").Op(name).Input("in", [nd.array(X)])
    made = b.Output("c", 2).Output("a", 2).Build().InferAndTryRun()
    assert listed(list(made.RemoteBlobList())) == [(X + i).tolist() for i in (2, 3, 0, 1)]
    assert made.RemoteBlobDict()["b"] == []


@pytest.mark.parametrize("module", [nd, mx.sym])
def test_more_outputs_than_an_operator_can_have_are_refused_at_once(module):
    name = pieces("c*1+")
    x = nd.array(X) if module is nd else mx.sym.Variable("x")
    with pytest.raises(MXNetError, match="sum of out_counts 10000000000: expected at most"):
        getattr(module, name)(x, out_counts=[10**10])
