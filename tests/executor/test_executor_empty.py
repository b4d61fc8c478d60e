"""Bound graphs with arrays of no elements: they run like any other."""

import numpy as np
import pytest

import rsnet as mx
import rsnet.util
from rsnet import op


@pytest.fixture(autouse=True)
def _zeros_are_sizes():
    before = mx.util.set_np_shape(True)
    yield
    mx.util.set_np_shape(before)


@op.op("empty_double", inputs=["x"])
def empty_double(x):
    return x + x


@empty_double.gradient
def _(out_grads, inputs, outputs):
    return (out_grads[0] * 2,)


op.define("empty_twice", inputs="x", infer=lambda q: q.out("out").like(q.inp("x")))


@op.kernel("empty_twice")
def _(q):
    q.out("out")[:] = q.inp("x") * 2


@op.grad("empty_twice")
def _(q):
    q.bind("x", lambda: q.grad("out") * 2)


@mx.operator.register("empty_custom")
class EmptyCustomProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return EmptyCustom()


class EmptyCustom(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


NETS = {
    "chain": lambda a: mx.sym.sin(mx.sym.exp(a)) * 2,
    "sum": lambda a: mx.sym.exp(a) * 2 + mx.sym.sin(a) * mx.sym.cos(a),
    "dense": lambda a: mx.sym.FullyConnected(mx.sym.exp(a), num_hidden=3, name="fc"),
    "norm": lambda a: mx.sym.relu(mx.sym.BatchNorm(mx.sym.exp(a), name="bn")),
    "dropout": lambda a: mx.sym.Dropout(mx.sym.exp(a), p=0.5) * 2,
    "softmax": lambda a: mx.sym.softmax(mx.sym.exp(a)) * 2,
    "group": lambda a: mx.sym.Group([mx.sym.exp(a), mx.sym.exp(a) * 2]),
    "concat": lambda a: mx.sym.Concat(mx.sym.exp(a), mx.sym.sin(a), dim=0) * 2,
    "empty beside full": lambda a: mx.sym.Group(
        [mx.sym.exp(a) * 2, mx.sym.exp(mx.sym.Variable("full", shape=(2, 2))) * 2]
    ),
    "decorated operator alone": lambda a: mx.sym.empty_double(a),
    "decorated operator": lambda a: mx.sym.empty_double(mx.sym.empty_double(a)) * 2,
    "bound operator alone": lambda a: mx.sym.empty_twice(a),
    "custom operator alone": lambda a: mx.sym.Custom(a, op_type="empty_custom"),
    "custom operator": lambda a: mx.sym.Custom(mx.sym.exp(a), op_type="empty_custom") * 2,
    "bound operator": lambda a: mx.sym.empty_twice(mx.sym.exp(a)) * 2,
}


def bound(net, grad_req="write", **more):
    return net.simple_bind(mx.cpu(), grad_req=grad_req, a=(0, 3), **more)


def check_backward(exe):
    exe.backward([mx.nd.ones(o.shape) for o in exe.outputs])
    for name, grad in exe.grad_dict.items():
        assert grad.asnumpy().shape == exe.arg_dict[name].shape
    assert exe.grad_dict["a"].shape == (0, 3)


@pytest.mark.parametrize("segments", ["whole", "single"])
@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("net", NETS)
def test_both_passes_run(net, grad_req, segments, monkeypatch):
    if segments == "single":
        monkeypatch.setenv("MXNET_EXEC_PREFER_BULK_EXEC", "0")
    exe = bound(NETS[net](mx.sym.Variable("a")), grad_req)
    assert [o.asnumpy().shape for o in exe.outputs] == [o.shape for o in exe.outputs]
    for _ in range(2):
        assert exe.forward()[0].asnumpy().shape == exe.outputs[0].shape
        exe.forward(is_train=True)
        check_backward(exe)
    assert 0 in exe.outputs[0].shape


@pytest.mark.parametrize("net", NETS)
def test_steps_and_monitors_see_empty_arrays(net):
    exe = bound(NETS[net](mx.sym.Variable("a")))
    left, step = 1, 0
    while left:
        left = exe.partial_forward(True, step)
        step += 1
    assert [o.asnumpy().shape for o in exe.outputs] == [o.shape for o in exe.outputs]
    check_backward(exe)
    seen = []
    exe.set_monitor_callback(lambda name, array: seen.append(array.asnumpy().size), True)
    exe.forward(is_train=True)
    check_backward(exe)
    assert 0 in seen


def test_plans_of_empty_arrays_have_no_bytes(tmp_path):
    net = NETS["chain"](mx.sym.Variable("a"))
    plan = net.memory_plan(a=(0, 3))
    assert (plan.arena_bytes, plan.lower_bound_bytes, plan.output_bytes) == (0, 0, 0)
    assert "arena 0 bytes" in str(plan)
    for kind in ("svg", "png"):
        plan.draw(str(tmp_path / f"plan.{kind}"))
    assert "Total 0 MB" in bound(net).debug_str()


def test_limits_and_switches_hold(monkeypatch):
    net = NETS["sum"](mx.sym.Variable("a"))
    assert net.memory_plan(a=(0, 3), memory_limit=1).arena_bytes == 0
    for key, value in [
        ("MXNET_BACKWARD_DO_MIRROR", "1"),
        ("MXNET_EXEC_ENABLE_INPLACE", "0"),
        ("MXNET_EXEC_INPLACE_GRAD_SUM_CAP", "2"),
    ]:
        monkeypatch.setenv(key, value)
        exe = bound(net, "add")
        exe.forward(is_train=True)
        check_backward(exe)


def test_empty_arrays_cross_devices():
    with mx.AttrScope(ctx_group="one"):
        x = mx.sym.exp(mx.sym.Variable("a")) * 2
    with mx.AttrScope(ctx_group="two"):
        net = mx.sym.sin(x) * mx.sym.cos(x)
    exe = bound(net, group2ctx={"one": mx.cpu(0), "two": mx.cpu(1)})
    exe.forward(is_train=True)
    exe.backward([mx.nd.ones((0, 3), ctx=mx.cpu(1))])
    assert exe.outputs[0].context == mx.cpu(1)
    assert exe.grad_dict["a"].asnumpy().shape == (0, 3)


def test_reshaping_to_and_from_empty():
    net = NETS["chain"](mx.sym.Variable("a"))
    empty = bound(net)
    full = empty.reshape(allow_up_sizing=True, a=(2, 3))
    full.arg_dict["a"][:] = 0
    full.forward(is_train=True)
    full.backward([mx.nd.ones((2, 3))])
    np.testing.assert_allclose(full.grad_dict["a"].asnumpy(), 2 * np.cos(1), rtol=1e-5)
    again = full.reshape(a=(0, 3))
    for exe in (again, empty):
        exe.forward(is_train=True)
        check_backward(exe)
    np.testing.assert_allclose(full.forward()[0].asnumpy(), 2 * np.sin(1), rtol=1e-5)
