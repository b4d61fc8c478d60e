"""Auxiliary states, monitors and passes node by node."""

import numpy as np
import pytest
from networks import arr, mlp, nd, rng, sym

import rsnet as mx
from rsnet.base import MXNetError


def test_moving_averages_move_in_training_only():
    net = sym.BatchNorm(sym.Variable("x"), name="bn", momentum=0.5, fix_gamma=False)
    exe = net.simple_bind(mx.cpu(), x=(8, 3))
    exe.arg_dict["x"][:] = arr(8, 3) + 4
    exe.forward(is_train=False)
    assert exe.aux_dict["bn_moving_mean"].asnumpy().tolist() == [0, 0, 0]
    exe.forward(is_train=True)
    moved = exe.aux_dict["bn_moving_mean"].asnumpy()
    if not moved.any():  # the averages may move in the backward pass
        exe.backward([nd.ones((8, 3))])
        moved = exe.aux_dict["bn_moving_mean"].asnumpy()
    np.testing.assert_allclose(moved, exe.arg_dict["x"].asnumpy().mean(axis=0) / 2, rtol=1e-4)


def test_monitor_sees_every_output():
    exe = mlp().simple_bind(mx.cpu(), data=(2, 4))
    seen = []
    exe.set_monitor_callback(lambda name, array: seen.append((name, array.asnumpy().shape)))
    exe.forward(is_train=True)
    assert ("fc1_output", (2, 8)) in seen and ("softmax_output", (2, 3)) in seen
    exe.backward()
    assert any(name.startswith("fc1_backward") for name, _ in seen)
    count = len(seen)
    exe.set_monitor_callback(None)
    exe.forward()
    assert len(seen) == count
    exe.set_monitor_callback(lambda name, array: seen.append(name), monitor_all=True)
    exe.forward()
    assert "data" in seen


def test_an_error_in_a_monitor_is_raised():
    exe = mlp().simple_bind(mx.cpu(), data=(2, 4))

    def broken(name, array):
        raise KeyError("mine")

    exe.set_monitor_callback(broken)
    with pytest.raises(KeyError, match="mine"):
        exe.forward()
    exe.set_monitor_callback(None)
    exe.forward()[0].asnumpy()


def test_partial_forward_runs_node_by_node():
    exe = mlp().simple_bind(mx.cpu(), data=(2, 4))
    exe.arg_dict["data"][:] = arr(2, 4)
    expected = exe.forward()[0].asnumpy()
    exe.outputs[0][:] = 0
    step, left = 0, 1
    while left:
        left = exe.partial_forward(False, step)
        step += 1
    np.testing.assert_array_equal(exe.outputs[0].asnumpy(), expected)
    with pytest.raises(MXNetError, match="step"):
        exe.forward()
        exe.partial_forward(False, 2)


def run_steps(exe, is_train=False):
    step, left = 0, 1
    while left:
        left = exe.partial_forward(is_train, step)
        step += 1


def test_steps_are_refused_once_a_sharing_executor_ran():
    net = sym.Variable("x")
    for i in range(3):
        net = sym.FullyConnected(net, num_hidden=4, no_bias=True, name=f"fc{i}")
    one = net.simple_bind(mx.cpu(), grad_req="null", x=(2, 4))
    two = net.simple_bind(mx.cpu(), grad_req="null", shared_exec=one, x=(2, 4))
    for exe, seed in ((one, 0), (two, 1)):
        for i, array in enumerate(exe.arg_arrays):
            array[:] = arr(*array.shape) + seed + i
    expected = one.forward()[0].asnumpy()
    one.partial_forward(False, 0)
    two.forward()
    with pytest.raises(MXNetError, match="another executor"):
        one.partial_forward(False, 1)
    run_steps(one)
    np.testing.assert_array_equal(one.outputs[0].asnumpy(), expected)


