"""User operators: the tutorial's operators, kernels and their choice, gradients, the builder,
jobs.
"""

import json

import numpy as np
import pytest

import rsnet as mx
import rsnet.oneflow as flow
import rsnet.oneflow.typing as tp
from rsnet import MXNetError, autograd, nd, op, user_op

X = np.array([-2, -1, 0, 1, 2], "float32")


def like(out, inp):
    return lambda ctx: ctx.out(out).like(ctx.inp(inp))


op.define("myrelu", inputs="in", outputs="out", infer=like("out", "in"))
op.define("myrelu_grad", inputs="y, dy", outputs="dx", infer=like("dx", "y"))
op.define("myop", inputs="in", outputs="out", infer=like("out", "in"))


@op.kernel(
    "myrelu",
    where=op.device("cpu") & op.dtype("out").is_in("float32", "float64"),
    inplace=[("out", "in")],
)
def _(ctx):
    ctx.out("out")[:] = np.maximum(np.asarray(ctx.inp("in")), 0)


@op.kernel("myrelu_grad", where=op.device("cpu"))
def _(ctx):
    ctx.out("dx")[:] = ctx.inp("dy") * (ctx.inp("y") > 0)


@op.grad("myrelu")
def _(ctx):
    ctx.bind("in", lambda: ctx.op("myrelu_grad", ctx.out("out"), ctx.grad("out")))


@op.kernel("myop")
def _(ctx):
    x = ctx.inp("in")
    ctx.out("out")[:] = 3 * x * x


@op.grad("myop")
def myop_grad(ctx):
    n1, n2 = ctx.op_name + "_grad1", ctx.op_name + "_grad2"
    ctx.define(
        n1,
        lambda b: (
            b.OpTypeName("multiply")
            .InputBind("x", ctx.FwOp().input("in", 0))
            .InputBind("y", ctx.FwOp().output_grad("out", 0))
            .Output("out")
            .Build()
        ),
    )
    ctx.define(
        n2,
        lambda b: (
            b.OpTypeName("scalar_mul")
            .InputBind("in", ctx.GetOp(n1).output("out", 0))
            .Attr("has_float_operand", True)
            .Attr("has_int_operand", False)
            .Attr("float_operand", 6.0)
            .Attr("int_operand", 6)
            .Output("out")
            .Build()
        ),
    )
    ctx.FwOp().InputGradBind(("in", 0), lambda: ctx.GetOp(n2).output("out", 0))


def built(name, x, **attrs):
    b = mx.user_op_builder("op_" + name).Op(name).Input("in", [x]).Output("out")
    for key, value in attrs.items():
        b = b.Attr(key, value)
    return b.Build().InferAndTryRun().SoleOutputBlob()


def test_tutorial_values():
    np.testing.assert_array_equal(built("myrelu", nd.array(X)).asnumpy(), [0, 0, 0, 1, 2])
    np.testing.assert_array_equal(built("myop", nd.array(X)).asnumpy(), [12, 3, 0, 3, 12])
    np.testing.assert_array_equal(nd.myrelu(nd.array(X)).asnumpy(), [0, 0, 0, 1, 2])


@pytest.mark.parametrize(
    ("name", "want"), [("myop", [-12, -6, 0, 6, 12]), ("myrelu", [0, 0, 0, 1, 1])]
)
def test_training_by_tape_and_executor(name, want):
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(x)
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), want)
    s = built(name, mx.sym.Variable("x"))
    exe = s.simple_bind(mx.cpu(), x=(5,))
    exe.arg_dict["x"][:] = X
    exe.forward(is_train=True)
    exe.backward(nd.ones((5,)))
    np.testing.assert_array_equal(exe.grad_dict["x"].asnumpy(), want)


def test_short_gradient_form():
    op.define("t_square3", inputs="in", infer=like("out", "in"))
    op.kernel("t_square3")(
        lambda ctx: ctx.out("out").__setitem__(slice(None), 3 * ctx.inp("in") ** 2)
    )
    op.grad("t_square3")(lambda ctx: ctx.bind("in", lambda: 6.0 * ctx.inp("in") * ctx.grad("out")))
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = nd.t_square3(x)
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), 6 * X)


