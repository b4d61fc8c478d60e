"""Misspelt operators, parameters and attributes: the nearest is proposed, in one line."""

import copy
import subprocess
import sys

import pytest

import rsnet as mx
from rsnet import MXNetError, engine, nd, op


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: nd.Convolutoin, "'Convolutoin', did you mean 'Convolution'?"),
        (lambda: mx.sym.FullyConected, "not registered, did you mean 'FullyConnected'?"),
        (lambda: nd.no_such_thing_at_all, "has no attribute 'no_such_thing_at_all'"),
    ],
)
def test_operators(call, says):
    with pytest.raises(AttributeError) as caught:
        call()
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["imdecode", "cast_storage", "IdentityAttachKLSparseReg"])
def test_functions_of_mxnet_that_are_missing(name):
    for module in (nd, mx.sym):
        if hasattr(module, name):
            continue
        with pytest.raises(AttributeError, match=f"MXNet's `{name}` is not in rsnet yet") as caught:
            getattr(module, name)
        assert "did you mean" not in str(caught.value)


def test_parameters():
    with pytest.raises(MXNetError) as caught:
        nd.Convolution(nd.ones((1, 1, 4, 4)), kernal=(2, 2), num_filter=1)
    text = str(caught.value).split("\n")[0]
    assert "unknown parameter 'kernal': did you mean 'kernel'? expected one of: " in text
    assert "num_filter" in text and "did you mean" not in _text(lambda: nd.relu(nd.ones(1), q=1))


def _text(call):
    try:
        call()
    except MXNetError as error:
        return str(error)
    return ""


def test_attributes_of_user_operators():
    op.define("t_near", inputs="in", attrs={"slope": op.Attr(float, 0.0)},
              infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))  # fmt: skip
    op.kernel("t_near")(lambda ctx: ctx.attr("slop"))
    with pytest.raises(MXNetError, match="t_near: unknown attribute 'slop': did you mean 'slope'"):
        nd.t_near(nd.ones((1,))).wait_to_read()


def test_a_graph_with_an_unknown_operator():
    text = mx.sym.relu(mx.sym.Variable("x")).tojson().replace('"relu"', '"Correlation9"')
    with pytest.raises(MXNetError, match="operator Correlation9 is not registered") as caught:
        mx.sym.load_json(text)
    assert "your own" not in str(caught.value)


def test_a_copy_of_a_variable_is_the_variable():
    v = engine.new_variable()
    assert copy.copy(v) is v and copy.deepcopy({"v": v})["v"] is v


@pytest.mark.process
def test_op_defines_no_operators_of_oneflow():
    code = (
        "from rsnet import op, user_op; from rsnet._operators import registry; "
        "assert not registry.user_operators; "
        "assert user_op.definition('multiply').name == 'multiply'; "
        "import rsnet; assert rsnet.user_op_builder is user_op.user_op_builder"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.process
def test_contexts_of_gradients_are_of_one_class_whatever_is_imported():
    code = """
import sys
from rsnet import autograd, nd, op, user_op
op.define("one", inputs="in", infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
op.kernel("one")(lambda ctx: ctx.assign("out", ctx.inp("in")))
seen = []
@op.grad("one")
def _(ctx):
    seen.append((type(ctx), "rsnet.oneflow" in sys.modules))
    if len(seen) > 1:
        seen.append((type(ctx.FwOp().attr.__self__), "rsnet.oneflow" in sys.modules))
    ctx.bind("in", lambda: ctx.grad("out"))
for _ in range(3):
    x = nd.ones(2)
    x.attach_grad()
    with autograd.record():
        y = nd.one(x)
    y.backward()
assert {kind for kind, _ in seen} == {user_op.GradContext}, seen
assert [loaded for _, loaded in seen] == [False, False, True, True, True], seen
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_misspelt_method_of_a_gradient_context_gets_a_near_name():
    op.define("near_gradient", inputs="in", outputs="out",
              infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))  # fmt: skip

    @op.kernel("near_gradient", where=op.device("cpu"))
    def run(ctx):
        ctx.out("out")[:] = ctx.inp("in")

    @op.grad("near_gradient")
    def back(ctx):
        ctx.bind("in", lambda: ctx.gradd("out"))

    x = nd.ones(2)
    x.attach_grad()
    with mx.autograd.record():
        y = nd.near_gradient(x)
    with pytest.raises(AttributeError, match=r"no attribute 'gradd', did you mean 'grad'\?"):
        y.backward()
        x.grad.wait_to_read()


def test_kernels_of_a_misspelt_operator_are_found():
    op.define("near_kernel", inputs="in", infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
    op.kernel("near_kernel")(lambda ctx: ctx.assign("out", ctx.inp("in")))
    assert "wait" not in op.why("near_kernel", nd.ones(2))
    op.kernel("near_kernl")(lambda ctx: ctx.assign("out", ctx.inp("in")))
    says = "kernels or gradients wait for the definition of 'near_kernl'"
    assert op.why("near_kernel", nd.ones(2)).splitlines()[-1] == says
    for ask in (op.why, op.kernels):
        with pytest.raises(KeyError, match=r"no op.define says .*, did you mean 'near_kernel'\?"):
            ask("near_kernl")
