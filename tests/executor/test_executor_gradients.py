"""Gradients of arguments that share one: every mix of requests, whatever the arrays held before."""

import itertools

import numpy as np
import pytest

import rsnet as mx
from rsnet import op


@op.op("gradients_sum", inputs=["x", "y"])
def gradients_sum(x, y):
    return x + y


@gradients_sum.gradient
def _(out_grads, inputs, outputs):
    return out_grads[0], out_grads[0]


op.define("gradients_first", inputs="x, y", infer=lambda q: q.out("out").like(q.inp("x")))


@op.kernel("gradients_first")
def _(q):
    q.out("out")[:] = q.inp("x") + q.inp("y")


@op.grad("gradients_first")
def _(q):
    q.bind("x", lambda: q.grad("out"))
    q.bind("y", lambda: q.grad("out"))


def twice(w):
    return mx.sym.exp(w) + mx.sym.sin(w)


JOINS = {
    "one consumer": lambda a, b: mx.sym.exp(a + b),
    "square": lambda a, b: (lambda w: w * w)(a + b),
    "many consumers": lambda a, b: twice(a + b),
    "broadcast": lambda a, b: twice(mx.sym.broadcast_add(a, b)),
    "difference": lambda a, b: twice(a - b),
    "add_n": lambda a, b: twice(mx.sym.add_n(a, b)),
    "identity": lambda a, b: twice(mx.sym.identity(a) + b),
    "scaled": lambda a, b: mx.sym.exp(a + b) * 1,
    "again": lambda a, b: twice(a + b) + a,
    "heads": lambda a, b: mx.sym.Group([a + b, mx.sym.exp(a + b)]),
    "the head's own gradient": lambda a, b: a + b,
    "many terms": lambda a, b: (lambda w: mx.sym.Group([mx.sym.sin(w * k) for k in range(1, 13)]))(
        a + b
    ),
    "decorated operator": lambda a, b: twice(mx.sym.gradients_sum(a, b)),
    "bound operator": lambda a, b: twice(mx.sym.gradients_first(a, b)),
}

# Without a request there is nothing to ask for.
MIXES = [r for r in itertools.product(["write", "add", "null"], repeat=2) if set(r) != {"null"}]


def gradients(net, reqs, before, steps=1):
    """The gradient arrays after some steps, each of which began with `before`."""
    exe = net.simple_bind(mx.cpu(), grad_req=reqs, a=(2, 3), b=(2, 3))
    rng = np.random.default_rng(0)
    for array in exe.arg_dict.values():
        array[:] = mx.nd.array(rng.random((2, 3)))
    for array in exe.grad_arrays:
        if array is not None:
            array[:] = before
    for _ in range(steps):
        exe.forward(is_train=True)
        exe.backward([mx.nd.ones(o.shape) for o in exe.outputs])
    return {n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None}


@pytest.mark.parametrize("reqs", MIXES, ids="-".join)
@pytest.mark.parametrize("join", JOINS)
def test_arguments_that_share_a_gradient_get_their_own(join, reqs):
    net = JOINS[join](mx.sym.Variable("a"), mx.sym.Variable("b"))
    exact = {n: gradients(net, {n: "write"}, 0)[n] for n in "ab"}
    wanted = {n: req for n, req in zip("ab", reqs, strict=True) if req != "null"}
    got = gradients(net, wanted, before=7, steps=2)
    assert got.keys() >= wanted.keys()
    for name, req in wanted.items():
        expected = 7 + 2 * exact[name] if req == "add" else exact[name]
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, err_msg=name)


def test_two_arguments_may_add_to_one_array():
    net = mx.sym.exp(mx.sym.Variable("a") + mx.sym.Variable("b"))
    zeros, total = mx.nd.zeros((2,)), mx.nd.ones((2,))
    exe = net.bind(mx.cpu(), [zeros, zeros], [total, total], grad_req="add")
    exe.forward(is_train=True)
    exe.backward([mx.nd.ones((2,))])
    assert total.asnumpy().tolist() == [3, 3]


def test_groups_add_shared_gradients_on_their_devices():
    with mx.AttrScope(ctx_group="one"):
        a = mx.sym.Variable("a")
    with mx.AttrScope(ctx_group="two"):
        b = mx.sym.Variable("b")
        net = mx.sym.exp(a + b)
    groups = {"one": mx.cpu(0), "two": mx.cpu(1)}
    exe = net.simple_bind(mx.cpu(0), grad_req="add", group2ctx=groups, a=(2,), b=(2,))
    for _ in range(2):
        exe.forward(is_train=True)
        exe.backward([mx.nd.ones((2,), ctx=mx.cpu(1))])
    assert [g.asnumpy().tolist() for g in exe.grad_arrays] == [[2, 2], [2, 2]]