def test_builtin_user_operators():
    x = nd.array(X)
    assert built("cast", x, dtype=flow.int32).dtype == np.int32
    two = mx.user_op_builder("s").Op("add_n").Input("in", [x, x]).Output("out").Build()
    np.testing.assert_array_equal(two.InferAndTryRun().RemoteBlobList()[0].asnumpy(), 2 * X)
    three = mx.user_op_builder("s").Op("add_n").Input("in", [x, x, x]).Output("out").Build()
    np.testing.assert_array_equal(three.SoleOutputBlob().asnumpy(), 3 * X)
    with pytest.raises(
        MXNetError, match="number of arrays of argument 'in' 1: expected at least 2"
    ):
        mx.user_op_builder("s").Op("add_n").Input("in", [x]).Output("out").Build()
    assert built("reshape", x, shape=(5, 1)).shape == (5, 1)


def test_conf_is_plain_data():
    b = mx.user_op_builder("c1").Op("cast").Input("in", [nd.array(X)]).Output("out")
    conf = b.Attr("dtype", "float16").Build().conf
    assert json.loads(json.dumps(conf)) == {
        "name": "c1", "op_type_name": "cast", "input": {"in": ["in_0"]},
        "output": {"out": ["c1/out_0"]}, "attr": {"dtype": "float16"},
    }  # fmt: skip


def conv(**attrs):
    b = mx.user_op_builder("conv").Op("t_conv").Input("in", [nd.array(X)]).Output("out")
    for key, value in attrs.items():
        b = b.Attr(key, value)
    return b.Build()


def check_format(conf):
    value = conf.attr("data_format")
    if value not in ("channels_first", "channels_last"):
        return f"data_format value: {value} for Conv op is illegal."


op.define(
    "t_conv",
    inputs="in",
    attrs={"data_format": op.Attr(str, "channels_first"), "filters": op.Attr("int32", 1)},
    check=check_format,
    infer=like("out", "in"),
)


def test_an_illegal_data_format_is_refused():
    assert conv(data_format="channels_last").conf["attr"]["data_format"] == "channels_last"
    with pytest.raises(MXNetError, match="data_format value: NCHW for Conv op is illegal."):
        conv(data_format="NCHW")


@pytest.mark.parametrize(
    ("attrs", "says"),
    [
        ({"filters": 1.5}, "attribute 'filters' 1.5: expected int32"),
        ({"filters": 2**31}, "expected a value within int32"),
        ({"data_format": 3}, "expected string"),
        ({"colour": 3}, "unknown attribute 'colour'"),
    ],
)
def test_attributes_of_the_wrong_kind(attrs, says):
    with pytest.raises(MXNetError, match=says):
        conv(**attrs)


def test_missing_attributes_and_arguments():
    op.define("t_needs", inputs="a, b?", attrs={"n": op.Attr("int64")}, infer=like("out", "a"))
    x = nd.array(X)
    with pytest.raises(MXNetError, match="expected the attribute 'n' of kind int64, got none"):
        mx.user_op_builder("m").Op("t_needs").Input("a", [x]).Output("out").Build()
    with pytest.raises(MXNetError, match="number of arrays of argument 'a' [02]"):
        mx.user_op_builder("m").Op("t_needs").Input("a", [x, x]).Attr("n", 1).Build()
    with pytest.raises(MXNetError, match="unknown argument 'c'"):
        mx.user_op_builder("m").Op("t_needs").Input("c", [x]).Attr("n", 1).Build()
    with pytest.raises(MXNetError, match="'t_nothing' is not registered"):
        mx.user_op_builder("m").Op("t_nothing")
    with pytest.raises(MXNetError, match="expected a call of Op before Input"):
        mx.user_op_builder("m").Input("a", [x])
    with pytest.raises(MXNetError, match="expected a list"):
        mx.user_op_builder("m").Op("t_needs").Input("a", x)


