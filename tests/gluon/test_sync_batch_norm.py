"""Batch normalisation over the batches of several devices: calls that share a key are computed
together.
"""

import functools

import numpy as np
import pytest
from processes import printed

import rsnet as mx
from rsnet import autograd, gluon, nd

SHAPES = [(2, 3, 2, 2), (4, 3, 2, 2), (1, 3, 2, 2)]
OPTIONS = {"eps": 1e-3, "momentum": 0.8, "fix_gamma": False}


def parts_of(shapes, seed=0):
    """Data for each device, of different means, gradients of the outputs, gamma and beta."""
    rng = np.random.RandomState(seed)
    data = [rng.normal(i, 1 + i, shape) for i, shape in enumerate(shapes)]
    heads = [rng.normal(size=shape) for shape in shapes]
    return data, heads, rng.uniform(0.5, 2, shapes[0][1]), rng.normal(size=shapes[0][1])


def normalised(data, heads, gamma, beta, dtype="float64", **options):
    """Outputs, gradients and moving averages: over devices, or of one batch on one."""
    options = {**OPTIONS, "ndev": len(data), "key": "k", **options}
    wide = "float32" if dtype == "float16" else dtype
    runs = []
    with autograd.record():
        for i, x in enumerate(data):
            with mx.cpu(i):
                inputs = [
                    nd.array(x, dtype=dtype),
                    *(nd.array(a, dtype=wide) for a in (gamma, beta)),
                ]
                states = [nd.array(np.full_like(gamma, a), dtype=wide) for a in (0, 1)]
            for array in inputs:
                array.attach_grad()
            runs.append((nd.contrib.SyncBatchNorm(*inputs, *states, **options), inputs, states))
    outs = [out for out, _, _ in runs]
    with_heads = zip(outs, heads, strict=True)
    autograd.backward(outs, [nd.array(h, ctx=o.context, dtype=dtype) for o, h in with_heads])
    return [
        (out.asnumpy(), [a.grad.asnumpy() for a in inputs], [s.asnumpy() for s in states])
        for out, inputs, states in runs
    ]


@pytest.mark.parametrize("shapes", [SHAPES[:2], SHAPES, [(3, 5), (4, 5)], [(2, 3, 40)] * 2])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-4), ("float16", 3e-2)]
)
@pytest.mark.parametrize("fix_gamma", [False, True])
def test_devices_share_the_statistics_of_one_batch(shapes, dtype, tolerance, fix_gamma):
    data, heads, gamma, beta = parts_of(shapes)
    several = normalised(data, heads, gamma, beta, dtype, fix_gamma=fix_gamma)
    whole = [np.concatenate(data)], [np.concatenate(heads)]
    [(out, grads, states)] = normalised(*whole, gamma, beta, fix_gamma=fix_gamma)
    close = functools.partial(np.testing.assert_allclose, rtol=10 * tolerance, atol=20 * tolerance)
    close(np.concatenate([part[0] for part in several]), out)
    close(np.concatenate([part[1][0] for part in several]), grads[0])
    for i in (1, 2):  # each device has the gradient of its own part
        close(sum(part[1][i] for part in several), grads[i])
    for part in several:
        for got, want in zip(part[2], states, strict=True):
            close(got, want)


def test_outside_of_training_devices_do_not_wait():
    x, channel = nd.ones((2, 3)), nd.ones((3,))
    more = {"key": "alone", "ndev": 2}
    y = nd.contrib.SyncBatchNorm(x, channel, channel, channel, channel, **more)
    assert y.shape == (2, 3) and y.asnumpy().tolist() == [[1] * 3] * 2
    with autograd.record():
        y = nd.contrib.SyncBatchNorm(
            x, channel, channel, channel, channel, use_global_stats=True, **more
        )
    assert y.asnumpy().tolist() == [[1] * 3] * 2


def test_steps_that_run_ahead_meet_in_their_order():
    """A device that is a step ahead waits for the others' first step."""
    rng = np.random.RandomState(3)
    data = [[rng.normal(3 * step, 1, (4, 2)) for step in range(3)] for _ in range(2)]
    states = [[nd.array([1, 1], ctx=mx.cpu(i)) for _ in range(4)] for i in range(2)]
    outs = [[], []]
    with autograd.train_mode():
        for device in range(2):
            for x in data[device]:
                x = nd.array(x, ctx=mx.cpu(device))
                outs[device].append(
                    nd.contrib.SyncBatchNorm(x, *states[device], ndev=2, key="ahead")
                )
    for step in range(3):
        both = np.concatenate([outs[device][step].asnumpy() for device in range(2)])
        np.testing.assert_allclose(both.mean(0), 1, atol=1e-4)  # beta


