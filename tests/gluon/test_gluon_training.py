"""`Trainer` gives MXNet's numbers and those of a module, on one device and on several."""

import json
import os
import subprocess
import warnings

import gluon_training
import numpy as np
import pytest
from places import SUPPORT

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet.gluon import nn

# Losses of MXNet 1.9.1 at steps 0, 1, 4, 9, 14 and 19 of `gluon_training`.
SEEN = (0, 1, 4, 9, 14, 19)
MXNET = {
    "mlp": [1.5620508, 1.6895506, 1.6089680, 1.8194863, 1.4095213, 1.8505504],
    "lenet": [1.6961368, 1.6524854, 1.8234642, 1.5848699, 1.8454753, 1.8450094],
    "lstm": [1.6252145, 1.7927988, 1.6607368, 1.6011726, 1.7132692, 1.6107463],
    "resnet20": [6.6260738, 4.5581779, 2.3358185, 4.2076592, 2.7808685, 2.7335668],
    "mlp adam": [1.5620508, 1.6814625, 1.5876406, 1.7643385, 1.7047832, 1.7172718],
}


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybrid"])
@pytest.mark.parametrize("name", list(MXNET))
def test_losses_are_those_recorded_of_mxnet(name, hybrid):
    network, _, optimizer = name.partition(" ")
    found = gluon_training.losses(mx, network, hybrid, optimizer or "sgd")
    np.testing.assert_allclose([found[i] for i in SEEN], MXNET[name], rtol=1e-5)


@pytest.mark.process
def test_losses_are_those_of_mxnet():
    python = os.environ.get("MXNET_PYTHON")
    if not python:
        pytest.skip("MXNET_PYTHON does not name an interpreter that has MXNet")
    program = SUPPORT / "gluon_training.py"
    done = subprocess.run([python, program, "mxnet"], capture_output=True, text=True, check=True)
    for name, expected in json.loads(done.stdout.splitlines()[-1]).items():
        network, _, optimizer = name.partition(" ")
        found = gluon_training.losses(mx, network, True, optimizer or "sgd")
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=name)


def test_losses_are_those_of_a_module():
    net, shape = gluon_training.mlp(mx)
    rng = np.random.RandomState(1)
    data = rng.randn(20, *shape).astype("float32")
    label = rng.randint(5, size=(20, shape[0])).astype("float32")
    net.initialize()
    net(nd.array(data[0]))
    gluon_training.fill(net)
    symbol = mx.sym.SoftmaxOutput(net(mx.sym.var("data")), name="softmax")
    module = mx.mod.Module(symbol)
    module.bind([("data", shape)], [("softmax_label", shape[:1])])
    params = {name: p.data() for name, p in net.collect_params().items()}
    states = {name: params.pop(name) for name in symbol.list_auxiliary_states()}
    module.init_params(arg_params=params, aux_params=states)
    options = {"learning_rate": 0.1, "momentum": 0.9}
    module.init_optimizer(optimizer_params={**options, "wd": 0})
    trainer = gluon.Trainer(net.collect_params(), "sgd", options)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    net.hybridize()
    for x, y in zip(data, label):
        with autograd.record():
            loss = loss_of(net(nd.array(x)), nd.array(y))
        loss.backward()
        trainer.step(shape[0])
        module.forward_backward(mx.io.DataBatch([nd.array(x)], [nd.array(y)]))
        module.update()
    trained, _ = module.get_params()
    for name, value in trained.items():
        mine = net.collect_params()[name].data()
        np.testing.assert_allclose(mine.asnumpy(), value.asnumpy(), rtol=1e-4, atol=1e-6)


def test_steps_are_those_of_numpy():
    net = nn.Dense(1, in_units=3, use_bias=False)
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    weight, momentum = np.ones((1, 3)), np.zeros((1, 3))
    rng = np.random.default_rng(0)
    for _ in range(10):
        x, y = rng.normal(size=(4, 3)), rng.normal(size=(4, 1))
        with autograd.record():
            loss = gluon.loss.L2Loss()(net(nd.array(x)), nd.array(y))
        loss.backward()
        trainer.step(4)
        gradient = (x @ weight.T - y).T @ x / 4
        momentum = 0.9 * momentum - 0.1 * gradient
        weight = weight + momentum
    np.testing.assert_allclose(net.weight.data().asnumpy(), weight, rtol=1e-5)


