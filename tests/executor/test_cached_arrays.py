"""Arrays of a cached graph's calls: who may change them when, and what is copied."""

import json
import threading

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, nd
from rsnet.gluon import nn

X = np.arange(6, dtype="float32").reshape(2, 3) - 2


def product():
    """x · w, with w as a parameter."""
    x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
    return nd.CachedOp(mx.sym.FullyConnected(x, w, num_hidden=2, no_bias=True), parameters=["w"])


def weight():
    w = nd.array(np.eye(2, 3))
    w.attach_grad()
    return w


@pytest.mark.parametrize("record", [False, True])
def test_outputs_are_the_callers(record):
    op, w = product(), weight()
    kept, expected = [], []
    for i in range(6):
        with autograd.record() if record else autograd.pause():
            kept.append(op(nd.array(X * i), w))
        expected.append(X[:, :2] * i)
        if i == 2:
            kept[i][:] = 7
            expected[i] = np.full((2, 2), 7)
        if record and i % 2:
            kept[i].backward()
    for got, want in zip(kept, expected):
        np.testing.assert_array_equal(got.asnumpy(), want)


@pytest.mark.parametrize("train_mode", [True, False])
def test_what_a_gradient_needs_is_kept_from_changes(train_mode):
    """The input, and an output that the gradient is computed from."""
    op, w, x = product(), weight(), nd.array(X)
    curve = nd.CachedOp(mx.sym.sigmoid(mx.sym.Variable("x")))
    with autograd.record(train_mode):
        y = curve(op(x, w))
    want = 1 / (1 + np.exp(-X[:, :2]))
    np.testing.assert_allclose(y.asnumpy(), want, rtol=1e-6)
    x[:] = 100
    y[:] = 100
    y.backward()
    np.testing.assert_allclose(w.grad.asnumpy(), (want * (1 - want)).T @ X, rtol=1e-5)


def test_an_input_may_change_after_a_call_that_is_not_recorded():
    op, w, x = product(), weight(), nd.array(X)
    made = []
    for i in range(5):
        x[:] = nd.array(X * i)
        made.append(op(x, w))
    for i, y in enumerate(made):
        np.testing.assert_array_equal(y.asnumpy(), X[:, :2] * i)


def test_a_gradient_buffer_as_gradient_of_the_output():
    op = nd.CachedOp(mx.sym.Variable("w") * 3, parameters=["w"])
    w = nd.ones((4,))
    w.attach_grad()
    w.grad[:] = 5
    with autograd.record():
        y = op(w)
    y.backward(w.grad)
    assert w.grad.asnumpy().tolist() == [15] * 4


def test_one_array_as_several_inputs():
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    op = nd.CachedOp(a * b + a, parameters=["b"])
    x = nd.array(X)
    x.attach_grad()
    np.testing.assert_array_equal(op(x, x).asnumpy(), X * X + X)
    with autograd.record():
        y = op(x, x)
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), 2 * X + 1)


def test_a_state_as_an_input():
    """The state changes in the pass; the input is what it was before."""
    data, mean, var = (mx.sym.Variable(name) for name in ("data", "mean", "var"))
    gamma, beta = mx.sym.Variable("gamma"), mx.sym.Variable("beta")
    norm = mx.sym.BatchNorm(data, gamma, beta, mean, var, momentum=0.5, name="bn")
    op = nd.CachedOp(mx.sym.Group([norm, data * 2]))
    names = mx.sym.Group([norm, data * 2]).list_inputs()
    state = nd.array(np.arange(3, dtype="float32"))
    given = {"data": state.reshape((1, 3)), "mean": state, "var": nd.ones((3,))}
    given |= {"gamma": nd.ones((3,)), "beta": nd.zeros((3,))}
    with autograd.train_mode():
        _, twice = op(*[given[name] for name in names])
    assert twice.asnumpy().tolist() == [[0, 2, 4]]


