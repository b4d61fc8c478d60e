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