# ---- symbols of gradients ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exp", "tanh", "sqrt", "softmax"])
def test_a_symbol_of_gradients_binds_with_any_request(name):
    net = getattr(mx.sym, name)(mx.sym.Variable("x")).grad(["x"])
    x = mx.nd.array([[0.5, 1, 2]])
    values = []
    for req in ("null", "write", "add"):
        exe = net.simple_bind(mx.cpu(), req, x=(1, 3))
        exe.arg_dict["x"][:] = x
        for argument, array in exe.arg_dict.items():
            if argument != "x":  # the head gradient
                array[:] = 2
        values.append(exe.forward(is_train=req != "null")[0].asnumpy())
    assert np.array_equal(values[0], values[1]) and np.array_equal(values[0], values[2])
    x.attach_grad()
    with mx.autograd.record():
        y = getattr(mx.nd, name)(x)
    y.backward(mx.nd.ones(y.shape) * 2)
    np.testing.assert_allclose(values[0], x.grad.asnumpy(), rtol=1e-5)


def test_a_missing_second_derivative_is_an_error_of_backward():
    net = mx.sym.exp(mx.sym.Variable("x"), name="e").grad(["x"])
    exe = net.simple_bind(mx.cpu(), x=(2,))
    exe.arg_dict["x"][:] = 1
    exe.forward(is_train=True)
    with pytest.raises(NotImplementedError, match="_backward_exp 'e_backward': non-diff"):
        exe.backward([mx.nd.ones((2,))])
        exe.grad_dict["x"].asnumpy()


def test_a_second_derivative_of_what_is_linear():
    net = mx.sym.transpose(mx.sym.Variable("a")).grad(["a"])
    exe = net.simple_bind(mx.cpu(), a=(2, 3))
    (head,) = (n for n in exe.arg_dict if n != "a")
    exe.arg_dict[head][:] = 5
    assert (exe.forward(is_train=True)[0].asnumpy() == 5).all()
    exe.backward([mx.nd.array([[1, 2, 3], [4, 5, 6]])])
    assert exe.grad_dict[head].asnumpy().tolist() == [[1, 4], [2, 5], [3, 6]]
    assert (exe.grad_dict["a"].asnumpy() == 0).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: mx.sym.dot(a, b),
        lambda a, b: mx.sym.FullyConnected(a, b, num_hidden=3, no_bias=True),
        lambda a, b: mx.sym.elemwise_mul(a, b),
        lambda a, b: mx.sym.broadcast_div(a, b),
        lambda a, b: mx.sym.where(a > b, a, b),
        lambda a, b: mx.sym.SoftmaxOutput(a, b),
        lambda a, b: mx.sym.LayerNorm(a, b, b),
        lambda a, b: mx.sym.take(a, b),
        lambda a, b: mx.sym.concat(a, b),
        lambda a, b: mx.sym.LeakyReLU(a, act_type="elu") + b,
        lambda a, b: mx.sym.sum(a * b, axis=1),
        lambda a, b: mx.sym.BatchNorm(a) * b,
    ],
)
def test_any_symbol_of_gradients_binds(make):
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    net = make(a, b)
    grads = net.grad(["a"])
    shapes = {"a": (3, 3), "b": (3,) if "take" in str(net.list_outputs()) else (3, 3)}
    if "layernorm" in str(net.list_outputs()) or "softmaxoutput" in str(net.list_outputs()):
        shapes["b"] = (3,)
    exe = grads.simple_bind(mx.cpu(), **shapes)
    for array in exe.arg_arrays:
        array[:] = 1
    assert exe.forward(is_train=True)[0].asnumpy().shape == (3, 3)


def test_a_gradient_that_does_not_exist_is_an_error_when_it_runs():
    """Its operator, `_no_gradient`, has a shape, so that the graph can be bound."""
    x = mx.sym.Variable("x")
    missing = mx.sym._internal._no_gradient(x, of="some", node="node", why="there is no rule")
    exe = mx.sym.Group([x * 2, missing]).simple_bind(mx.cpu(), x=(2, 3), grad_req="null")
    assert [output.shape for output in exe.outputs] == [(2, 3), (2, 3)]
    with pytest.raises(NotImplementedError, match=r"some.*node.*there is no rule"):
        exe.forward()[1].asnumpy()