def network(count, devices):
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Dense(6, in_units=5),
        gluon.contrib.nn.SyncBatchNorm(in_channels=6, num_devices=count),
        gluon.nn.Dense(2, in_units=6),
    )
    net.initialize(mx.init.Constant(0.1), ctx=devices)
    for i, parameter in enumerate(net.collect_params().values()):
        if parameter.name.endswith("weight"):
            parameter.set_data(nd.array(np.random.RandomState(i).normal(size=parameter.shape)))
    return net


@pytest.mark.parametrize("hybrid", [False, True])
def test_two_devices_train_as_one(hybrid):
    rows = np.random.RandomState(1).normal(size=(8, 5)) * np.arange(1, 9)[:, None]
    weights = []
    for devices in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]):
        net = network(len(devices), devices)
        if hybrid:
            net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for _ in range(3):
            with autograd.record():
                losses = [
                    (net(x) ** 2).sum() for x in gluon.utils.split_and_load(nd.array(rows), devices)
                ]
            autograd.backward(losses)
            trainer.step(8)
        weights.append([p.data(mx.cpu(0)).asnumpy() for p in net.collect_params().values()])
    for one, two in zip(*weights, strict=True):
        np.testing.assert_allclose(two, one, 1e-3, 1e-4)


def test_executors_on_two_devices():
    x = mx.sym.var("x")
    net = mx.sym.contrib.SyncBatchNorm(x, ndev=2, key="exe", fix_gamma=False, name="bn")
    net = mx.sym.load_json(net.tojson())
    data, heads, gamma, beta = parts_of(SHAPES[:2], 5)
    bound = []
    for i, part in enumerate(data):
        exe = net.simple_bind(mx.cpu(i), grad_req="add", x=part.shape)
        exe.arg_dict["bn_gamma"][:], exe.arg_dict["bn_beta"][:] = gamma, beta
        exe.aux_dict["bn_moving_var"][:] = 1
        for grad in exe.grad_arrays:
            grad[:] = 7
        bound.append(exe)
    both = zip(bound, data, strict=True)
    outs = [exe.forward(is_train=True, x=nd.array(part))[0] for exe, part in both]
    for exe, out, head in zip(bound, outs, heads, strict=True):
        exe.backward(nd.array(head, ctx=out.context))
    want = normalised([np.concatenate(data)], [np.concatenate(heads)], gamma, beta)[0]
    got = np.concatenate([out.asnumpy() for out in outs])
    np.testing.assert_allclose(got, want[0], 1e-3, 1e-4)
    got = np.concatenate([exe.grad_dict["x"].asnumpy() for exe in bound])
    np.testing.assert_allclose(got, want[1][0] + 7, 1e-3, 1e-3)


def test_devices_that_disagree_are_refused_on_all():
    outs = []
    with autograd.train_mode():
        for shape in [(2, 3), (2, 4)]:
            states = [nd.ones((shape[1],)) for _ in range(4)]
            outs.append(nd.contrib.SyncBatchNorm(nd.ones(shape), *states, ndev=2, key="differ"))
    for out in outs:
        with pytest.raises(mx.MXNetError, match="as many channels as"):
            out.asnumpy()


ALONE = """
import rsnet as mx
from rsnet import nd, autograd
with autograd.train_mode():
    y = nd.contrib.SyncBatchNorm(nd.ones((2, 3)), *[nd.ones((3,))] * 4, ndev=2, key="lonely")
try:
    y.asnumpy()
except mx.MXNetError as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.process
@pytest.mark.parametrize("engine", ["ThreadedEnginePerDevice", "NaiveEngine"])
def test_a_call_that_nobody_joins_fails(engine):
    text = printed(ALONE, RSNET_SYNC_SECONDS="0.3", MXNET_ENGINE_TYPE=engine)
    assert "number of calls with key 'lonely' '1': expected 2, one for each device" in text