def test_parts_of_arrays_as_inputs():
    op, w = product(), weight()
    x = nd.array(np.vstack([X * 0, X, X * 3]))
    np.testing.assert_array_equal(op(x[2:4], w).asnumpy(), X[:, :2])
    with autograd.record():
        y = op(x[4:6], w)
    y.backward()
    np.testing.assert_array_equal(w.grad.asnumpy(), np.ones((2, 2)) @ (X * 3))


def test_outputs_that_are_inputs_or_equal_are_arrays_of_their_own():
    x = mx.sym.Variable("x")
    y = x * 2
    op = nd.CachedOp(mx.sym.Group([x, y, y, mx.sym.reshape(y, shape=(-1,))]))
    given = nd.array(X)
    outputs = op(given)
    for i, out in enumerate(outputs):
        out[:] = i
    np.testing.assert_array_equal(given.asnumpy(), X)
    assert [float(out.asnumpy().mean()) for out in outputs] == [0, 1, 2, 3]


def test_prediction_amid_training():
    op, w = product(), weight()
    x = nd.array(X)
    with autograd.record():
        y = op(x, w)
        with autograd.pause():
            first = op(x * 2, w)
    second = op(x * 3, w)
    y.backward()
    np.testing.assert_array_equal(w.grad.asnumpy(), np.ones((2, 2)) @ X)
    np.testing.assert_array_equal(first.asnumpy(), X[:, :2] * 2)
    np.testing.assert_array_equal(second.asnumpy(), X[:, :2] * 3)


def test_a_failed_input_spoils_the_outputs_of_its_call_alone():
    op, w = product(), weight()
    bad = nd.random.multinomial(nd.array([[-1.0, 2.0]]), shape=1, dtype="float32")
    good = op(nd.array(X), w)
    try:
        failed = op(nd.broadcast_axis(bad.reshape((1, 1)), axis=(0, 1), size=(2, 3)), w)
        failed.asnumpy()
    except mx.MXNetError:
        pass
    np.testing.assert_array_equal(good.asnumpy(), X[:, :2])
    np.testing.assert_array_equal(op(nd.array(X), w).asnumpy(), X[:, :2])


