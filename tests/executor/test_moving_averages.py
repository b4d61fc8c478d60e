"""States that a backward pass updates change in every training step, whatever gradient arrives."""

import numpy as np
import pytest

import rsnet as mx

ENDS = {
    "plain": lambda f, y: y,
    "BlockGrad": lambda f, y: f.BlockGrad(y),
    "comparison": lambda f, y: y > 0,
    "zeros_like": lambda f, y: f.zeros_like(y) * 2,
    "blocked twice": lambda f, y: f.BlockGrad(f.BlockGrad(y) * 3),
}


@pytest.mark.parametrize("end", ENDS)
def test_moving_averages_of_a_blocked_output_move(end):
    data = mx.nd.array(np.arange(12, dtype="float32").reshape(4, 3))
    net = ENDS[end](mx.sym, mx.sym.BatchNorm(mx.sym.Variable("x"), name="bn"))
    exe = net.simple_bind(mx.cpu(), x=data.shape)
    exe.arg_dict["bn_gamma"][:] = 1
    exe.aux_dict["bn_moving_var"][:] = 1
    for _ in range(2):
        exe.forward(is_train=True, x=data)
        exe.backward([mx.nd.ones(exe.outputs[0].shape)])
    batch = data.asnumpy().mean(axis=0)
    expected = 0.9 * 0.1 * batch + 0.1 * batch
    np.testing.assert_allclose(exe.aux_dict["bn_moving_mean"].asnumpy(), expected, rtol=1e-5)
    for name in ("x", "bn_gamma", "bn_beta"):
        grad = exe.grad_dict[name].asnumpy()
        assert np.isfinite(grad).all() and (end == "plain" or (grad == 0).all())


def test_a_state_changes_in_no_backward_pass_that_no_gradient_wants():
    net = mx.sym.BlockGrad(mx.sym.BatchNorm(mx.sym.Variable("x"), name="bn"))
    exe = net.simple_bind(mx.cpu(), "null", x=(4, 3))
    exe.forward(is_train=True, x=mx.nd.ones((4, 3)))
    exe.backward()
    assert (exe.aux_dict["bn_moving_mean"].asnumpy() == 0).all()
