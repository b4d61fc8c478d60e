"""Segments of executors: what may run side by side, what may not, and memory that stays flat."""

import gc
import os
import time

import numpy as np
import pytest

import rsnet as mx

sym, nd = mx.sym, mx.nd


class Slow(mx.Operator):
    """Cubes its input, after a delay that differs from call to call."""

    delays = np.random.default_rng(5)

    def forward(self, ctx, in_data, req, out_data, aux_states):
        time.sleep(float(self.delays.uniform(0, 2e-3)))
        self.assign(out_data[0], req[0], nd.array(in_data[0].asnumpy() ** 3))

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        time.sleep(float(self.delays.uniform(0, 2e-3)))
        x, head = in_data[0].asnumpy(), out_grad[0].asnumpy()
        self.assign(in_grad[0], req[0], nd.array(3 * x * x * head))


@mx.operator.register("test_segments_slow")
class SlowProperty(mx.OperatorProperty):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx):
        return Slow()


def slow_network():
    """Branches of slow and of native operators whose buffers follow one another in the arena."""
    x = sym.Variable("x")
    a = sym.test_segments_slow(x * 0.5)
    b = sym.exp(sym.test_segments_slow(x + 0.25) * 0.5)
    for _ in range(3):
        a, b = sym.test_segments_slow(a * 0.75 + b), sym.exp(a * 0.25 - b)
    return a * b + sym.test_segments_slow(b)


def by_numpy(x):
    a, b = (x * 0.5) ** 3, np.exp((x + 0.25) ** 3 * 0.5)
    for _ in range(3):
        a, b = (a * 0.75 + b) ** 3, np.exp(a * 0.25 - b)
    return a * b + b**3


def test_delays_runs_back_to_back_and_a_shared_arena_change_nothing():
    net = slow_network()
    one = net.simple_bind(mx.cpu(), x=(6,))
    two = net.simple_bind(mx.cpu(), shared_exec=one, x=(6,))
    rng = np.random.default_rng(1)
    pairs = []
    for i in range(12):
        exe = (one, two)[i % 2]
        x = rng.uniform(-0.5, 0.5, 6)
        # The outputs are copied by the engine, after the run and before the next.
        out = exe.forward(is_train=True, x=x)[0].copy()
        exe.backward(nd.ones((6,)))
        pairs.append((x, out, exe.grad_dict["x"].copy()))
    for x, out, grad in pairs:
        np.testing.assert_allclose(out.asnumpy(), by_numpy(x), rtol=1e-4)
        slope = (by_numpy(x + 1e-5) - by_numpy(x - 1e-5)) / 2e-5
        np.testing.assert_allclose(grad.asnumpy(), slope, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("nodes", ["1", "2", "3"])
def test_a_failed_segment_leaves_the_next_run_alone(nodes, monkeypatch):
    monkeypatch.setenv("MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN", nodes)
    fail = [False]

    class Sometimes(mx.Operator):
        def forward(self, ctx, in_data, req, out_data, aux_states):
            if fail[0]:
                raise KeyError("this time")
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register(f"test_segments_sometimes{nodes}")
    class SometimesProperty(SlowProperty):
        def create_operator(self, ctx):
            return Sometimes()

    x = sym.Variable("x")
    make = getattr(sym, f"test_segments_sometimes{nodes}")
    net = sym.exp(make(sym.exp(x * 0.5))) * sym.exp(sym.exp(x) * 0.25)
    exe = net.simple_bind(mx.cpu(), x=(3,))
    data, head = np.linspace(-1, 1, 3), nd.ones((3,))

    def run():
        out = exe.forward(is_train=True, x=data)[0]
        exe.backward(head)
        return out.asnumpy(), exe.grad_dict["x"].asnumpy()

    expected = run()
    for _ in range(2):
        fail[0] = True
        exe.forward(is_train=True, x=data)
        exe.backward(head)
        with pytest.raises(KeyError, match="this time"):
            exe.grad_dict["x"].asnumpy()
        fail[0] = False
        for got, want in zip(run(), expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_monitored_pass_and_a_plain_one_mix():
    net = slow_network()
    exe = net.simple_bind(mx.cpu(), x=(6,))
    x = np.linspace(-0.5, 0.5, 6)
    exe.forward(is_train=True, x=x)
    exe.backward(nd.ones((6,)))
    expected = exe.grad_dict["x"].asnumpy()
    seen = []

    def watch(name, array):
        seen.append(array.copy())

    for first, second in ((True, False), (False, True)):
        seen.clear()
        exe.set_monitor_callback(watch if first else None)
        exe.forward(is_train=True, x=x)
        exe.set_monitor_callback(watch if second else None)
        exe.backward(nd.ones((6,)))
        np.testing.assert_array_equal(exe.grad_dict["x"].asnumpy(), expected)
        assert seen and all(np.isfinite(a.asnumpy()).all() for a in seen)


def test_outputs_of_all_internals_are_right():
    net = slow_network().get_internals()
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=(6,))
    x = np.linspace(-0.5, 0.5, 6)
    outputs = dict(zip(net.list_outputs(), exe.forward(x=x), strict=True))
    last = net.list_outputs()[-1]
    np.testing.assert_allclose(outputs[last].asnumpy(), by_numpy(x), rtol=1e-4)
    alone = net[last].simple_bind(mx.cpu(), grad_req="null", x=(6,))
    np.testing.assert_array_equal(alone.forward(x=x)[0].asnumpy(), outputs[last].asnumpy())


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_binding_ten_thousand_times_is_flat_in_memory():
    net = sym.exp(sym.FullyConnected(sym.Variable("x"), num_hidden=8, name="fc") * 2)
    head = nd.ones((4, 8))

    def cycle(times):
        for _ in range(times):
            exe = net.simple_bind(mx.cpu(), x=(4, 6))
            exe.forward(is_train=True)
            exe.backward(head)
        nd.waitall()
        gc.collect()
        return resident_bytes()

    before = cycle(1000)
    assert cycle(9000) - before < 4 << 20


def test_arrays_that_the_program_drops_stay_bound():
    x, grad = nd.ones((3,)), nd.zeros((3,))
    exe = (sym.Variable("x") * 2).bind(mx.cpu(), {"x": x}, {"x": grad})
    del x, grad
    gc.collect()
    others = [nd.full((3,), 7) for _ in range(50)]
    assert exe.forward(is_train=True)[0].asnumpy().tolist() == [2, 2, 2]
    exe.backward(nd.ones((3,)))
    assert exe.grad_dict["x"].asnumpy().tolist() == [2, 2, 2]
    exe.arg_dict["x"] = nd.ones((5,))  # a dict of its own: what is bound stays bound
    assert exe.forward()[0].shape == (3,) and len(others) == 50
