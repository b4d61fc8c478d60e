"""Operators that read only the shape of an input leave its values to those that still need them."""

import numpy as np
import pytest

import rsnet as mx

sym = mx.sym
NETS = {
    "ones_like": lambda s: sym.ones_like(s) - s,
    "where": lambda s: sym.where(s > 0, s, sym.zeros_like(s)),
    "concat": lambda s: sym.concat(sym.zeros_like(s), s, dim=0),
    "twice": lambda s: sym.ones_like(s) + sym.zeros_like(s) + s,
    "like_rhs": lambda s: sym._internal._identity_with_attr_like_rhs(sym.exp(s), s) * s,
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("grad_req", ["null", "write"])
def test_a_computed_input_survives_an_operator_that_ignores_it(name, grad_req):
    x = mx.nd.array([-1.0, 0.0, 2.0])
    s = mx.nd.sigmoid(x)
    expected = {
        "ones_like": lambda: 1 - s,
        "where": lambda: s,
        "concat": lambda: mx.nd.concat(s * 0, s, dim=0),
        "twice": lambda: s + 1,
        "like_rhs": lambda: mx.nd.exp(s) * s,
    }[name]()
    net = NETS[name](sym.sigmoid(sym.Variable("x")))
    exe = net.simple_bind(mx.cpu(), grad_req, x=x.shape)
    got = exe.forward(is_train=grad_req != "null", x=x)[0]
    np.testing.assert_allclose(got.asnumpy(), expected.asnumpy(), rtol=1e-6)


def test_the_gradient_of_a_computed_right_side_of_scatter_set_nd():
    indices = mx.nd.array([[2, 0]])

    def net(f, lhs, rhs):
        return f._internal._scatter_set_nd(lhs * 2, f.sigmoid(rhs), indices_of(f), shape=(3,))

    def indices_of(f):
        return indices if f is mx.nd else sym.Variable("indices")

    lhs, rhs = mx.nd.array([1.0, 2.0, 3.0]), mx.nd.array([0.5, -0.5])
    head = mx.nd.array([1.0, 10.0, 100.0])
    for array in (lhs, rhs):
        array.attach_grad()
    with mx.autograd.record():
        out = net(mx.nd, lhs, rhs)
    out.backward(head)
    symbol = net(sym, sym.Variable("lhs"), sym.Variable("rhs"))
    args = {"lhs": lhs, "rhs": rhs, "indices": indices}
    grads = {name: mx.nd.zeros(args[name].shape) for name in ("lhs", "rhs")}
    exe = symbol.bind(mx.cpu(), args, grads)
    np.testing.assert_allclose(exe.forward(is_train=True)[0].asnumpy(), out.asnumpy())
    exe.backward(head)
    for name, array in (("lhs", lhs), ("rhs", rhs)):
        np.testing.assert_allclose(grads[name].asnumpy(), array.grad.asnumpy(), rtol=1e-6)
