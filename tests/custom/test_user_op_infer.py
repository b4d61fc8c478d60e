"""Inference of user operators: functions that look at shapes, at element types, and at both."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op, user_op

_count = iter(range(1000))


def defined(infer, inputs="in", **how):
    """An operator that fills its output with ones; its name."""
    name = f"t_infer{next(_count)}"
    op.define(name, inputs=inputs, infer=infer, **how)
    op.kernel(name)(lambda ctx: ctx.out("out").__setitem__(slice(None), 1))
    return name


def by_call(name, *arrays, **attrs):
    out = getattr(nd, name)(*(nd.array(a, dtype=a.dtype) for a in arrays), **attrs)
    return out.asnumpy()


def by_graph(name, *arrays, **attrs):
    names = [f"x{i}" for i in range(len(arrays))]
    s = getattr(mx.sym, name)(*map(mx.sym.Variable, names), **attrs)
    exe = s.simple_bind(
        mx.cpu(),
        grad_req="null",
        type_dict={n: a.dtype for n, a in zip(names, arrays)},
        **{n: a.shape for n, a in zip(names, arrays)},
    )
    return exe.forward()[0].asnumpy()


WAYS = pytest.mark.parametrize("run", [by_call, by_graph])


def only_float32(ctx):
    if ctx.inp("in").dtype != np.float32:
        raise TypeError("float32 only")
    ctx.out("out").like(ctx.inp("in"))


@WAYS
def test_a_function_that_refuses_types(run):
    name = defined(only_float32)
    assert run(name, np.zeros((2, 3), "float32")).shape == (2, 3)
    with pytest.raises(TypeError, match="float32 only"):
        run(name, np.zeros((2, 3), "float64"))


@WAYS
def test_a_function_that_sets_the_type_after_looking_at_the_shape(run):
    def infer(ctx):
        n, _ = ctx.inp("in").shape
        ctx.out("out").shape = (n,)
        ctx.out("out").dtype = np.int32

    name = defined(infer)
    out = run(name, np.zeros((2, 3), "float32"))
    assert out.dtype == np.int32 and out.shape == (2,)
    with pytest.raises(ValueError, match="unpack"):
        run(name, np.zeros((2, 3, 4), "float32"))


@WAYS
def test_a_function_of_the_shape_alone_keeps_the_type_of_the_first_input(run):
    def infer(ctx):
        ctx.out("out").shape = ctx.inp("in").shape[:1]

    name = defined(infer)
    for dtype in ("float64", "int8"):
        out = run(name, np.zeros((2, 3), dtype))
        assert out.dtype == dtype and out.shape == (2,)


@WAYS
def test_shapes_by_types(run):
    """The bytes of an array."""

    def infer(ctx):
        x = ctx.inp("in")
        ctx.out("out").shape = (*x.shape, np.dtype(x.dtype).itemsize)
        ctx.out("out").dtype = "uint8"

    name = defined(infer)
    assert run(name, np.zeros((2,), "float32")).shape == (2, 4)
    assert run(name, np.zeros((2,), "int8")).shape == (2, 1)


def test_shapes_and_types_follow_from_each_other_along_a_graph():
    """Bytes of bytes, behind and before operators whose shapes and types are apart."""

    def infer(ctx):
        x = ctx.inp("in")
        ctx.out("out").shape = (*x.shape, np.dtype(x.dtype).itemsize)
        ctx.out("out").dtype = "float16" if len(x.shape) > 1 else "int8"

    f = getattr(mx.sym, defined(infer))
    data = mx.sym.Variable("data")
    hidden = mx.sym.FullyConnected(data, num_hidden=3, flatten=False, name="fc")
    s = mx.sym.relu(f(mx.sym.relu(f(mx.sym.sum(hidden, axis=1)))))
    exe = s.simple_bind(mx.cpu(), grad_req="null", type_dict={"data": "float64"}, data=(5, 4))
    (out,) = exe.forward()
    assert exe.arg_dict["fc_weight"].dtype == np.float64
    assert out.shape == (5, 8, 1) and out.dtype == np.float16
    exe = s.simple_bind(mx.cpu(), grad_req="null", data=(5, 4))
    assert exe.forward()[0].shape == (5, 4, 1)


def test_gradients_of_operators_whose_shapes_follow_from_types():
    def infer(ctx):
        x = ctx.inp("in")
        ctx.out("out").shape = (*x.shape, np.dtype(x.dtype).itemsize)

    def back(ctx):
        ctx.out("out").shape = ctx.inp("in").shape[:-1]
        assert ctx.inp("in").shape[-1] == np.dtype(ctx.inp("in").dtype).itemsize

    name, gradient = defined(infer), defined(back)
    op.grad(name)(lambda ctx: ctx.bind("in", lambda: ctx.op(gradient, ctx.grad("out"))))
    s = getattr(mx.sym, name)(mx.sym.Variable("x"))
    for dtype in ("float64", "float16"):
        exe = s.simple_bind(mx.cpu(), type_dict={"x": dtype}, x=(2, 3))
        exe.forward(is_train=True)
        exe.backward([nd.ones(exe.outputs[0].shape, dtype=dtype)])
        assert exe.grad_dict["x"].asnumpy().tolist() == [[1, 1, 1]] * 2


@WAYS
def test_types_by_shapes(run):
    def infer(ctx):
        shape = ctx.inp("in").shape
        ctx.out("out").dtype = "int64" if shape[0] > 1000 else "int32"

    name = defined(infer)
    assert run(name, np.zeros((2,), "float32")).dtype == np.int32
    assert run(name, np.zeros((2000,), "float32")).dtype == np.int64
    name = defined(infer, infer_dtype=lambda ctx: setattr(ctx.out("out"), "dtype", "int64"))
    assert run(name, np.zeros((2,), "float32")).dtype == np.int64


@WAYS
def test_types_of_two_inputs_differ(run):
    def infer(ctx):
        if ctx.inp("data").dtype not in (np.float32, np.float64):
            raise TypeError("data")
        if ctx.inp("index").dtype != np.int32:
            raise TypeError("index")
        ctx.out("out").like(ctx.inp("data")).shape = ctx.inp("index").shape

    name = defined(infer, inputs="data, index")
    out = run(name, np.zeros((4,), "float64"), np.zeros((3, 2), "int32"))
    assert out.shape == (3, 2) and out.dtype == np.float64
    with pytest.raises(TypeError, match="index"):
        run(name, np.zeros((4,), "float64"), np.zeros((3, 2), "int64"))


@WAYS
def test_a_refusal_of_both_together(run):
    def infer(ctx):
        if ctx.inp("in").dtype == np.float16 and len(ctx.inp("in").shape) > 2:
            raise ValueError("no float16 of more than 2 axes")

    name = defined(infer)
    assert run(name, np.zeros((2, 2), "float16")).dtype == np.float16
    assert run(name, np.zeros((2, 2, 2), "float32")).shape == (2, 2, 2)
    with pytest.raises(ValueError, match="no float16 of more than 2 axes"):
        run(name, np.zeros((2, 2, 2), "float16"))
    assert run(name, np.zeros((2, 2, 2), "float32")).shape == (2, 2, 2)


@WAYS
def test_errors_of_shapes_whatever_the_types_are(run):
    def infer(ctx):
        if ctx.inp("in").dtype == np.float16:
            raise TypeError("no float16")
        if len(ctx.inp("in").shape) != 1:
            raise ValueError("one axis only")

    with pytest.raises((ValueError, MXNetError), match="one axis only"):
        run(defined(infer), np.zeros((2, 2), "float32"))


def test_shapes_alone_take_float32():
    seen = []

    def infer(ctx):
        seen.append(ctx.inp("in").dtype)
        ctx.out("out").like(ctx.inp("in"))

    s = getattr(mx.sym, defined(infer))(mx.sym.Variable("x"))
    assert s.infer_shape(x=(2,))[1] == [(2,)] and set(seen) == {np.float32}


def test_types_alone_are_unknown_where_they_follow_from_shapes():
    def infer(ctx):
        ctx.out("out").dtype = "int8" if len(ctx.inp("in").shape) > 1 else "int32"

    s = getattr(mx.sym, defined(infer))(mx.sym.Variable("x"))
    with pytest.warns(UserWarning, match=r"do not follow from those of the arguments:\n\t\w+_out"):
        assert s.infer_type(x="float32")[1] in (None, [None])
    assert by_graph(defined(infer), np.zeros((2, 3), "float32")).dtype == np.int8


def test_a_node_whose_shape_does_not_follow_is_named():
    @mx.operator.register("shape_unknown")
    class Property(mx.operator.CustomOpProp):
        def infer_shape(self, in_shape):
            return in_shape, [[0]], []

    net = mx.sym.Custom(mx.sym.Variable("x"), op_type="shape_unknown", name="odd")
    with pytest.warns(UserWarning, match=r"shapes of these outputs do not follow.*:\n\todd_output"):
        assert net.infer_shape(x=(3,)) == (None, None, None)


def test_infer_shape_knows_the_types_that_variables_declare():
    def infer(ctx):
        x = ctx.inp("in")
        ctx.out("out").dtype = x.dtype
        ctx.out("out").shape = (*x.shape, np.dtype(x.dtype).itemsize)

    made = getattr(mx.sym, defined(infer))
    for declared, bytes_ in [({"dtype": "float64"}, 8), ({}, 4)]:
        net = mx.sym.FullyConnected(made(mx.sym.Variable("x", **declared)), num_hidden=3, name="fc")
        shapes, outputs, _ = net.infer_shape(x=(2,))
        assert dict(zip(net.list_arguments(), shapes))["fc_weight"] == (3, bytes_)
        assert outputs == [(2, 3)]


def test_infer_dtype_is_a_function_of_types():
    def kind(ctx):
        ctx.out("out").dtype = "float64" if ctx.inp("in").dtype == np.int64 else "float32"

    name = defined(lambda ctx: setattr(ctx.out("out"), "shape", (1,)), infer_dtype=kind)
    for run in (by_call, by_graph):
        assert run(name, np.zeros((2,), "int64")).dtype == np.float64
        assert run(name, np.zeros((2,), "int8")).dtype == np.float32
    s = getattr(mx.sym, name)(mx.sym.Variable("x"))
    assert s.infer_type(x="int64")[1] == [np.float64] and s.infer_shape(x=(3,))[1] == [(1,)]
    bad = defined(only_float32, infer_dtype=lambda ctx: ctx.inp("in").shape[0])
    with pytest.raises(MXNetError, match="infer_dtype reads a shape"):
        by_call(bad, np.zeros((2,), "float32"))


def test_types_first_then_shapes_on_one_graph():
    """A graph asked for types alone binds afterwards, also with other types."""
    s = getattr(mx.sym, defined(only_float32))(mx.sym.Variable("x"))
    assert s.infer_type(x="float32")[1] == [np.float32]
    assert s.infer_shape(x=(2, 3))[1] == [(2, 3)]
    for shape in ((2,), (2, 3, 4)):
        exe = s.simple_bind(mx.cpu(), grad_req="null", x=shape)
        assert exe.forward()[0].shape == shape


def test_doc_is_the_documentation_and_gradients_pass_inference():
    name = defined(only_float32, doc="Ones, as many as there are inputs.")
    op.grad(name)(lambda ctx: ctx.bind("in", lambda: ctx.grad("out") * 0.0))
    assert "Ones, as many as there are inputs." in getattr(nd, name).__doc__
    x = nd.ones((2, 2))
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(x)
    y.backward()
    assert x.grad.asnumpy().tolist() == [[0, 0], [0, 0]]
    assert user_op.definition(name).inference.infer is only_float32


@pytest.mark.parametrize("leave_out", ["shape", "dtype"])
def test_an_output_of_no_inputs_must_be_set(leave_out):
    def infer(ctx):
        for what, value in {"shape": (2,), "dtype": "int8"}.items():
            if what != leave_out:
                setattr(ctx.out("out"), what, value)

    name = defined(infer, inputs="")
    with pytest.raises(MXNetError, match=f"invalid {leave_out} of 'out' after infer None"):
        getattr(nd, name)()


@WAYS
def test_a_scalar_may_come_out(run):
    out = run(defined(lambda ctx: setattr(ctx.out("out"), "shape", ())), np.zeros((2,), "int8"))
    assert out.shape == () and out.dtype == np.int8


def test_a_function_is_asked_once_a_call():
    asked = []

    def infer(ctx):
        asked.append(ctx)
        ctx.out("out").shape = ctx.inp("in").shape[:1]

    name = defined(infer)
    by_call(name, np.zeros((2, 3), "float32"))
    assert len(asked) == 1
    asked.clear()
    x = mx.sym.Variable("x")
    exe = getattr(mx.sym, name)(x).simple_bind(mx.cpu(), grad_req="null", x=(2, 3))
    exe.forward()[0].wait_to_read()
    asked.clear()
    for _ in range(3):
        exe.forward()[0].wait_to_read()
    assert asked == []
