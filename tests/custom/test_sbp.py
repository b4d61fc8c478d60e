"""Distributions of tensors over ranks: signatures of user and of common operators."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, op, sbp, sbp_rules
from rsnet.base import MXNetError
from rsnet.sbp import B, OpArg, P, S, Signature

TWO = "in, more*2"


def define(name, rules, inputs="in", outputs="out", **attrs):
    def infer(ctx):
        for arg in ctx.conf.definition.outputs:
            for i in range(arg.count):
                ctx.out(arg.name, i).like(ctx.inp("in"))

    op.define(name, inputs=inputs, outputs=outputs, infer=infer, sbp=rules, **attrs)

    @op.kernel(name)
    def _(ctx):
        for arg in ctx._conf.definition.outputs:
            for i in range(arg.count):
                ctx.out(arg.name, i)[:] = ctx.inp("in")


def texts(*args, **attrs):
    return [str(s) for s in sbp.signatures(*args, **attrs)]


# ---- functions ---------------------------------------------------------------------------------


def test_a_function_gives_signatures_by_builders():
    seen = []

    def rules(ctx):
        desc = ctx.LogicalTensorDesc4InputArgNameAndIndex("in", 0)
        seen.append((desc.shape, desc.dtype, desc.NumAxes(), ctx.attr("k")))
        assert ctx.inputs() == [OpArg("in", 0), OpArg("more", 0), OpArg("more", 1)]
        assert ctx.outputs() == [OpArg("out", 0)]
        for axis in range(desc.NumAxes()):
            ctx.NewBuilder().Split(ctx.inputs(), axis).Split(OpArg("out", 0), axis).Build()
        builder = ctx.NewBuilder().PartialSum(("in", 0)).Broadcast([("more", 0), OpArg("more", 1)])
        builder.PartialSum("out").Build()

    define("t_sbp_function", rules, inputs=TWO, attrs={"k": op.Attr(int, 3)})
    assert texts("t_sbp_function", (2, 4), (2, 4), (2, 4), k=5) == [
        "in:S(0) more[0]:S(0) more[1]:S(0) out:S(0)",
        "in:S(1) more[0]:S(1) more[1]:S(1) out:S(1)",
        "in:P more[0]:B more[1]:B out:P",
        "in:B more[0]:B more[1]:B out:B",
    ]
    assert seen == [((2, 4), "float32", 2, 5)]
    made = sbp.signatures("t_sbp_function", (2,), (2,), (2,))
    assert made[0]["in"] == S(0) and made[0]["more", 1] == S(0) and made[-1]["out"] == B


def test_a_function_is_called_when_the_operator_is_used_once_for_each_shape():
    shapes = []

    def rules(ctx):
        shapes.append(ctx.LogicalTensorDesc4InputArgNameAndIndex("in").shape)

    define("t_sbp_called", rules)
    for _ in range(3):
        nd.t_sbp_called(nd.ones((2, 3)))
    nd.t_sbp_called(nd.ones((5,)))
    mx.sym.t_sbp_called(mx.sym.Variable("x")).simple_bind(mx.cpu(), "null", x=(7,))
    assert shapes == [(2, 3), (5,), (7,)]
    assert texts("t_sbp_called", (2,)) == ["in:B out:B"]


WRONG = {
    "out left out": (
        lambda c: c.NewBuilder().Split(OpArg("in"), 0).Build(),
        "t_sbp_.*invalid sbp signature 'in:S\\(0\\)': expected a distribution of argument 'out' 0",
    ),
    "in left out": (
        lambda c: c.NewBuilder().PartialSum(c.outputs()).Build(),
        "expected a distribution of argument 'in' 0",
    ),
    "unknown": (lambda c: c.NewBuilder().Broadcast(OpArg("x")), "invalid argument 'x' 0.*'in' 0"),
    "index": (lambda c: c.NewBuilder().Broadcast(OpArg("in", 3)), "invalid argument 'in' 3"),
    "axis": (
        lambda c: c.NewBuilder().Split(OpArg("in"), 2),
        "invalid axis 2 .*'in' 0.*: expected 0 to 1",
    ),
    "kind of axis": (lambda c: c.NewBuilder().Split(OpArg("in"), "0"), "invalid axis '0'"),
    "twice": (
        lambda c: c.NewBuilder().Split("in", 0).Broadcast("in"),
        "invalid B of .*: expected S\\(0\\)",
    ),
    "not built": (lambda c: c.NewBuilder().Split("in", 0) and None, "begun: expected Build"),
    "input": (lambda c: c.LogicalTensorDesc4InputArgNameAndIndex("out", 0), "invalid input 'out'"),
    "attribute": (lambda c: c.attr("k"), "invalid attribute 'k'"),
    "refusal": (lambda c: "only even axes", "only even axes"),
    "False": (lambda c: False, "returned False"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_functions_are_errors_where_the_operator_is_used(what):
    rules, text = WRONG[what]
    name = "t_sbp_" + what.replace(" ", "_").lower()
    define(name, rules)
    with pytest.raises(MXNetError, match=text):
        getattr(nd, name)(nd.ones((2, 3)))
    with pytest.raises(MXNetError, match=text):
        sbp.signatures(name, (2, 3))


# ---- text --------------------------------------------------------------------------------------


def test_rules_as_text():
    rules = ["in:S(i) more:S(i) out:S(i) for i in axes(in)", "in:P more[0]:B more[1]:P out:P"]
    define("t_sbp_text", rules, inputs=TWO)
    assert texts("t_sbp_text", (2, 3), (2, 3), (2, 3))[:3] == [
        "in:S(0) more[0]:S(0) more[1]:S(0) out:S(0)",
        "in:S(1) more[0]:S(1) more[1]:S(1) out:S(1)",
        "in:P more[0]:B more[1]:P out:P",
    ]


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (3, "invalid sbp 3: expected a function"),
        (["in:B out:B", 3], "invalid sbp"),
        ("in:S(0)", "expected a distribution of argument 'out'"),
        ("in:S(0) x:B out:B", "'x': expected one of in, out"),
        ("in:Q out:B", "'in:Q': expected name:B"),
        ("in:S(i) out:S(i)", "'i': expected the variable of a loop"),
        ("in:S(i) out:S(i) for i in axes(out)", "expected an input, one of in"),
    ],
)
def test_wrong_texts_are_refused_at_registration(rules, text):
    with pytest.raises(MXNetError, match="t_sbp_refused.*" + text.replace("(", "\\(")):
        define("t_sbp_refused", rules)


def test_ready_made_rules():
    define("t_sbp_elementwise", sbp.elementwise)
    define("t_sbp_linear", sbp.linear)
    split = ["in:S(0) out:S(0)", "in:S(1) out:S(1)"]
    assert texts("t_sbp_elementwise", (2, 3)) == [*split, "in:B out:B"]
    assert texts("t_sbp_linear", (2, 3)) == [*split, "in:P out:P", "in:B out:B"]
    assert texts("t_sbp_elementwise", ()) == ["in:B out:B"]
    op.define("t_sbp_none", inputs="in", infer=lambda c: c.out("out").like(c.inp("in")))
    assert texts("t_sbp_none", (2,)) == ["in:B out:B"]


def test_queries_say_what_is_wrong():
    with pytest.raises(MXNetError, match="invalid operator 'no_such'"):
        sbp.signatures("no_such", (2,))
    with pytest.raises(MXNetError, match="1 inputs given, expected lhs, rhs"):
        sbp.signatures("dot", (2, 3))
    with pytest.raises(MXNetError, match="2 inputs given, expected 1"):
        sbp.signatures("t_sbp_linear", (2,), (2,))


# ---- the table ---------------------------------------------------------------------------------

# Shapes whose axes divide by two or are 1, and attributes.
CASES = [
    ("relu", [(4, 6)], {}), ("negative", [(4, 6)], {}), ("_mul_scalar", [(4,)], {"scalar": 3.0}),
    ("elemwise_add", [(4, 6), (4, 6)], {}), ("broadcast_sub", [(4, 1, 2), (6, 2)], {}),
    ("broadcast_mul", [(4, 6), (1, 6)], {}), ("broadcast_div", [(4, 6), (6,)], {}),
    ("add_n", [(4, 2)] * 3, {}), ("Concat", [(4, 2, 6), (4, 4, 6)], {"dim": 1}),
    ("dot", [(4, 6), (6, 2)], {}),
    ("dot", [(6, 4), (2, 6)], {"transpose_a": True, "transpose_b": True}),
    ("dot", [(2, 4, 6), (6, 8)], {}), ("dot", [(4, 6), (6, 2, 8)], {}), ("dot", [(4, 6), (6,)], {}),
    ("dot", [(6,), (6,)], {}), ("dot", [(4, 2, 6), (6, 2, 8)], {}),
    ("Cast", [(4,)], {"dtype": "float64"}), ("Cast", [(4, 2)], {"dtype": "int8"}),
    ("BatchNorm", [(4, 2), (2,), (2,), (2,), (2,)], {"use_global_stats": True}),
    ("batch_dot", [(2, 4, 6), (2, 2, 6)], {"transpose_b": True}),
    ("FullyConnected", [(4, 6), (2, 6)], {"num_hidden": 2, "no_bias": True}),
    ("FullyConnected", [(4, 6), (2, 6), (2,)], {"num_hidden": 2}),
    ("sum", [(4, 6, 2)], {"axis": (0, 2)}), ("sum", [(4, 6)], {"axis": 1, "keepdims": True}),
    ("sum", [(4, 6)], {}), ("max", [(4, 6, 2)], {"axis": 1}),
    ("sum", [(4, 6)], {"axis": 0, "exclude": True}),
    ("Reshape", [(4, 6)], {"shape": (2, 2, 6)}), ("Reshape", [(4, 1, 6)], {"shape": (4, -1)}),
    ("transpose", [(4, 6, 2)], {"axes": (2, 0, 1)}), ("transpose", [(4, 6)], {}),
    ("softmax", [(4, 6)], {"axis": -1}), ("log_softmax", [(4, 6)], {"axis": 0}),
    ("Convolution", [(4, 2, 5, 5), (3, 2, 3, 3), (3,)], {"kernel": (3, 3), "num_filter": 3}),
    ("LayerNorm", [(4, 2, 6), (6,), (6,)], {}),
]  # fmt: skip


def pieces(sbp, array, rng):
    """What the two ranks hold of an array."""
    if sbp == B:
        return [array, array]
    if sbp == P:
        part = rng.random(array.shape).astype("float32")
        return [array - part, part]
    return np.split(array, 2, axis=sbp.axis)


def whole(sbp, parts):
    if sbp == B:
        np.testing.assert_array_equal(*parts)
        return parts[0]
    return parts[0] + parts[1] if sbp == P else np.concatenate(parts, axis=sbp.axis)


@pytest.mark.parametrize(("name", "shapes", "attrs"), CASES)
def test_two_ranks_compute_what_one_does(name, shapes, attrs):
    rng = np.random.default_rng(0)
    inputs = [rng.random(s).astype("float32") + 0.5 for s in shapes]
    function = getattr(nd, name, None) or getattr(nd._internal, name)

    def run(arrays, attrs=attrs):
        return function(*map(nd.array, arrays), **attrs).asnumpy()

    expected = run(inputs)
    made = sbp.signatures(name, *shapes, **attrs)
    assert len(made) > 1 and str(made[-1]).count(":B") == len(shapes) + 1
    for signature in made:
        *ins, out = signature.of.values()
        held = [pieces(s, a, rng) for s, a in zip(ins, inputs, strict=True)]
        own = dict(attrs)
        if name == "Reshape" and out.axis is not None:
            full = list(expected.shape)
            full[out.axis] //= 2
            own["shape"] = tuple(full)
        if name == "FullyConnected":
            own["num_hidden"] = held[1][0].shape[0]
        got = whole(out, [run(rank, own) for rank in zip(*held, strict=True)])
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=str(signature))


def test_a_table_is_taken_apart_by_rows_or_columns():
    assert texts("Embedding", (4, 2), (6, 8)) == [
        "data:S(0) weight:B out:S(0)", "data:S(1) weight:B out:S(1)", "data:B weight:S(0) out:P",
        "data:B weight:S(1) out:S(2)", "data:B weight:B out:B",
    ]  # fmt: skip
    assert texts("take", (6, 8), (4,), axis=1)[0] == "a:B indices:S(0) out:S(1)"
    assert texts("bias_add", (4, 6), (6,)) == [
        "data:S(0) bias:B out:S(0)", "data:S(1) bias:S(0) out:S(1)", "data:B bias:B out:B",
    ]  # fmt: skip


def test_costs_of_changes_are_data():
    row = sbp_rules.boxing
    assert row(S(0), S(0)).same(4, 4) == 0 and row(S(0), S(1)).same(4, 4) == 0.75
    assert row(S(0), B).same(4, 4) == 3 and row(P, S(1)).collective == "reduce-scatter"
    assert row(P, B).disjoint(4, 2) == 5 and row(B, P).same(2, 2) == 0
    assert len(sbp_rules.BOXING) == 10


def test_signatures_compare_by_value():
    one, same = (Signature({OpArg("x"): S(0)}) for _ in range(2))
    assert one == same and len({one, same}) == 1 and one != Signature({OpArg("x"): B})


@pytest.mark.parametrize(
    ("op_name", "shapes", "attrs", "text"),
    [
        ("dot", [(2, 3), (4, 5)], {}, "dot"),
        ("dot", [(2, 3), "x"], {}, "dot: invalid input 1, 'x'"),
        ("dot", [(2, -3), (3, 4)], {}, "dot: invalid input 0"),
        ("exp", [3], {}, "exp: invalid input 0, 3"),
        ("reshape", [(4, 6)], {"shape": (5, 5)}, "eshape"),
        ("elemwise_add", [(4, 6), (4, 5)], {}, "elemwise_add"),
        ("FullyConnected", [(4, 6), (2,)], {}, "FullyConnected"),
        ("Cast", [(4,)], {"dtype": "number"}, "dtype"),
    ],
)
def test_shapes_that_do_not_fit_the_operator_are_refused(op_name, shapes, attrs, text):
    with pytest.raises(MXNetError, match=text):
        sbp.signatures(op_name, *shapes, **attrs)


def test_parameters_that_signatures_do_not_depend_on_may_be_left_out():
    assert texts("FullyConnected", (4, 6), (2, 6))[0] == "data:S(0) weight:B out:S(0)"
    assert texts("Embedding", (4,), (6, 8))[0] == "data:S(0) weight:B out:S(0)"
    assert texts("clip", (4,)) == ["data:S(0) out:S(0)", "data:B out:B"]
    assert texts("Convolution", (4, 2, 5, 5), (3, 2, 3, 3))[0].startswith("data:S(0)")


def test_channels_of_a_normalisation_are_not_split_as_a_batch():
    made = texts("BatchNorm", (4, 2), (4,), (4,), (4,), (4,), axis=0)
    assert made == ["data:B gamma:B beta:B moving_mean:B moving_var:B out:B"]


def test_a_context_ends_with_its_function():
    kept = []

    def rules(ctx):
        kept.extend((ctx, ctx.NewBuilder().Split(ctx.inputs(), 0).Split(ctx.outputs(), 0)))
        kept[1].Build()

    define("t_sbp_kept_context", rules)
    sbp.signatures("t_sbp_kept_context", (2, 4))
    for use in (kept[0].NewBuilder, kept[1].Build):
        with pytest.raises(
            MXNetError, match="t_sbp_kept_context: invalid use of an SbpContext whose function has"
        ):
            use()


def test_an_axis_that_is_no_integer_names_operator_and_argument():
    define("t_sbp_axis_text", lambda ctx: ctx.NewBuilder().Split("in", "a"))
    with pytest.raises(MXNetError, match="t_sbp_axis_text: invalid axis 'a' of argument 'in' 0"):
        sbp.signatures("t_sbp_axis_text", (2, 4))