KINDS = {
    "int32": (3, 2.5), "int64": (2**40, "x"), "bool": (True, 1), "float": (0.5, 1),
    "double": (0.25, 1), "string": ("s", 1), "shape": ((2, 3), 5), "data_type": ("int8", "int7"),
    "list_int32": ((1, 2), (1.5,)), "list_int64": ((2**40,), 3), "list_float": ((0.5,), (1,)),
    "list_data_type": (("int8", "float32"), ("nope",)), "list_shape": (((1,), (2, 3)), ((1.5,),)),
    "list_string": (("a", "b,c"), (1,)),
}  # fmt: skip


def test_all_kinds_of_attributes_reach_the_kernel_also_through_json():
    seen = []
    op.define(
        "t_kinds",
        inputs="in",
        attrs={kind: op.Attr(kind, good) for kind, (good, _) in KINDS.items()},
        infer=like("out", "in"),
    )

    @op.kernel("t_kinds")
    def _(ctx):
        seen.append({kind: ctx.attr(kind) for kind in KINDS})
        ctx.out("out")[:] = 0

    given = dict({k: good for k, (good, _) in KINDS.items()}, list_string=("x y", "'"), bool=False)
    s = built("t_kinds", mx.sym.Variable("x"), **given)
    s = mx.sym.load_json(s.tojson())
    s.simple_bind(mx.cpu(), grad_req="null", x=(1,)).forward()[0].wait_to_read()
    assert seen == [given]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_exact(kind):
    bad = KINDS[kind][1]
    with pytest.raises(MXNetError, match=f"expected {kind}"):
        op.Attr(kind).normal("o", "a", bad)


def test_definitions_that_are_refused():
    with pytest.raises(MXNetError, match="already registered"):
        op.define("myrelu", inputs="in", infer=like("out", "in"))
    with pytest.raises(MXNetError, match="invalid infer None"):
        op.define("t_bad", inputs="in")
    with pytest.raises(MXNetError, match="invalid name 'x': expected every name once"):
        op.define("t_bad", inputs="x", attrs={"x": op.Attr(int, 0)}, infer=like("out", "x"))
    with pytest.raises(MXNetError, match="expected name, name"):
        op.define("t_bad", inputs="x**2", infer=like("out", "x"))
    with pytest.raises(MXNetError, match="'m' 'slow': expected a value that its check accepts"):
        op.define("t_bad", inputs="x", infer=like("out", "x"),
                  attrs={"m": op.Attr(str, "slow", check=lambda v: v == "fast")})  # fmt: skip
    with pytest.raises(MXNetError, match="unknown kind"):
        op.Attr("complex", 0)
    with pytest.raises(MXNetError, match="already registered"):
        op.grad("myop")(lambda ctx: None)


def test_choice_of_a_kernel():
    op.define("t_pick", inputs="in", attrs={"fast": op.Attr(bool, False)}, infer=like("out", "in"))

    def kernel(value, **how):
        op.kernel("t_pick", **how)(lambda ctx: ctx.out("out").__setitem__(slice(None), value))

    kernel(1, where=op.ndim("in") == 1)
    kernel(2, where=(op.ndim("in") == 2) & ~(op.attr("fast") == True))  # noqa: E712
    kernel(3, where=op.attr("fast") == True, priority=5)  # noqa: E712
    assert nd.t_pick(nd.zeros((1,))).asscalar() == 1
    assert nd.t_pick(nd.zeros((1, 1))).asscalar() == 2
    assert nd.t_pick(nd.zeros((1,)), fast=True).asscalar() == 3
    with pytest.raises(MXNetError) as caught:
        nd.t_pick(nd.zeros((1, 1, 1)))
    text = str(caught.value)
    assert "no kernel matches" in text and text.count("priority") == 3
    assert "ndim(in) == 1 [false]" in text and "attr(fast) == True [false]" in text
    kernel(4, where=op.ndim("in") < 2)
    with pytest.raises(MXNetError, match="several kernels match"):
        nd.t_pick(nd.zeros((1,)))
    assert len(op.kernels("t_pick")) == 4
    assert "ndim(in) < 2 [true]" in op.why("t_pick", nd.zeros((1,)))
    with pytest.raises(TypeError, match="with & | ~"):
        bool(op.device("cpu"))


