"""Optimizers that are given all parameters at once: one operator, the same numbers.

With `MXNET_PYTHON` naming a Python that has MXNet, also those of MXNet after twenty steps.
"""

import os
import subprocess
import threading

import numpy as np
import pytest
from places import SUPPORT
from twenty_updates import OPTIMIZERS, SHAPES, trained

import rsnet as mx
from rsnet import engine, nd

SCRIPT = SUPPORT / "twenty_updates.py"
PYTHON = os.environ.get("MXNET_PYTHON")
# The debugging engine runs every operation inside of its push.
GATHERS = os.environ.get("MXNET_ENGINE_TYPE") != "NaiveEngine"


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_together_is_as_in_turn(kind):
    for one, other in zip(trained(mx, kind, True), trained(mx, kind, False), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("options", "operator"),
    [
        ({}, "multi_sgd_update"),
        ({"momentum": 0.9}, "multi_sgd_mom_update"),
        ({"multi_precision": True}, "multi_mp_sgd_update"),
        ({"multi_precision": True, "momentum": 0.9}, "multi_mp_sgd_mom_update"),
    ],
)
def test_one_operator_updates_all(monkeypatch, options, operator):
    calls, own = [], getattr(nd, operator)

    def counted(*arrays, **params):
        calls.append(params["num_weights"])
        return own(*arrays, **params)

    monkeypatch.setattr(nd, operator, counted)
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", **options))
    dtype = "float16" if "multi_precision" in options else "float32"
    weights = [nd.ones(s, dtype=dtype) for s in SHAPES]
    updater([0, 1, 2], weights, weights)
    assert calls == [3]


def test_dtypes_are_updated_apart():
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=0.5))
    weights = [nd.ones((2,), dtype=d) for d in ("float32", "float64", "float32", "float16")]
    updater([0, 1, 2, 3], [w.copy() for w in weights], weights)
    assert [w.asnumpy().tolist() for w in weights] == [[0.5, 0.5]] * 4


def test_a_rule_of_a_subclass_is_kept():
    class Halves(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            weight[:] = weight * 0.5

    updater = mx.optimizer.get_updater(Halves())
    weights = [nd.ones((2,)), nd.ones((3,))]
    updater([0, 1], weights, weights)
    assert [w.asnumpy().tolist() for w in weights] == [[0.5] * 2, [0.5] * 3]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(not PYTHON, reason="MXNET_PYTHON names no Python with MXNet")
def test_twenty_steps_are_those_of_mxnet(tmp_path):
    path = tmp_path / "mxnet.npz"
    command = [PYTHON, "-W", "ignore", str(SCRIPT), "mxnet", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    with np.load(path) as theirs:
        for kind in OPTIMIZERS:
            for i, ours in enumerate(trained(mx, kind, True)):
                close = 2e-3 if ours.dtype == "float16" else 1e-5
                np.testing.assert_allclose(ours, theirs[f"{kind} {i}"], close, close, err_msg=kind)


def pushed(step, count):
    """The names of what `step` pushes to the engine, deletions left out: `count` are expected."""
    names, ends, end = [], threading.Event(), engine.new_variable()

    def hook(event, id, name, ctx, time_ns):
        if name == "end of the step":
            ends.set()
        elif event == "queued" and name != "DeleteVariable":
            names.append(name)

    nd.waitall()
    engine.set_hook(hook)
    try:
        step()
        engine.push_sync(lambda rc: None, mutate_vars=[end], name="end of the step")
        assert ends.wait(60)
    finally:
        engine.set_hook(None)
    return names if GATHERS else names[:count]


@pytest.mark.parametrize("name", ["adam", "nadam", "rmsprop", "adagrad", "ftrl", "signum", "ftml"])
def test_any_rule_is_one_operation_and_the_numbers_are_the_same(name):
    rng = np.random.RandomState(3)
    start = [rng.uniform(-1, 1, s).astype("float32") for s in SHAPES]
    grads = [[nd.array(rng.uniform(-1, 1, s)) for s in SHAPES] for _ in range(3)]
    indices, found = list(range(len(SHAPES))), []
    for together in (True, False):
        updater = mx.optimizer.get_updater(mx.optimizer.create(name, wd=0.01))
        weights = [nd.array(w) for w in start]
        for step in grads[:2]:
            updater(indices, step, weights)
        if together:
            assert len(pushed(lambda: updater(indices, grads[2], weights), 1)) == 1  # noqa: B023
        else:
            for one in zip(indices, grads[2], weights, strict=True):
                updater(*one)
        found.append([w.asnumpy() for w in weights])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_large_parameters_are_updated_by_themselves():
    weights = [nd.ones((1 << 20,)), nd.ones((3,)), nd.ones((4,)), nd.ones((1 << 20,))]
    updater = mx.optimizer.get_updater(mx.optimizer.create("adam"))
    indices = list(range(len(weights)))
    updater(indices, [w.copy() for w in weights], weights)
    assert len(pushed(lambda: updater(indices, weights, weights), 2)) == 2


def test_a_rule_that_raises_leaves_no_bulk_open():
    class Fails(mx.optimizer.Optimizer):
        def update(self, index, weight, grad, state):
            weight[:] = 0
            if index == 1:
                raise KeyError("rule")

    weights = [nd.ones((2,)) for _ in range(3)]
    updater = mx.optimizer.get_updater(Fails())
    with pytest.raises(KeyError, match="rule"):
        updater([0, 1, 2], weights, weights)
    assert engine.set_bulk_size(0) == 0
    assert [w.asscalar() for w in (w[0] for w in weights)] == [0, 0, 1]


def test_a_step_of_a_trainer_and_of_a_module_is_one_update():
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(3, in_units=4), mx.gluon.nn.Dense(2, in_units=3))
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam")
    mod = mx.mod.Module(
        mx.sym.SoftmaxOutput(mx.sym.FullyConnected(num_hidden=3, name="fc"), name="softmax"),
        data_names=["fc_data"],
    )
    mod.bind([("fc_data", (2, 4))], [("softmax_label", (2,))])
    mod.init_params()
    mod.init_optimizer(optimizer="adam")

    def passed():
        with mx.autograd.record():
            y = net(nd.ones((2, 4)))
        y.backward()
        mod.forward_backward(mx.io.DataBatch([nd.ones((2, 4))], [nd.ones((2,))]))

    for step in (lambda: trainer.step(2), mod.update):
        passed()
        step()
        passed()
        assert len(pushed(step, 1)) == 1


def test_steps_are_counted_for_a_list():
    optimizer = mx.optimizer.SGD()
    assert optimizer._update_count([0, 1]) == 1 and optimizer._update_count((1,)) == 2
    assert optimizer.num_update == 2 and optimizer._update_count(0) == 2
