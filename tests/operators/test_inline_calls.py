"""The short ways give what the long ways give, and refuse what these refuse: element-wise calls on
small
arrays, assignments to the whole of an array, operands of a backward pass that reads everything."""

import numpy as np
import pytest
from short_operators import call, custom

import rsnet as mx
from rsnet import autograd, nd

CALLS = {
    "unary": nd.exp,
    "negated": lambda x: -x,
    "number_right": lambda x: x - 2,
    "number_left": lambda x: 2 / x,
    "two_arrays": lambda x: x * x,
    "function_of_two": lambda x: nd.elemwise_mul(x, x),
    "clip": lambda x: nd.clip(x, 1, 2),
}
#: The same of NumPy arrays, with the derivatives.
EXPECTED = {
    "unary": (np.exp, np.exp),
    "negated": (lambda x: -x, lambda x: -np.ones_like(x)),
    "number_right": (lambda x: x - 2, np.ones_like),
    "number_left": (lambda x: 2 / x, lambda x: -2 / x**2),
    "two_arrays": (lambda x: x * x, lambda x: 2 * x),
    "function_of_two": (lambda x: x * x, lambda x: 2 * x),
    "clip": (lambda x: np.clip(x, 1, 2), lambda x: ((x >= 1) & (x <= 2)).astype(x.dtype)),
}


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 2, 1, 3, 1, 2), (0, 4), (70, 90)])
@pytest.mark.parametrize("kind", CALLS)
def test_element_wise_calls_equal_numpy(kind, shape):
    values = np.linspace(0.5, 2.5, int(np.prod(shape)), dtype="float32").reshape(shape)
    value, slope = EXPECTED[kind]
    x = nd.array(values)
    x.attach_grad()
    with autograd.record():
        y = CALLS[kind](x)
    y.backward()
    assert y.shape == x.shape and y.dtype == x.dtype
    np.testing.assert_allclose(y.asnumpy(), value(values).reshape(x.shape), rtol=1e-5)
    np.testing.assert_allclose(x.grad.asnumpy(), slope(values).reshape(x.shape), rtol=1e-5)
    np.testing.assert_array_equal(CALLS[kind](nd.array(values)).asnumpy(), y.asnumpy())


@pytest.mark.parametrize("kind", CALLS)
def test_what_reads_an_array_that_failed_fails(kind):
    def fails(self, is_train, req, in_data, out_data, aux):
        raise ZeroDivisionError("on purpose")

    bad = call(custom(fails))
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        bad.wait_to_read()
    after = CALLS[kind](bad)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        after.asnumpy()


@pytest.mark.parametrize("kind", CALLS)
def test_operands_of_a_call_that_is_over_are_refused(kind):
    kept = []

    def keeps(self, is_train, req, in_data, out_data, aux):
        kept.append(in_data[0])
        self.assign(out_data[0], req[0], in_data[0])

    call(custom(keeps)).wait_to_read()
    with pytest.raises(ValueError, match="copy an operand to keep it"):
        CALLS[kind](kept[0])
    with pytest.raises(ValueError, match="copy an operand to keep it"):
        nd.zeros((2,))[:] = kept[0]


def test_arguments_that_do_not_fit_are_named_as_before():
    with pytest.raises(mx.MXNetError, match="invalid number of inputs 1: expected 2"):
        nd.elemwise_mul(nd.ones((2,)))
    with pytest.raises(ValueError, match="Incompatible attr"):
        nd.elemwise_mul(nd.ones((2,)), nd.ones((3,)))
    with pytest.raises(TypeError, match="Incompatible attr"):
        nd.elemwise_mul(nd.ones((2,)), nd.ones((2,), dtype="float64"))


@pytest.mark.parametrize("key", [np.s_[:], np.s_[0:], np.s_[:3], np.s_[-3:9], np.s_[::1]])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("shape", [(3, 2), (1, 2), (2,)])
def test_assigning_to_the_whole_of_an_array(key, dtype, shape):
    x, expected = nd.zeros((3, 2)), np.zeros((3, 2), dtype="float32")
    source = np.arange(np.prod(shape)).reshape(shape)
    x[key], expected[key] = nd.array(source, dtype=dtype), source
    assert x.asnumpy().tolist() == expected.tolist()


def test_assigning_to_a_part_or_backwards_is_not_the_whole():
    x, y = nd.zeros((3,)), nd.array([1, 2, 3])
    x[::-1] = y
    assert x.asnumpy().tolist() == [3, 2, 1]
    x[1:] = y[:2]
    assert x.asnumpy().tolist() == [3, 1, 2]
    with pytest.raises(ValueError, match=r"from shape \(3,\): expected \(2,\)"):
        x[1:] = y


def test_assignments_are_recorded_or_refused():
    y, x = nd.array([1, 2]), nd.zeros((2,))
    y.attach_grad()
    with autograd.record():
        x[:] = 3 * y
        z = x * x
        with pytest.raises(mx.MXNetError, match="already in a computational graph"):
            z[:] = nd.ones((2,))
    z.backward()
    assert y.grad.asnumpy().tolist() == [18, 36]


@pytest.mark.parametrize("reads", ["all", "reordered"])
def test_backward_finds_its_operands_whatever_it_declares(reads):
    """Two outputs of which one is hidden, two arguments, one state."""
    seen = []

    class Operator(mx.Operator):
        def forward(self, ctx, in_data, req, out_data, aux_states):
            self.assign(out_data[0], req[0], in_data[0] + in_data[1])
            self.assign(out_data[1], req[1], in_data[0] * 10)

        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
            groups = (out_grad, in_data, out_data, aux_states)
            seen.append([[a.asnumpy().tolist() for a in group] for group in groups])
            for grad, how in zip(in_grad, req):
                self.assign(grad, how, out_grad[0])

    class Property(mx.OperatorProperty):
        def list_arguments(self):
            return ["a", "b"]

        def list_outputs(self):
            return ["sum", "hidden"]

        def num_visible_outputs(self):
            return 1

        def list_auxiliary_states(self):
            return ["state"]

        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]] * 2, [in_shape[0]]

        def declare_backward_dependency(self, out_grad, in_data, out_data):
            all_entries = [*out_grad, *in_data, *out_data]
            return all_entries if reads == "all" else all_entries[::-1]

        def create_operator(self, ctx):
            return Operator()

    name = f"short_scatter_{reads}"
    mx.operator.register(name)(Property)
    a, b, state = nd.array([1]), nd.array([2]), nd.array([7])
    a.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(a, b, state)
    y.backward(nd.array([5]))
    assert a.grad.asnumpy().tolist() == [5]
    assert seen == [[[[5]], [[1], [2]], [[3], [10]], [[7]]]]
