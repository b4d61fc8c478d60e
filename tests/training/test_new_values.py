"""Values that a program gives to parameters in training stay, also where a store updates them."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, gluon, nd

TWO = [mx.cpu(0), mx.cpu(1)]


def module(rate=0.0, fixed=None, devices=TWO, seed=None):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc1")
    net = mx.sym.FullyConnected(net, num_hidden=2, name="fc2")
    mod = mx.mod.Module(
        mx.sym.SoftmaxOutput(net, name="softmax"), context=devices, fixed_param_names=fixed
    )
    mod.bind([("data", (4, 3))], [("softmax_label", (4,))])
    np.random.seed(0)
    mx.random.seed(0)
    mod.init_params(mx.init.One() if seed is None else mx.init.Uniform(1))
    mod.init_optimizer(optimizer_params={"learning_rate": rate, "momentum": 0.9})
    return mod


def step(mod):
    data = np.random.RandomState(1).rand(4, 3)
    mod.forward_backward(mx.io.DataBatch([nd.array(data)], [nd.array([0, 1, 1, 0])]))
    mod.update()


def nines(mod):
    return {name: nd.full(a.shape, 9) for name, a in mod.get_params()[0].items()}


def on_devices(mod):
    return [exe.arg_dict["fc1_weight"].asnumpy() for exe in mod.executors.execs]


GIVEN = {
    "set_params": lambda mod: mod.set_params(nines(mod), {}),
    "a part": lambda mod: mod.set_params(
        {"fc1_weight": nd.full((3, 3), 9)}, {}, allow_missing=True
    ),
    "init_params": lambda mod: mod.init_params(mx.init.Constant(9), force_init=True),
    "fit": lambda mod: mod.fit(
        mx.io.NDArrayIter(np.ones((4, 3)), np.zeros(4), 4), num_epoch=1, arg_params=nines(mod),
        force_init=True, progress=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", GIVEN)
def test_values_given_to_a_module_stay(way):
    mod = module()
    step(mod)
    GIVEN[way](mod)
    step(mod)
    for value in on_devices(mod):
        assert (value == 9).all()


def test_a_module_goes_on_from_given_values_as_on_one_device():
    results = []
    for devices in (TWO[:1], TWO):
        mod = module(rate=0.5, devices=devices)
        step(mod)
        draw = np.random.RandomState(2)
        shapes = {name: a.shape for name, a in mod.get_params()[0].items()}
        mod.set_params({name: nd.array(draw.rand(*shapes[name])) for name in sorted(shapes)}, {})
        step(mod)
        results.append(on_devices(mod))
    (one,), two = results
    for value in two:
        np.testing.assert_allclose(value, one, rtol=1e-5)


def network():
    net = gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize("ones", ctx=TWO)
    return net


def load(net, path):
    other = network()
    other.weight.set_data(nd.full((1, 2), 9))
    other.save_parameters(path)
    net.load_parameters(path, ctx=TWO)


ASSIGNED = {
    "set_data": lambda net, path: net.weight.set_data(nd.full((1, 2), 9)),
    "load_parameters": load,
    "initialize": lambda net, path: net.initialize(mx.init.Constant(9), ctx=TWO, force_reinit=True),
}


def train(net, trainer, dtype="float32", value=1):
    with autograd.record():
        losses = [net(nd.full((4, 2), value, ctx=ctx, dtype=dtype)).sum() for ctx in TWO]
    autograd.backward(losses)
    trainer.step(8)


@pytest.mark.parametrize("way", ASSIGNED)
@pytest.mark.parametrize("own", [False, True], ids=["by name", "a store"])
def test_values_given_to_a_network_stay(tmp_path, way, own):
    net = network()
    store = mx.kv.create("device") if own else "device"
    options = {"learning_rate": 0.25, "momentum": 0.5}
    trainer = gluon.Trainer(net.collect_params(), "sgd", options, kvstore=store)
    train(net, trainer)
    ASSIGNED[way](net, str(tmp_path / "net.params"))
    train(net, trainer)  # the momentum is that of before
    for data in net.weight.list_data():
        assert data.asnumpy().tolist() == [[8.625, 8.625]]


@pytest.mark.parametrize("on_store", [True, False])
def test_training_goes_on_in_another_dtype(on_store):
    net = network()
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.5}, update_on_kvstore=on_store
    )
    train(net, trainer)
    net.cast("float64")
    before = net.weight.data(TWO[0]).asnumpy()
    train(net, trainer, "float64", 1 / 3)
    for data in net.weight.list_data():
        assert data.dtype == np.float64
        np.testing.assert_allclose(data.asnumpy(), before - 1 / 6, rtol=1e-14)


def test_a_cast_keeps_gradients():
    weight = gluon.Parameter("weight", shape=(2,))
    weight.initialize("ones")
    with autograd.record():
        loss = (weight.data() * 3).sum()
    loss.backward()
    weight.cast("float64")
    assert weight.grad().dtype == np.float64 and weight.grad().asnumpy().tolist() == [3, 3]


def test_a_store_of_a_program_is_told_by_broadcast():
    class Remembering(mx.kv.KVStoreBase):
        """Weights that the program's own store keeps; it learns nothing."""

        def __init__(self):
            self.kept = {}

        def broadcast(self, key, value, out, priority=0):
            self.kept[key] = value.copy()
            self.pull(key, out)

        def push(self, key, value, priority=0):
            pass

        def pull(self, key, out, priority=0):
            for array in out:
                self.kept[key].copyto(array)

        def set_optimizer(self, optimizer):
            pass

        @staticmethod
        def is_capable(capability):
            return True

    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=Remembering())
    train(net, trainer)
    net.weight.set_data(nd.full((1, 2), 9))
    train(net, trainer)
    for data in net.weight.list_data():
        assert (data.asnumpy() == 9).all()


@pytest.mark.parametrize("fixed", [["fc1_weight"], ["fc2_weight", "fc2_bias"], ["fc1_bias"]])
@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("after", [1, 2])
def test_states_go_to_the_parameters_that_are_trained(tmp_path, monkeypatch, fixed, before, after):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "0")
    path = str(tmp_path / "x.states")
    mod = module(0.5, fixed, TWO[:before], seed=0)
    step(mod)
    mod.save_optimizer_states(path)
    args = {name: value.copy() for name, value in mod.get_params()[0].items()}
    step(mod)
    resumed = module(0.5, fixed, TWO[:after])
    resumed.set_params(args, {})
    resumed.load_optimizer_states(path)
    step(resumed)
    for name, value in mod.get_params()[0].items():
        mine = resumed.get_params()[0][name].asnumpy()
        np.testing.assert_allclose(mine, value.asnumpy(), rtol=1e-5, err_msg=name)


def test_states_of_other_parameters_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "0")
    path = str(tmp_path / "x.states")
    mod = module(0.5, ["fc1_weight"])
    step(mod)
    mod.save_optimizer_states(path)
    with pytest.raises(ValueError, match=r"by number \[2, .*: expected states of each parameter"):
        module(0.5).load_optimizer_states(path)
