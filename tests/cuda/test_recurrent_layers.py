"""`RNN` on a device, against the host: every cell, with all that its parameters change."""

import gc

import numpy as np
import pytest
from conftest import assert_near, until

import rsnet as mx
from rsnet import nd

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


@pytest.fixture(autouse=True)
def nothing_runs_on_the_host():
    before = mx.cuda.operators_on_host()
    yield
    assert mx.cuda.operators_on_host() == before


def operands(mode, dtype, time=5, batch=3, first=4, hidden=6, layers=1, both=False, proj=None):
    random, directions = np.random.RandomState(4), 2 if both else 1
    gates, state = GATES[mode] * hidden, proj or hidden
    size = 0
    for layer in range(layers):
        width = first if layer == 0 else directions * state
        size += directions * (gates * (width + state + 2) + (state * hidden if proj else 0))
    shapes = [(time, batch, first), (size,), (layers * directions, batch, state)]
    shapes += [(layers * directions, batch, hidden)] * (mode == "lstm")
    return [random.uniform(-0.6, 0.6, shape).astype(dtype) for shape in shapes]


def run(ctx, arrays, lengths=None, train=True, **params):
    """Outputs, then gradients."""
    mx.random.seed(3)
    inputs = [nd.array(a, ctx=ctx, dtype=a.dtype) for a in arrays]
    for x in inputs:
        x.attach_grad()
    if lengths is not None:
        inputs.append(nd.array(lengths, ctx=ctx, dtype=lengths.dtype))
        params["use_sequence_length"] = True
    with mx.autograd.record(train_mode=train):
        outs = nd.RNN(*inputs, state_outputs=True, **params)
    heads = [nd.cos(nd.arange(o.size, ctx=ctx).reshape(o.shape)).astype(o.dtype) for o in outs]
    mx.autograd.backward(outs, heads)
    found = list(outs) + [x.grad for x in inputs[: len(arrays)]]
    return [x.asnumpy() for x in found]


def compare(gpu, arrays, **params):
    for got, want in zip(run(gpu, arrays, **params), run(mx.cpu(), arrays, **params), strict=True):
        assert_near(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("mode", GATES)
def test_every_cell(mode, dtype, gpu):
    params = {"state_size": 6, "num_layers": 1, "mode": mode}
    compare(gpu, operands(mode, dtype), **params)


@pytest.mark.parametrize("mode", GATES)
def test_layers_in_both_directions_with_dropout(mode, gpu):
    arrays = operands(mode, "float32", layers=3, both=True)
    params = {"state_size": 6, "num_layers": 3, "mode": mode, "bidirectional": True}
    compare(gpu, arrays, p=0.4, **params)
    compare(gpu, arrays, p=0.4, train=False, **params)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "float64", "uint8"])
@pytest.mark.parametrize("mode", GATES)
def test_sequences_that_end(mode, dtype, gpu):
    arrays = operands(mode, "float32", batch=4, layers=2, both=True)
    params = {"state_size": 6, "num_layers": 2, "mode": mode, "bidirectional": True}
    compare(gpu, arrays, lengths=np.array([5, 2, 0, 9], dtype), **params)


@pytest.mark.parametrize("lengths", [None, np.array([3, 5, 1], "float32")], ids=["whole", "ends"])
@pytest.mark.parametrize("both", [False, True])
def test_projections_and_limits(both, lengths, gpu):
    arrays = operands("lstm", "float32", layers=2, both=both, proj=3)
    limits = {"lstm_state_clip_min": -0.2, "lstm_state_clip_max": 0.1}
    params = {"state_size": 6, "num_layers": 2, "mode": "lstm", "bidirectional": both}
    compare(gpu, arrays, lengths=lengths, projection_size=3, **limits, **params)


@pytest.mark.parametrize("sizes", [{"time": 1}, {"batch": 1}, {"time": 40, "batch": 70}])
def test_other_sizes(sizes, gpu):
    compare(gpu, operands("gru", "float32", **sizes), state_size=6, num_layers=1, mode="gru")


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_executors_with_every_request(mode, gpu):
    arrays = operands(mode, "float32", layers=2)
    names = ["data", "parameters", "state", "state_cell"][: len(arrays)]
    net = mx.sym.RNN(*map(mx.sym.var, names), state_size=6, num_layers=2, mode=mode, p=0.3)
    for req in ("write", "add", dict(zip(names, ["write", "null", "null", "add"], strict=False))):
        found = []
        for ctx in (mx.cpu(), gpu):
            mx.random.seed(8)
            args = {n: nd.array(a, ctx=ctx) for n, a in zip(names, arrays, strict=True)}
            grads = {n: nd.ones(a.shape, ctx=ctx) for n, a in zip(names, arrays, strict=True)}
            exe = net.bind(ctx, args, args_grad=grads, grad_req=req)
            for _ in range(3):
                out = exe.forward(is_train=True)[0]
                exe.backward([nd.ones(out.shape, ctx=ctx)])
            found.append([out.asnumpy()] + [grads[n].asnumpy() for n in names])
        for got, want in zip(found[1], found[0], strict=True):
            assert_near(got, want)


def test_a_backward_run_that_finds_nothing_kept_repeats_the_forward_one(gpu):
    """As one does whose forward run was not going to need gradients."""
    arrays = operands("lstm", "float32")
    names = ["data", "parameters", "state", "state_cell"]
    net = mx.sym.RNN(*map(mx.sym.var, names), state_size=6, num_layers=1, mode="lstm")
    grads = []
    for ctx in (mx.cpu(), gpu):
        args = {n: nd.array(a, ctx=ctx) for n, a in zip(names, arrays, strict=True)}
        exe = net.simple_bind(ctx, **{n: a.shape for n, a in zip(names, arrays, strict=True)})
        exe.copy_params_from(args)
        exe.forward(is_train=False)
        exe.forward(is_train=True)
        exe.backward([nd.ones(exe.outputs[0].shape, ctx=ctx)])
        grads.append(exe.grad_dict["parameters"].asnumpy())
    assert_near(grads[1], grads[0])


def test_memory_of_runs_is_given_back(gpu, emulated):
    """Whatever was free in the pool has been released, all runs leave the same in use."""
    arrays = operands("lstm", "float32", time=30, batch=16, layers=2)

    def after_a_run():
        run(gpu, arrays, state_size=6, num_layers=2, mode="lstm")
        gc.collect()
        nd.waitall()

    after_a_run()  # what the first one leaves for good: functions, places of blocks
    gpu.empty_cache()
    used, live = mx._core.memory_usage(gpu)[0], emulated.live_bytes()
    for _ in range(6):
        after_a_run()
        until(lambda: mx._core.memory_usage(gpu)[0] <= used)
        until(lambda: gpu.empty_cache() or emulated.live_bytes() <= live)


def test_layers_of_gluon_train_as_on_the_host(gpu):
    found = []
    for ctx in (mx.cpu(), gpu):
        mx.random.seed(2)
        net = mx.gluon.rnn.LSTM(8, num_layers=2, bidirectional=True)
        net.initialize(mx.init.Uniform(0.3), ctx=ctx)
        trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        x = nd.array(np.random.RandomState(1).standard_normal((6, 4, 5)), ctx=ctx)
        for _ in range(3):
            with mx.autograd.record():
                loss = (net(x) ** 2).mean()
            loss.backward()
            trainer.step(4)
        found.append([p.data(ctx).asnumpy() for p in net.collect_params().values()])
    for got, want in zip(*found[::-1], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)