def test_an_operator_in_python_gets_the_arrays_of_the_call():
    class Doubled(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("doubled_in_cached_arrays")
    class DoubledProp(mx.operator.CustomOpProp):
        def __init__(self):
            super().__init__(need_top_grad=True)

        def create_operator(self, ctx, shapes, dtypes):
            return Doubled()

    op = nd.CachedOp(mx.sym.Custom(mx.sym.Variable("x"), op_type="doubled_in_cached_arrays"))
    x = nd.array(X)
    x.attach_grad()
    made = []
    for i in range(3):
        with autograd.record():
            made.append(op(x * i))
        made[-1].backward()
        np.testing.assert_array_equal(x.grad.asnumpy(), np.full((2, 3), 2 * i))
    for i, y in enumerate(made):
        np.testing.assert_array_equal(y.asnumpy(), X * 2 * i)


def test_states_survive_a_call_that_fails():
    class Refusing(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            if in_data[0].asnumpy()[0, 0] < 0:
                raise ValueError("refused")
            self.assign(out_data[0], req[0], in_data[0])

    @mx.operator.register("refusing_in_cached_arrays")
    class RefusingProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Refusing()

    refused = mx.sym.Custom(mx.sym.Variable("x"), op_type="refusing_in_cached_arrays")
    norm = mx.sym.BatchNorm(refused, momentum=0.5, name="bn")
    op = nd.CachedOp(norm, parameters=["bn_gamma", "bn_beta"])
    given = {"bn_gamma": nd.ones(2), "bn_beta": nd.zeros(2)}
    given |= {"bn_moving_mean": nd.zeros(2), "bn_moving_var": nd.ones(2)}
    given["bn_gamma"].attach_grad()
    for i in range(1, 4):
        for sign in (-1, 1):
            call = {**given, "x": nd.array(np.full((3, 2), sign * i))}
            with autograd.record():
                y = op(*[call[name] for name in norm.list_inputs()])
            y.backward()
            if sign < 0:
                with pytest.raises(ValueError, match="refused"):
                    y.asnumpy()
            else:
                y.wait_to_read()
    assert given["bn_moving_mean"].asnumpy().tolist() == [2.125] * 2


def network():
    mx.random.seed(3)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(8, activation="tanh"), nn.BatchNorm(), nn.Dropout(0.0), nn.Dense(2))
    net.initialize(mx.init.Xavier())
    return net


def train(net, steps=6, between=lambda net, x: None):
    """The losses and the parameters after some steps."""
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize(net._active)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(steps):
        x = nd.array(rng.normal(size=(5, 4)))
        y = nd.array(rng.integers(0, 2, 5))
        with autograd.record():
            found = loss(net(x), y)
            between(net, x)
        found.backward()
        trainer.step(5)
        losses.append(found)
    params = [p.data().asnumpy() for p in net.collect_params().values()]
    return [loss.asnumpy() for loss in losses], params


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"static_alloc": True},
        {"static_alloc": True, "static_shape": True},
        {"memory_limit": "1MB"},
    ],
    ids=["none", "alloc", "both", "limit"],
)
@pytest.mark.parametrize("predicts", [False, True])
def test_training_is_as_without_a_graph(flags, predicts):
    def between(net, x):
        if predicts:
            with autograd.pause():
                net(x + 1)

    plain, hybrid = network(), network()
    hybrid.hybridize(**flags)
    for net in (plain, hybrid):
        net(nd.ones((1, 4)))
    for mine, other in zip(hybrid.collect_params().values(), plain.collect_params().values()):
        mine.set_data(other.data())
    for found, expected in zip(train(hybrid, between=between), train(plain, between=between)):
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_parameters_changed_between_forward_and_backward_are_read_as_they_are():
    """As without a graph: the tape keeps parameters, not copies of them."""
    found = []
    for hybrid in (False, True):
        net = nn.HybridSequential()
        net.add(nn.Dense(3, use_bias=False, in_units=3), nn.Dense(2, use_bias=False, in_units=3))
        net.initialize(mx.init.One())
        net.hybridize(hybrid)
        with autograd.record():
            y = net(nd.array(X))
        net[1].weight.set_data(nd.array(X))
        y.backward()
        found.append(net[0].weight.grad().asnumpy())
    np.testing.assert_array_equal(*found)


def test_threads_train_over_shared_parameters():
    shared = nn.Dense(2, in_units=3, use_bias=False)
    shared.initialize(mx.init.One())
    nets = [nn.Dense(2, in_units=3, use_bias=False, params=shared.params) for _ in range(2)]
    for net in nets:
        net.hybridize()
    wrong = []

    def work(net):
        for i in range(30):
            x = nd.array(X * i)
            with autograd.record():
                y = net(x)
            (grad,) = autograd.grad(y, [net.weight.data()])
            if not np.array_equal(grad.asnumpy(), np.ones((2, 2)) @ (X * i)):
                wrong.append(i)
            if not np.array_equal(y.asnumpy(), (X * i).sum(1, keepdims=True).repeat(2, 1)):
                wrong.append(-i)

    threads = [threading.Thread(target=work, args=(net,)) for net in nets]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_a_step_copies_what_its_gradient_reads_and_nothing_else(tmp_path):
    net = network()
    net.hybridize()
    train(net, steps=2)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize()
    x, y = nd.ones((5, 4)), nd.zeros((5,))
    with autograd.record():
        found = loss(net(x), y)
    found.backward()
    nd.waitall()
    file = tmp_path / "trace.json"
    mx.profiler.set_config(filename=str(file), profile_imperative=True, profile_symbolic=True)
    mx.profiler.set_state("run")
    with autograd.record():
        found = loss(net(x), y)
    found.backward()
    net(x)
    nd.waitall()
    mx.profiler.set_state("stop")
    mx.profiler.dump()
    events = json.loads(file.read_text())["traceEvents"]
    copies = [e for e in events if e.get("name") == "_copyto" and e["ph"] in "BX"]
    # The data and the labels.
    assert len(copies) == 2