@pytest.mark.parametrize("on_store", [None, True, False])
@pytest.mark.parametrize("kvstore", ["local", "device"])
def test_two_devices_train_as_one(kvstore, on_store):
    # Without the batch norm, whose statistics are those of each device.
    one = gluon_training.losses(mx, "lenet", True)
    two = gluon_training.losses(
        mx,
        "lenet",
        True,
        contexts=[mx.cpu(0), mx.cpu(1)],
        kvstore=kvstore,
        update_on_kvstore=on_store,
    )
    np.testing.assert_allclose(two, one, rtol=1e-4)


def small(ctx=None):
    net = nn.Dense(2, in_units=3)
    net.initialize(ctx=ctx)
    return net


def train(net, trainer, steps, ctx=None):
    for i in range(steps):
        for device in ctx or [mx.cpu()]:
            with autograd.record():
                loss = (net(nd.ones((4, 3), ctx=device) * (i + 1)) ** 2).sum()
            loss.backward()
        trainer.step(4)


@pytest.mark.parametrize("ctx", [None, [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_states_are_saved_and_loaded(tmp_path, ctx):
    def start():
        net = small(ctx)
        net.initialize(mx.init.One(), ctx=ctx, force_reinit=True)
        options = {"learning_rate": 0.001, "momentum": 0.9}
        return net, gluon.Trainer(net.collect_params(), "sgd", options)

    whole, trainer = start()
    train(whole, trainer, 3, ctx)
    whole.save_parameters(tmp_path / "net.params")
    trainer.save_states(tmp_path / "trainer.states")
    resumed, other = start()
    resumed.load_parameters(tmp_path / "net.params", ctx=ctx)
    other.load_states(tmp_path / "trainer.states")
    train(whole, trainer, 2, ctx)
    train(resumed, other, 2, ctx)
    device = mx.cpu(0)
    np.testing.assert_allclose(
        resumed.weight.data(device).asnumpy(), whole.weight.data(device).asnumpy(), rtol=1e-6
    )


def test_rates_are_read_and_set():
    net = small()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.5})
    assert trainer.learning_rate == 0.5 and isinstance(trainer.optimizer, mx.optimizer.Adam)
    trainer.set_learning_rate(0.25)
    assert trainer.learning_rate == 0.25
    schedule = mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=1.0)
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 1.0, "lr_scheduler": schedule}
    )
    train(net, trainer, 3)
    assert trainer.learning_rate == 0.25
    with pytest.raises(UserWarning, match="expected an optimizer without lr_scheduler"):
        trainer.set_learning_rate(1)


def test_multipliers_of_parameters_count():
    net = small()
    net.bias.lr_mult = 0
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    before = net.weight.data().asnumpy()
    train(net, trainer, 1)
    assert (net.bias.data().asnumpy() == 0).all()
    assert (net.weight.data().asnumpy() != before).all()


def test_gradients_are_summed_by_hand_and_then_applied():
    net = small([mx.cpu(0), mx.cpu(1)])
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1}, update_on_kvstore=False
    )
    for ctx, factor in ((mx.cpu(0), 1), (mx.cpu(1), 2)):
        with autograd.record():
            loss = (net(nd.ones((1, 3), ctx=ctx)) * factor).sum()
        loss.backward()
    trainer.allreduce_grads()
    for grad in net.weight.list_grad():
        assert (grad.asnumpy() == 3).all()
    norm = gluon.utils.clip_global_norm([net.weight.list_grad()[0]], 1.0)
    assert norm == pytest.approx(3 * 6**0.5)
    before = [weight.asnumpy() for weight in net.weight.list_data()]
    trainer.update(2)
    after = [weight.asnumpy() for weight in net.weight.list_data()]
    for weight, new, grad in zip(before, after, (3 / norm, 3)):
        np.testing.assert_allclose(new, weight - 0.1 * grad / 2, rtol=1e-5)
    with pytest.raises(UserWarning, match="is that of an earlier step"):
        trainer.update(2)
    trainer.update(2, ignore_stale_grad=True)
    for weight, new in zip(after, net.weight.list_data()):
        np.testing.assert_array_equal(new.asnumpy(), weight)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(("value", "limit"), [(300, 1), (1e-4, 1e-4), (30000, 1e-3)])