@pytest.mark.parametrize("monitor_all", [False, True])
def test_what_a_monitor_keeps_stays_what_it_was(monitor_all):
    """Also where the run itself takes over the memory of an entry."""
    a = np.linspace(0.5, 1.5, 6, dtype="float32")
    square = sym.square(sym.Variable("a"), name="square")
    net = sym.tanh(sym._mul_scalar(square, scalar=2, name="twice"), name="tanh")
    exe = net.simple_bind(mx.cpu(), a=(6,))
    kept = {}
    exe.set_monitor_callback(lambda name, array: kept.setdefault(name, array), monitor_all)
    exe.forward(is_train=True, a=a)
    exe.backward(nd.ones((6,)))
    y = np.tanh(2 * a**2)
    expected = {"square_output": a**2, "twice_output": 2 * a**2, "tanh_output": y}
    slope = 1 - y**2
    expected |= {"tanh_backward_output": slope, "twice_backward_output": 2 * slope}
    expected["square_backward_output"] = 4 * a * slope
    if monitor_all:
        expected |= {"a": a, "twice_data": a**2, "tanh_data": 2 * a**2, "_head_grad_0": slope**0}
        # A variable is shown under its own name and as the input that it is.
        expected |= {"square_data": a, "tanh_backward_input0": slope**0}
        expected |= {"tanh_backward_input1": y, "twice_backward_data": slope}
        expected |= {"square_backward_input0": 2 * slope, "square_backward_input1": a}
    exe.set_monitor_callback(None)
    exe.forward(a=a * 0 + 9)
    assert kept.keys() == expected.keys()
    for name, want in expected.items():
        got = kept[name].asnumpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_monitor_sees_single_steps():
    exe = mlp().simple_bind(mx.cpu(), data=(2, 4))
    whole, steps = [], []
    for seen, run in ((whole, exe.forward), (steps, lambda: run_steps(exe))):
        exe.set_monitor_callback(lambda name, array, seen=seen: seen.append(name))
        run()
    assert steps == whole and "fc1_output" in steps


def test_steps_heal_the_states_that_a_failed_pass_left():
    class Picky(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            if bad:
                raise KeyError("not today")
            self.assign(out_data[0], req[0], in_data[0])

    @mx.operator.register("test_executor_steps")
    class PickyProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Picky()

    bad = []
    net = sym.Custom(sym.Variable("x"), op_type="test_executor_steps")
    net = sym.BatchNorm(net, name="bn", fix_gamma=False)
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=(4, 3))
    exe.arg_dict["x"][:] = arr(4, 3)
    expected = exe.forward(is_train=True)[0].asnumpy()
    bad.append(True)
    with pytest.raises(KeyError):
        exe.forward(is_train=True)[0].asnumpy()
    bad.clear()
    run_steps(exe, True)
    np.testing.assert_array_equal(exe.outputs[0].asnumpy(), expected)


class Picky(mx.Operator):
    """Doubles what is below 100 and refuses the rest."""

    def forward(self, ctx, in_data, req, out_data, aux_states):
        x = in_data[0].asnumpy()
        if (x > 100).any():
            raise ValueError("too big")
        self.assign(out_data[0], req[0], nd.array(2 * x))

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        self.assign(in_grad[0], req[0], nd.array(2 * out_grad[0].asnumpy()))


@mx.operator.register("test_executor_picky")
class PickyProperty(mx.OperatorProperty):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx):
        return Picky()


def test_an_operators_error_surfaces_once_and_the_executor_lives_on():
    net = sym.test_executor_picky(sym.Variable("x") * 3, name="picky")
    net = sym.BatchNorm(net, name="bn", fix_gamma=False)
    exe = net.simple_bind(mx.cpu(), x=(4, 2))
    exe.arg_dict["bn_gamma"][:] = 1
    good = rng.standard_normal((4, 2)).astype("float32")
    expected = exe.forward(is_train=True, x=good)[0].asnumpy()
    for _ in range(3):
        outputs = exe.forward(is_train=True, x=good + 1000)
        with pytest.raises(ValueError, match="too big") as caught:
            outputs[0].asnumpy()
        assert "picky" in "".join(getattr(caught.value, "__notes__", []))
        again = exe.forward(is_train=True, x=good)[0].asnumpy()
        np.testing.assert_allclose(again, expected, rtol=1e-5)
    assert np.isfinite(exe.aux_dict["bn_moving_mean"].asnumpy()).all()
    exe.backward(nd.ones((4, 2)))
    assert np.isfinite(exe.grad_dict["x"].asnumpy()).all()


def test_a_python_operator_adds_its_gradient():
    net = sym.test_executor_picky(sym.Variable("x") * 3)
    exe = net.simple_bind(mx.cpu(), grad_req="add", x=(2,))
    for _ in range(2):
        exe.forward(is_train=True, x=nd.ones((2,)))
        exe.backward(nd.ones((2,)))
    assert exe.grad_dict["x"].asnumpy().tolist() == [12, 12]