def test_state_tmp_and_empty_outputs():
    op.define("t_counts", inputs="in", infer=like("out", "in"))
    made = []

    @op.kernel("t_counts", tmp=lambda ctx: 16)
    class Counter:
        def __init__(self):
            made.append(self)
            self.calls = 0

        def compute(self, ctx):
            self.calls += 1
            assert ctx.tmp.shape == (16,) and ctx.tmp.dtype == np.uint8
            ctx.out("out")[:] = self.calls

    s = mx.sym.t_counts(mx.sym.Variable("x"))
    exe = s.simple_bind(mx.cpu(), grad_req="null", x=(2,))
    for calls in (1, 2):
        assert exe.forward()[0].asnumpy().tolist() == [calls] * 2
    assert nd.t_counts(nd.zeros((2,))).asnumpy().tolist() == [1, 1]
    assert len(made) == 2
    assert nd.t_counts(nd.zeros((2,))[1:1]).shape == (0,)
    assert len(made) == 2


def test_missing_gradients():
    op.define("t_nograd", inputs="in", infer=like("out", "in"))
    op.kernel("t_nograd")(lambda ctx: ctx.out("out").__setitem__(slice(None), 0))
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = nd.t_nograd(x)
    with pytest.raises(MXNetError, match="has no gradient"):
        y.backward()
    op.grad("t_nograd")(lambda ctx: None)
    with autograd.record():
        y = nd.t_nograd(x)
    with pytest.raises(MXNetError, match="expected a gradient of input 'in', got none"):
        y.backward()


def test_jobs_check_their_placeholders():
    @flow.global_function()
    def relu_job(x: tp.Numpy.Placeholder((5,), dtype=flow.float32)) -> tp.Numpy:
        return (
            flow.user_op_builder("r")
            .Op("myrelu")
            .Input("in", [x])
            .Output("out")
            .Build()
            .InferAndTryRun()
            .RemoteBlobList()[0]
        )

    np.testing.assert_array_equal(relu_job(X), [0, 0, 0, 1, 2])
    with pytest.raises(MXNetError, match=r"argument 'x' \(4,\): expected \(5,\)"):
        relu_job(X[1:])
    with pytest.raises(MXNetError, match="dtype of argument 'x' float64: expected float32"):
        relu_job(X.astype("float64"))
    with pytest.raises(MXNetError, match="expected an annotation"):
        flow.global_function()(lambda x: x)


def test_train_job_and_watch_diff():
    seen = []

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((5,))) -> tp.Numpy:
        y = built("myop", x)
        flow.watch_diff(x, seen.append)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(y)
        return y

    np.testing.assert_array_equal(job(X), [12, 3, 0, 3, 12])
    np.testing.assert_array_equal(seen[0], [-12, -6, 0, 6, 12])


def test_a_required_input_without_arrays_is_refused_when_built():
    builder = mx.user_op_builder("q").Op("multiply").Output("out")
    with pytest.raises(
        MXNetError, match="multiply: expected arrays of the required input '.*', got none"
    ):
        builder.Build()


# Arguments that may be absent, several, or lists
# -----------------------------------------------------


def test_distribution_rules_are_stored():
    rules = ["in:S(0) out:S(0)", "in:P out:P"]
    made = op.define("t_sbp", inputs="in", infer=like("out", "in"), sbp=rules)
    assert made.sbp is rules and user_op.definition("t_sbp").sbp == rules
    assert user_op.definition("myrelu").sbp is None