def test_norms_of_half_precision_are_clipped_in_single_precision(value, limit, check):
    array = nd.array([value] * 4, dtype="float16")
    norm = gluon.utils.clip_global_norm([array], limit, check_isfinite=check)
    assert (norm if check else norm.asscalar()) == pytest.approx(2 * value, rel=1e-3)
    assert array.dtype == np.float16
    np.testing.assert_allclose(array.asnumpy(), [limit / 2] * 4, rtol=2e-3)


# Some know more than states and counts: LARS the rate of the step before, Nadam the product of its
# momenta, LBSGD the gradients of earlier batches and the rate of the update before.
OPTIMIZERS = {
    **{name: {} for name in ["sgd", "adam", "adamax", "ftml", "lamb", "rmsprop", "nadam"]},
    "lars": {"momentum": 0.9, "eta": 0.5},
    "lbsgd": {"momentum": 0.9, "batch_scale": 2, "updates_per_epoch": 2, "warmup_epochs": 2},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("store", ["local", None])
def test_each_device_counts_its_own_updates(tmp_path, name, store):
    """Two devices with the same data go the way of one, also from a file of states."""
    weights = []
    for devices in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]):
        net = small(devices)
        net.weight.set_data(nd.array([[1, 2, 3], [4, 5, 6]]))
        summed = len(devices) if store else 1
        for part in range(2):
            schedule = mx.lr_scheduler.FactorScheduler(1, 0.9, base_lr=0.1)
            options = {"lr_scheduler": schedule, **OPTIMIZERS[name]}
            trainer = gluon.Trainer(
                net.collect_params(), name, {"learning_rate": 0.1, **options}, store,
                update_on_kvstore=False if store else None,
            )  # fmt: skip
            if part:
                trainer.load_states(str(tmp_path / "states"))
            for _ in range(3):
                with autograd.record():
                    losses = [(net(nd.ones((2, 3), ctx=ctx)) ** 2).sum() for ctx in devices]
                autograd.backward(losses)
                trainer.step(2 * summed)
            trainer.save_states(str(tmp_path / "states"))
        weights += [data.asnumpy() for data in net.weight.list_data()]
    for weight in weights[1:]:
        np.testing.assert_allclose(weight, weights[0], rtol=1e-5)


def test_gradients_are_added_up_over_batches():
    net = small()
    net.collect_params().setattr("grad_req", "add")
    for _ in range(3):
        with autograd.record():
            loss = net(nd.ones((1, 3))).sum()
        loss.backward()
    assert (net.weight.grad().asnumpy() == 3).all()
    net.zero_grad()
    assert (net.weight.grad().asnumpy() == 0).all()


def test_new_values_survive_a_step_on_the_store():
    net = small([mx.cpu(0), mx.cpu(1)])
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
    train(net, trainer, 1, [mx.cpu(0), mx.cpu(1)])
    net.weight.set_data(nd.ones((2, 3)) * 7)
    train(net, trainer, 1, [mx.cpu(0), mx.cpu(1)])
    for data in net.weight.list_data():
        assert (data.asnumpy() == 7).all()


def test_stale_gradients_are_named():
    net = small()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with pytest.raises(UserWarning, match=r"'dense\d+_bias' on cpu\(0\)"):
        trainer.step(1)
    before = net.weight.data().asnumpy()
    trainer.step(1, ignore_stale_grad=True)
    assert (net.weight.data().asnumpy() == before).all()
    train(net, trainer, 1)
    with pytest.raises(UserWarning, match="expected a new one by backward"):
        trainer.step(1)


