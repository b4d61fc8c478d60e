"""Operators that record what they compute from their operands, and go back through it later."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, nd


class Recorded(mx.operator.CustomOp):
    """A layer of which the gradient is that of the recorded forward pass: x * y, for y = sin(x)."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.grad = nd.zeros_like(in_data[0])
        autograd.mark_variables([in_data[0]], [self.grad])
        with autograd.record():
            self.y = in_data[0] * nd.sin(in_data[0])
        self.assign(out_data[0], req[0], self.y)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.y.backward(out_grad[0])
        self.assign(in_grad[0], req[0], self.grad)


class IntoOutput(Recorded):
    """The recorded value is the operand for the output, which the gradient of exp reads."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.grad = nd.zeros_like(in_data[0])
        autograd.mark_variables([in_data[0]], [self.grad])
        with autograd.record():
            self.y = nd.exp(in_data[0], out=out_data[0])


@mx.operator.register("recorded_operand")
class RecordedProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Recorded()


@mx.operator.register("recorded_output")
class IntoOutputProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return IntoOutput()


CASES = {
    "recorded_operand": lambda x: np.sin(x) + x * np.cos(x),
    "recorded_output": np.exp,
}


@pytest.mark.parametrize("size", [3, 100_000], ids=["run inline", "pushed"])
@pytest.mark.parametrize("name", CASES)
def test_what_was_recorded_outlives_the_operands(name, size):
    x = np.linspace(-1, 1, size, dtype="float32")
    head = np.linspace(1, 2, size, dtype="float32")
    net = mx.sym.Custom(mx.sym.Variable("x") * 1.0, op_type=name) * 2.0
    exe = net.simple_bind(mx.cpu(), x=(size,))
    for step in range(3):  # the memory of operands is used again
        exe.arg_dict["x"][:] = x + step
        exe.forward(is_train=True)
        exe.backward(nd.array(head))
        want = 2 * head * CASES[name](x + step)
        np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_recording_inside_of_a_recorded_call(name):
    x = nd.array([0.5, -1, 2])
    x.attach_grad()
    with autograd.record():
        y = nd.Custom(x * 1.0, op_type=name)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), CASES[name](x.asnumpy()), rtol=2e-5)