def test_outputs_by_argument_and_in_the_order_of_the_calls():
    def infer(ctx):
        for name, i in (("low", 0), ("high", 0), ("high", 1)):
            ctx.out(name, i).like(ctx.inp("in"))

    op.define("t_split", inputs="in", outputs="low, high*2", infer=infer)

    @op.kernel("t_split")
    def _(ctx):
        ctx.out("low")[:] = ctx.inp("in") - 1
        for i in range(2):
            ctx.out("high", i)[:] = ctx.inp("in") + 1 + i

    b = mx.user_op_builder("s").Op("t_split").Input("in", [nd.array(X)])
    made = b.Output("high", 2).Output("low").Build().InferAndTryRun()
    blobs = made.RemoteBlobDict()
    assert list(blobs) == ["low", "high"] and [len(v) for v in blobs.values()] == [1, 2]
    assert blobs["high"][1].asnumpy().tolist() == (X + 2).tolist()
    assert [y.asnumpy()[2] for y in made.RemoteBlobList()] == [1, 2, -1]
    with pytest.raises(MXNetError, match="SoleOutputBlob: expected one output, got 3"):
        made.SoleOutputBlob()
    part = mx.user_op_builder("s").Op("t_split").Input("in", [nd.array(X)]).Output("low").Build()
    with pytest.raises(ValueError, match="expected Output\\('high'\\), which declares"):
        part.RemoteBlobList()


def test_an_in_place_proposal_is_seen_in_the_memory_plan():
    h = mx.sym.exp(mx.sym.Variable("x"), name="h")
    for name, taken in (("myrelu", True), ("myop", False)):
        net = getattr(mx.sym, name)(h, name="r") + 1
        plan = {e.name: e for e in net.memory_plan(grad_req="null", x=(8,)).entries}
        assert (plan["r_out"].inplace_of == "h_output") is taken
        assert plan["r_out"].req == ("inplace" if taken else "write")
    exe = (mx.sym.myrelu(h - 2) + 1).simple_bind(mx.cpu(), grad_req="null", x=(2,))
    exe.arg_dict["x"][:] = 0
    assert exe.forward()[0].asnumpy().tolist() == [1, 1]


def test_which_inputs_need_a_gradient():
    op.define("t_pair", inputs="a, b", infer=like("out", "a"))
    op.kernel("t_pair")(
        lambda ctx: ctx.out("out").__setitem__(slice(None), ctx.inp("a") + ctx.inp("b"))
    )
    asked = []

    @op.grad("t_pair")
    def _(ctx):
        fw = ctx.FwOp()
        asked.append([fw.NeedGenGradTensor4OpInput(name) for name in ("a", "b")])
        for name in ("a", "b"):
            if fw.NeedGenGradTensor4OpInput(name, 0):
                fw.InputGradBind(name, lambda: fw.output_grad("out"))

    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    for reqs in ({"a": "write", "b": "null"}, {"a": "write", "b": "write"}):
        mx.sym.t_pair(a, b).simple_bind(mx.cpu(), grad_req=reqs, a=(2,), b=(2,))
    assert asked == [[True, False], [True, True]]
    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record():
        y = nd.t_pair(nd.ones((2,)), x)
    y.backward()
    assert asked[2] == [False, True] and x.grad.asnumpy().tolist() == [1, 1]


def test_defaults_are_checked_together_although_one_attribute_is_required():
    def check(conf):
        return conf.attr("low") < conf.attr("high") or "low is not below high"

    def bounds(low, high):
        return {"low": low, "high": high, "n": op.Attr(int)}

    with pytest.raises(MXNetError, match="low is not below high"):
        op.define("t_bounds", inputs="in", infer=like("out", "in"), check=check,
                  attrs=bounds(op.Attr(int, 3), op.Attr(int, 2)))  # fmt: skip
    # A check that asks for the attribute itself has to wait for a call.
    op.define("t_bounds", inputs="in", infer=like("out", "in"), check=check,
              attrs=bounds(op.Attr(int), op.Attr(int, 2)))  # fmt: skip
    op.kernel("t_bounds")(lambda ctx: ctx.out("out").__setitem__(slice(None), 0))
    with pytest.raises(MXNetError, match="low is not below high"):
        nd.t_bounds(nd.ones((1,)), low=2, n=1)
    with pytest.raises(
        MXNetError,
        match="unknown attribute 'lo': did you mean 'low'. expected one of: low, high, n",
    ):
        op.define("t_bounds2", inputs="in", infer=like("out", "in"),
                  check=lambda conf: conf.attr("lo"),
                  attrs=bounds(op.Attr(int), op.Attr(int, 2)))  # fmt: skip
