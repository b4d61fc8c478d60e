"""States of optimizers in files, between modules of different numbers of devices."""

import pickle

import numpy as np
import pytest
from test_module import batches, first_values, mlp, same, values

import rsnet as mx

DEVICES = {"one": [mx.cpu(0)], "two": [mx.cpu(0), mx.cpu(1)]}


def module(devices="one", store="local", arrays=None):
    """Ready for a step of SGD with momentum."""
    mod = mx.mod.Module(mlp(), context=DEVICES[devices])
    data = batches()
    mod.bind(data.provide_data, data.provide_label)
    mod.init_params(arg_params=arrays or first_values())
    mod.init_optimizer(store, optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    return mod


def stepped(mod):
    for batch in batches():
        mod.forward_backward(batch)
        mod.update()
    return mod


WAYS = [("one", "1"), ("two", "1"), ("two", "0")]


@pytest.mark.parametrize(("after", "then"), WAYS, ids=["one", "two by the store", "two"])
@pytest.mark.parametrize(("before", "first"), WAYS, ids=["one", "two by the store", "two"])
def test_training_goes_on_with_other_devices(tmp_path, monkeypatch, before, first, after, then):
    path = str(tmp_path / "x.states")
    expected = values(stepped(stepped(module())))
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", first)
    begun = stepped(module(before))
    begun.save_optimizer_states(path)
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", then)
    mod = module(after, arrays=begun.get_params()[0])
    mod.load_optimizer_states(path)
    same(values(stepped(mod)), expected)


def test_a_store_has_the_parameters_by_name(tmp_path):
    """So programs can read them, keep keys of their own beside, and read the files of MXNet."""
    store = mx.kv.create("local")
    store.init("mine", mx.nd.ones((2,)))
    mod = stepped(module("two", store))
    out = mx.nd.zeros((8, 6))
    store.pull("fc1_weight", out=out)
    np.testing.assert_array_equal(out.asnumpy(), values(mod)["fc1_weight"])
    path = tmp_path / "x.states"
    mod.save_optimizer_states(str(path))
    assert sorted(pickle.loads(path.read_bytes())) == sorted(first_values())


@pytest.mark.parametrize("devices", ["one", "two"])
def test_states_of_another_network_are_refused(tmp_path, devices):
    path = tmp_path / "x.states"
    path.write_bytes(pickle.dumps({"conv1_weight": mx.nd.ones((2,))}))
    with pytest.raises(ValueError, match=r"x\.states': invalid state of 'conv1_weight': expected"):
        module(devices).load_optimizer_states(str(path))


# ---- states of a Trainer, with the optimizer ----------------------------------------------------


def trainer(name, devices, weights=None):
    """A trainer of one weight, which the updaters of the devices change."""
    param = mx.gluon.Parameter("w", shape=(3,))
    param.initialize(ctx=devices)
    param.set_data(mx.nd.array([1, 2, 3]) if weights is None else weights)
    schedule = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.1)
    options = {"learning_rate": 0.1, "lr_scheduler": schedule}
    if name in ("lars", "lbsgd"):
        options |= {"momentum": 0.9}
    return mx.gluon.Trainer([param], name, options, update_on_kvstore=False), param


def trained(made, steps):
    """The weights of each device after some steps with gradients that differ."""
    stepper, param = made
    for step in steps:
        with mx.autograd.record():
            losses = [w * mx.nd.array([step, 1, -step], ctx=w.context) for w in param.list_data()]
        mx.autograd.backward(losses)
        stepper.step(len(losses))
    return [data.asnumpy() for data in param.list_data()]


@pytest.mark.parametrize("name", ["adam", "nadam", "ftml", "lars", "lbsgd"])
@pytest.mark.parametrize("after", [[0], [1], [0, 1], [2, 0, 1]], ids=str)
@pytest.mark.parametrize("before", [[0], [1], [0, 1]], ids=str)
def test_a_trainer_goes_on_with_other_devices(tmp_path, before, after, name):
    """With the counts that one device has, and what the optimizer knows besides."""
    path = str(tmp_path / "x.states")
    before, after = ([mx.cpu(i) for i in ids] for ids in (before, after))
    (expected,) = trained(trainer(name, [mx.cpu(0)]), range(1, 11))
    begun = trainer(name, before)
    weights = trained(begun, range(1, 6))[0]
    begun[0].save_states(path)
    other = trainer(name, after, mx.nd.array(weights))
    other[0].load_states(path)
    for found in trained(other, range(6, 11)):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_lars_and_lbsgd_of_mxnet_know_is_read():
    """Their pickles have it under other names: the rate of the last call, and sums of gradients."""
    grads = [mx.nd.array([k, 1.0, -k]) for k in range(1, 9)]

    def updated(optimizer, weight, state, some):
        for grad in some:
            optimizer.update(0, weight, grad, state)
        return weight.asnumpy()

    schedule = mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1)
    lars = mx.optimizer.LARS(momentum=0.9, learning_rate=0.1, lr_scheduler=schedule)
    sums = {0: {"cum_grad": grads[3] + grads[4], "num_cums": 5}}
    large = mx.optimizer.LBSGD(momentum=0.9, learning_rate=0.1, batch_scale=3)
    for optimizer, own, known in (
        (lars, "_current_lr_by_device", {"cur_lr": 0.1 * 0.5**4}),
        (large, "_added", {"cumgrads": sums}),
    ):
        weight, state = mx.nd.ones((3,)), mx.nd.zeros((3,))
        updated(optimizer, weight, state, grads[:5])
        other = type(optimizer).__new__(type(optimizer))
        state_of_mxnet = {k: v for k, v in vars(optimizer).items() if not k.endswith(own)}
        assert len(state_of_mxnet) < len(vars(optimizer))
        other.__setstate__(pickle.loads(pickle.dumps(state_of_mxnet | known)))
        found = updated(other, weight.copy(), state.copy(), grads[5:])
        np.testing.assert_array_equal(found, updated(optimizer, weight, state, grads[5:]))
