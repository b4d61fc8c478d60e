"""Operators whose types or shapes follow from both, inside of loops and conditions."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import gluon, nd, op, sym

contrib = sym.contrib


def like_its_input(ctx):
    """Sets both from both, so that neither is known from types alone or shapes alone."""
    ctx.out("out").shape = ctx.inp("in").shape
    ctx.out("out").dtype = ctx.inp("in").dtype


def bytes_of(ctx):
    """A shape by the type."""
    x = ctx.inp("in")
    ctx.out("out").shape = (*x.shape, np.dtype(x.dtype).itemsize)


def at_int32(ctx):
    """Demands a type of one input."""
    shape = ctx.inp("index").shape
    if ctx.inp("index").dtype != np.int32:
        raise TypeError(f"int32 wanted for {shape}")
    ctx.out("out").like(ctx.inp("in"))


def refuses(ctx):
    raise ValueError(f"refused {ctx.inp('in').shape}")


def define(name, infer, inputs="in"):
    op.define(name, inputs=inputs, infer=infer)
    op.kernel(name)(lambda ctx: ctx.out("out").__setitem__(slice(None), 1))


define("joint_like", like_its_input)
define("joint_bytes", bytes_of)
define("joint_index", at_int32, "in, index")
define("joint_refuses", refuses)
op.grad("joint_like")(lambda ctx: ctx.bind("in", lambda: ctx.grad("out") * 3))

x, s, i = sym.Variable("x"), sym.Variable("s"), sym.Variable("i")


def each(body=lambda d: sym.joint_like(d), data=x):
    return contrib.foreach(lambda d, state: (body(d), state), data, s)[0]


def repeated(body):
    def step(state):
        return (body(state), state + 1)

    return contrib.while_loop(lambda state: state < 2, step, i, max_iterations=3)[0]


def chosen(body):
    return contrib.cond(sym.sum(i) > 5, lambda: body(i), lambda: body(i) * 2)


def inner_loop(d):
    return contrib.foreach(lambda e, state: (sym.joint_like(e), state), d, s)[0]


def inner_choice(d):
    return contrib.cond(sym.sum(d) > 100, lambda: sym.joint_like(d), lambda: sym.joint_like(d) * 2)


def inner_weights(d):
    return sym.FullyConnected(sym.joint_like(d), num_hidden=2, name="fc")


GRAPHS = {
    "foreach": (each, {"x": (2, 3, 4), "s": (1,)}, (2, 3, 4)),
    "foreach in foreach": (lambda: each(inner_loop), {"x": (2, 3, 4), "s": (1,)}, (2, 3, 4)),
    "cond in foreach": (lambda: each(inner_choice), {"x": (2, 3, 4), "s": (1,)}, (2, 3, 4)),
    "weights in foreach": (lambda: each(inner_weights), {"x": (2, 3, 4), "s": (1,)}, (2, 3, 2)),
    "shape by type": (lambda: each(sym.joint_bytes), {"x": (2, 3), "s": (1,)}, (2, 3, 4)),
    "while_loop": (lambda: repeated(sym.joint_like), {"i": (1,)}, (3, 1)),
    "foreach in while_loop": (
        lambda: repeated(lambda d: contrib.foreach(lambda e, t: (sym.joint_like(e), t), d, d)[0]),
        {"i": (1,)},
        (3, 1, 1),
    ),
    "cond": (lambda: chosen(sym.joint_like), {"i": (2, 3)}, (2, 3)),
    "loop after loop": (
        lambda: each(data=each(sym.joint_like)),
        {"x": (2, 3), "s": (1,)},
        (2, 3),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", GRAPHS)
def test_shapes_that_are_known_give_types(kind, dtype):
    make, shapes, expected = GRAPHS[kind]
    graph = make()
    if kind == "shape by type" and dtype == "float64":
        expected = (2, 3, 8)
    bound = graph.simple_bind(mx.cpu(), "null", dict.fromkeys(shapes, dtype), **shapes)
    (out,) = bound.forward()
    assert out.shape == expected and out.dtype == np.dtype(dtype)
    assert {array.dtype for array in bound.arg_arrays} == {np.dtype(dtype).type}
    again = graph.bind(mx.cpu(), bound.arg_dict).forward()[0]
    assert again.shape == expected and again.dtype == np.dtype(dtype)


@pytest.mark.parametrize("kind", GRAPHS)
def test_shapes_alone_and_partial_ones(kind):
    make, shapes, expected = GRAPHS[kind]
    graph = make()
    arguments, (out,), _ = graph.infer_shape(**shapes)
    assert out == expected and () not in arguments
    open_ = {name: (0,) * len(shape) for name, shape in shapes.items()}
    _, (known,), _ = graph.infer_shape_partial(**open_)
    assert all(extent in (0, want) for extent, want in zip(known, expected))
    assert len(known) in (0, len(expected))


def test_gradients_and_training():
    bound = each().simple_bind(mx.cpu(), x=(2, 3), s=(1,))
    bound.forward(is_train=True)
    bound.backward(nd.ones((2, 3)))
    assert bound.grad_dict["x"].asnumpy().tolist() == [[3.0] * 3] * 2


class Looping(gluon.HybridBlock):
    def hybrid_forward(self, F, data, state):
        return F.contrib.foreach(lambda d, t: (F.joint_like(d), t), data, state)[0]


@pytest.mark.parametrize("how", [{}, {"static_alloc": True, "static_shape": True}])
def test_hybridized_blocks_and_symbol_blocks(how):
    block = Looping()
    block.initialize()
    block.hybridize(**how)
    for shape in ((2, 3), (4, 1)):
        assert block(nd.zeros(shape), nd.zeros((1,))).asnumpy().tolist() == np.ones(shape).tolist()
    read = gluon.SymbolBlock(each(), [x, s])
    assert read(nd.zeros((2, 3)), nd.zeros((1,))).shape == (2, 3)


def test_a_type_that_is_demanded_inside():
    graph = each(lambda d: sym.joint_index(d, sym.Variable("idx")))
    bound = graph.simple_bind(mx.cpu(), "null", x=(2, 3), s=(1,), idx=(4,))
    assert bound.arg_dict["idx"].dtype == np.int32
    with pytest.raises(TypeError, match="int32 wanted"):
        graph.simple_bind(mx.cpu(), "null", {"idx": "int64"}, x=(2, 3), s=(1,), idx=(4,))


def test_types_alone_end_at_the_node_inside():
    graph = each(lambda d: contrib.foreach(
        lambda e, t: (sym.joint_like(e, name="within"), t), d, s)[0])  # fmt: skip
    remedy = "joint_like 'within': its infer reads shapes: expected infer_dtype="
    with pytest.warns(UserWarning, match=remedy):
        assert graph.infer_type(x="float32", s="float32") == (None, None, None)
    with pytest.warns(UserWarning, match="joint_like 'alone': its infer reads shapes"):
        sym.joint_like(x, name="alone").infer_type(x="float32")
    op.define("joint_typed", inputs="in", infer=like_its_input,
              infer_dtype=lambda ctx: setattr(ctx.out("out"), "dtype", ctx.inp("in").dtype),
              )  # fmt: skip
    assert each(sym.joint_typed).infer_type(x="int8", s="int8")[1] == [np.int8]


def test_errors_name_the_node_inside():
    shapes = {"x": (2, 3), "s": (1,)}
    graph = each(lambda d: sym.joint_refuses(d, name="within"))
    with pytest.raises(ValueError, match=r"refused \(3,\)") as raised:
        graph.bind(mx.cpu(), {name: nd.ones(shape) for name, shape in shapes.items()})
    assert any("joint_refuses 'within'" in note for note in raised.value.__notes__)
    sums = each(lambda d: sym.broadcast_add(d, sym.Variable("w"), name="within"))
    both = r"^broadcast_add 'within': operands[\s\S]*\n  inside of _foreach '_foreach\d+'\n"
    with pytest.raises(mx.MXNetError, match=both):
        sums.infer_shape(w=(7,), **shapes)
    with pytest.raises(mx.MXNetError, match="give more shapes.*: x: None"):
        each().simple_bind(mx.cpu(), s=(1,))


@pytest.mark.parametrize("what", ["shape", "dtype"])
def test_a_node_inside_that_leaves_its_output_open_is_named(what):
    class Open(mx.operator.CustomOpProp):
        def infer_shape(self, in_shape):
            return in_shape, [[0] if what == "shape" else in_shape[0]], []

        def infer_type(self, in_type):
            return in_type, [None if what == "dtype" else in_type[0]], []

    mx.operator.register(f"open_{what}")(Open)
    graph = each(lambda d: sym.Custom(sym.relu(d), op_type=f"open_{what}", name="odd"))
    with pytest.raises(mx.MXNetError, match=rf"^Custom 'odd': the {what}.* of its output 'odd_out"):
        graph.bind(mx.cpu(), {"x": nd.ones((2, 3)), "s": nd.ones((1,))})
