"""`autograd.Function`: gradients written by the user."""

import gc
import weakref

import numpy as np
import pytest
from arrays import leaf

import rsnet as mx
from rsnet import autograd, nd


def test_function():
    class Sigmoid(autograd.Function):
        def forward(self, x):
            y = 1 / (1 + nd.exp(-x))
            self.save_for_backward(y)
            return y

        def backward(self, dy):
            (y,) = self.saved_tensors
            return dy * y * (1 - y)

    x = leaf([0.0, 1.0])
    f = Sigmoid()
    with autograd.record():
        y = f(x) * 2
        with pytest.raises(AssertionError):
            f(x)
    y.backward()
    s = 1 / (1 + np.exp(-np.array([0.0, 1.0])))
    np.testing.assert_allclose(x.grad.asnumpy(), 2 * s * (1 - s), rtol=1e-5)


class Power(autograd.Function):
    """``x**3``; the gradient reads what it kept in one of three ways."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        y = x * x * x
        self.x = x
        self.save_for_backward(y if self.how == "output" else x)
        return y

    def backward(self, dy):
        (kept,) = self.saved_tensors
        if self.how == "output":
            return dy * 3 * nd.power(kept, 2 / 3)
        x = kept if self.how == "input" else self.x
        return dy * 3 * x * x


@pytest.mark.parametrize("how", ["output", "input", "attribute"])
def test_gradients_of_functions_can_be_differentiated(how):
    x = leaf([2.0, 3.0])
    v = np.array([2.0, 3.0])
    with autograd.record():
        y = Power(how)(x) * x  # x^4
        (dy,) = autograd.grad(y, [x], create_graph=True, retain_graph=True)
        (ddy,) = autograd.grad(dy, [x], create_graph=True, retain_graph=True)
    np.testing.assert_allclose(dy.asnumpy(), 4 * v**3, rtol=1e-5)
    np.testing.assert_allclose(ddy.asnumpy(), 12 * v**2, rtol=1e-5)
    ddy.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 24 * v, rtol=1e-4)


def test_gradients_of_functions_in_another_shape_can_be_differentiated():
    class Flat(autograd.Function):
        def forward(self, x):
            self.x = x
            return x * x

        def backward(self, dy):
            return (2 * self.x * dy).reshape((-1,))

    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with autograd.record():
        y = Flat()(x)
        (dy,) = autograd.grad(y, [x], create_graph=True, retain_graph=True)
        z = dy * x
    z.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 4 * x.asnumpy())


def test_a_function_that_keeps_its_output_is_freed():
    class Keeps(Power):
        pass

    x = leaf([2.0])
    with autograd.record():
        f = Keeps("output")
        y = f(x)
    y.backward()
    gone = weakref.ref(f)
    del f, y
    gc.collect()
    assert gone() is None


def test_function_with_too_few_gradients():
    class Bad(autograd.Function):
        def forward(self, x, y):
            return x + y

        def backward(self, dy):
            return dy

    x, y = leaf([1.0]), leaf([1.0])
    with autograd.record():
        z = Bad()(x, y)
    with pytest.raises(AssertionError, match="same number"):
        z.backward()
    assert not autograd.is_recording()


@pytest.mark.parametrize("bad", [nd.ones((7,)), nd.ones((3,), dtype="int8")])
def test_gradients_of_functions_must_fit(bad):
    class Wrong(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return bad

    x = nd.ones((3,))
    x.attach_grad()
    with autograd.record():
        y = Wrong()(x * 5) * 2
    with pytest.raises((ValueError, TypeError, mx.MXNetError), match="gradient 0 returned"):
        y.backward()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "None, expected an NDArray"),
        (3.5, "3.5, expected an NDArray"),
        (np.ones(2), r"array\(\[1., 1.\]\), expected an NDArray"),
        (np.ones(1000), "a ndarray, expected an NDArray"),
        ([nd.ones((1,)), None], "None as output 1, expected an NDArray"),
    ],
)
@pytest.mark.parametrize("recording", [True, False])
def test_functions_return_arrays(answer, says, recording):
    class Wrong(autograd.Function):
        def forward(self, x):
            return answer

    x = nd.ones((2,))
    x.attach_grad()
    with pytest.raises(TypeError, match=f"Wrong.forward returned {says}"):
        if recording:
            with autograd.record():
                Wrong()(x)
        else:
            Wrong()(x)


@pytest.mark.parametrize(
    ("gradients", "says"),
    [
        ([nd.ones((2,)), nd.ones((3,))], r"gradients\[1\]: .*shape \(3,\), expected .* \(2,\)"),
        ([nd.ones((2,)), nd.ones((2,), dtype="int8")], r"\[1\]: .*dtype int8, expected .* float32"),
        ([nd.ones((2,)), np.ones(2)], r"invalid item 1 of gradients array.*: expected an NDArray"),
        ([nd.ones((2,)), None], r"invalid item 1 of gradients None: expected an NDArray"),
        ([nd.ones((2,))], r"gradients and requests \(1, 2\): expected 2"),
    ],
)
def test_gradient_buffers_are_like_their_variables(gradients, says):
    variables = [nd.ones((2,)), nd.ones((2,))]
    with pytest.raises((ValueError, TypeError), match=says):
        autograd.mark_variables(variables, gradients)
    assert [v.grad for v in variables] == [None, None]