@pytest.mark.parametrize("on_store", [True, False])
def test_a_step_with_stale_gradients_is_refused_whole(on_store):
    devices = [mx.cpu(0), mx.cpu(1)]
    params = [gluon.Parameter(name, shape=(1,)) for name in ("used", "unused")]
    for param in params:
        param.initialize("ones", ctx=devices)
    trainer = gluon.Trainer(
        params, "sgd", {"learning_rate": 0.5, "momentum": 0.5}, update_on_kvstore=on_store
    )

    def values():
        return [[a.asscalar() for a in p.list_data() + p.list_grad()] for p in params]

    def backward(of):
        with autograd.record():
            losses = [sum(p.data(ctx).sum() for p in of) for ctx in devices]
        autograd.backward(losses)

    backward(params)
    trainer.step(2)
    backward(params[:1])
    before = values()
    for _ in range(2):
        with pytest.raises(UserWarning, match="'unused' on cpu"):
            trainer.step(2)
        assert values() == before
    trainer.step(2, ignore_stale_grad=True)
    data = [[a.asscalar() for a in p.list_data()] for p in params]
    assert data == [[-0.25, -0.25], [0.5, 0.5]]


def test_wrong_trainers_are_refused():
    net = small()
    with pytest.raises(ValueError, match="list or dict of Parameters"):
        gluon.Trainer(3, "sgd")
    with pytest.raises(ValueError, match="list or dict of Parameters"):
        gluon.Trainer([3], "sgd")
    with pytest.raises(ValueError, match="is given twice"):
        gluon.Trainer([net.weight, net.weight], "sgd")
    with pytest.raises(ValueError, match="invalid optimizer 'foo'"):
        gluon.Trainer(net.collect_params(), "foo")
    with pytest.raises(RuntimeError, match=r"call initialize\(\) first"):
        gluon.Trainer(nn.Dense(1).collect_params(), "sgd")
    waiting = nn.Dense(1)
    waiting.initialize()
    says = "save_states: Parameter '.*weight' has no values yet: call the network first"
    with pytest.raises(mx.MXNetError, match=says):
        gluon.Trainer(waiting.collect_params(), "sgd").save_states("nowhere")
    other = small([mx.cpu(1)])
    with pytest.raises(AssertionError, match=r"initialized on \[cpu\(1\)\]"):
        gluon.Trainer([net.weight, other.weight], "sgd")
    with pytest.raises(AssertionError, match="invalid optimizer_params .*: expected None"):
        gluon.Trainer([net.weight], mx.optimizer.SGD(), {"learning_rate": 1})
    deferred = nn.Dense(1, use_bias=False)
    deferred.initialize()
    trainer = gluon.Trainer(deferred.collect_params(), "sgd")
    with pytest.raises(gluon.DeferredInitializationError, match="weight"):
        trainer.step(1)
    two = small([mx.cpu(0), mx.cpu(1)])
    trainer = gluon.Trainer(two.collect_params(), "sgd", update_on_kvstore=True)
    with pytest.raises(AssertionError, match="allreduce_grads"):
        trainer.allreduce_grads()
    with pytest.raises(AssertionError, match="update"):
        trainer.update(1)


def test_frozen_parameters_are_left_alone():
    net = small()
    net.weight.grad_req = "null"
    before = net.weight.data().asnumpy()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    train(net, trainer, 2)
    assert (net.weight.data().asnumpy() == before).all()
    assert (net.bias.data().asnumpy() != 0).all()
    with pytest.raises(RuntimeError, match="weight' has no gradient: expected a grad_req"):
        net.weight.grad()


def test_a_hybrid_network_with_a_part_that_is_frozen():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=3), nn.Dense(1, in_units=3))
    net.initialize()
    net.hybridize()
    net[0].collect_params().setattr("grad_req", "null")
    frozen, free = (layer.weight.data().asnumpy() for layer in net)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(net, trainer, 2)
    assert (net[0].weight.data().asnumpy() == frozen).all()
    assert (net[1].weight.data().asnumpy() != free).any()


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), ("a", TypeError), (None, TypeError)])
def test_a_step_names_a_size_that_is_none(size, error):
    net = small()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with pytest.raises(error, match=f"invalid batch_size {size!r}: expected a number greater than"):
        trainer.step(size)
