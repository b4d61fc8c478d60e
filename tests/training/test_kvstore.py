"""Key-value stores: sums, updates, keys of both kinds, compression, and what is refused."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import kv, nd


def stored(store, key, shape=(2, 3)):
    out = nd.full(shape, -7)
    store.pull(key, out=out)
    return out.asnumpy()


@pytest.mark.parametrize("name", ["local", "device", "LOCAL", "nccl"])
@pytest.mark.parametrize("keys", [[3, 5, 9], ["a", "b", "c"]])
def test_a_push_is_the_sum_of_its_values(name, keys):
    store = kv.create(name)
    store.init(keys, [nd.ones((2, 3))] * 3)
    np.testing.assert_array_equal(stored(store, keys[1]), np.ones((2, 3)))
    store.push(keys[0], [nd.ones((2, 3)) * i for i in range(4)])
    np.testing.assert_array_equal(stored(store, keys[0]), np.full((2, 3), 6))
    store.push([keys[0], keys[1], keys[0]], [nd.ones((2, 3)), nd.ones((2, 3)) * 5, nd.ones((2, 3))])
    assert stored(store, keys[0])[0, 0] == 2 and stored(store, keys[1])[0, 0] == 5
    outs = [nd.zeros((2, 3)), nd.zeros((2, 3))]
    store.pull(keys, out=[outs, outs[0], outs[1]])
    assert outs[0].asnumpy()[0, 0] == 5 and outs[1].asnumpy()[0, 0] == 1
    assert (store.rank, store.num_workers, store.type) == (0, 1, name.lower())


def test_what_was_pushed_may_change_afterwards():
    store, grad = kv.create(), nd.ones((2, 3))
    store.init("w", nd.zeros((2, 3)))
    store.push("w", grad)
    grad[:] = 100
    assert stored(store, "w")[0, 0] == 1


def test_updates_run_in_the_store():
    store = kv.create()
    store.init(["w"], [nd.ones((2, 3))])
    store._set_updater(lambda key, pushed, stored: stored.__iadd__(pushed * 2))
    store.push("w", [nd.ones((2, 3)), nd.ones((2, 3))])
    assert stored(store, "w")[0, 0] == 5
    out = nd.zeros((2, 3))
    store.pushpull("w", nd.ones((2, 3)), out=out)
    assert out.asnumpy()[0, 0] == 7


def test_an_optimizer_and_its_states_in_files(tmp_path):
    def run(store, steps):
        for _ in range(steps):
            store.push(0, nd.ones((2, 3)))
        return stored(store, 0)

    def new():
        store = kv.create()
        store.init(0, nd.zeros((2, 3)))
        store.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
        return store

    whole, half, path = run(new(), 4), new(), str(tmp_path / "states")
    run(half, 2)
    half.save_optimizer_states(path)
    again = kv.create()
    again.init(0, nd.array(stored(half, 0)))
    again.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    again.load_optimizer_states(path)
    np.testing.assert_allclose(run(again, 2), whole)
    with pytest.raises(mx.MXNetError, match="expected an optimizer in this store"):
        kv.create().save_optimizer_states(path)


def test_two_bit_compression_loses_nothing_in_the_long_run():
    store = kv.create("device")
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init("w", nd.zeros((4,)))
    total, sent = np.zeros(4), np.zeros(4)
    rng = np.random.default_rng(0)
    for _ in range(50):
        grad = rng.uniform(-0.3, 0.3, 4).astype("float32")
        store.push("w", nd.array(grad))
        out = stored(store, "w", (4,))
        assert set(np.unique(out)) <= {-0.5, 0.0, 0.5}
        total, sent = total + grad, sent + out
    assert np.abs(total - sent).max() <= 0.81  # what is not sent yet


def test_a_refused_push_leaves_what_is_not_sent_yet():
    store = kv.create("device")
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init("w", nd.zeros((2,)))
    store.push("w", nd.array([0.4, 0.3]))
    with pytest.raises(ValueError, match="invalid shape of key 'w'"):
        store.push("w", nd.ones((3,)))
    store.push("w", nd.array([0.2, 0.1]))
    assert stored(store, "w", (2,)).tolist() == [0.5, 0]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda s: s.push("b", nd.ones((2, 3))), mx.MXNetError, "unknown key 'b'"),
        (lambda s: s.pull("b", nd.ones((2, 3))), mx.MXNetError, "unknown key 'b'"),
        (lambda s: s.init("w", nd.ones((2, 3))), mx.MXNetError,
         "init: invalid key 'w', which has a value"),
        (lambda s: s.init(3, nd.ones((2, 3))), ValueError, "invalid key 3: expected str"),
        (lambda s: s.init(3.5, nd.ones((2, 3))), TypeError, "invalid key 3.5"),
        (lambda s: s.push("w", 3), TypeError, "invalid value of key 'w' 3"),
        (lambda s: s.push(["w"], [1, 2]), ValueError, "1 keys and 2 values"),
        (lambda s: s.push("w", []), ValueError, "expected one array at least"),
        (lambda s: s.push("w", nd.ones((3, 2))), ValueError,
         r"key .w. \(3, 2\): expected \(2, 3\)"),
        (lambda s: s.pull("w"), ValueError, "out is None"),
        (lambda s: s.set_optimizer("sgd"), TypeError, "expected an Optimizer"),
        (lambda s: s._set_updater(3), TypeError, "invalid updater 3"),
        (lambda s: s.set_gradient_compression({"type": "2bit"}), ValueError, "expected 'device'"),
        (lambda s: s.row_sparse_pull("w"), NotImplementedError, "sparse"),
        (lambda s: kv.create("foo"), ValueError, "invalid kvstore 'foo': (?!.*teststore)expected"),
        (lambda s: kv.create(3), TypeError, "expected a string"),
        (lambda s: kv.create("dist_async"), NotImplementedError, "not in rsnet yet"),
    ],
)  # fmt: skip
def test_wrong_calls_are_refused(call, error, says):
    store = kv.create()
    store.init("w", nd.zeros((2, 3)))
    with pytest.raises(error, match=says):
        call(store)
    store.push("w", nd.ones((2, 3)))
    assert stored(store, "w")[0, 0] == 1


def test_a_module_needs_only_the_interface_of_a_store(tmp_path):
    class Summing(kv.KVStoreBase):
        def __init__(self):
            self.calls = []

        def broadcast(self, key, value, out, priority=0):
            self.calls.append(("broadcast", key))
            for array in out:
                value.copyto(array)

        def pushpull(self, key, value, out=None, priority=0):
            self.calls.append(("pushpull", key))
            total = nd.add_n(*value)
            for array in out:
                total.copyto(array)

        @staticmethod
        def is_capable(capability):
            return False

    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, no_bias=True, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    module.bind([("data", (4, 3))], [("softmax_label", (4,))])
    module.init_params(mx.init.One())
    store = Summing()
    module.init_optimizer(store, optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    module.forward_backward(mx.io.DataBatch([nd.ones((4, 3))], [nd.zeros((4,))]))
    module.update()
    assert store.calls == [("broadcast", "fc_weight"), ("pushpull", "fc_weight")]
    assert (module.get_params()[0]["fc_weight"].asnumpy()[0] > 1).all()
    file = str(tmp_path / "states")
    module.save_optimizer_states(file)
    module.load_optimizer_states(file)


def test_a_store_that_updates_keeps_the_states(tmp_path):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, no_bias=True, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    module.bind([("data", (4, 3))], [("softmax_label", (4,))])
    module.init_params(mx.init.One())
    store, file = kv.create("local"), str(tmp_path / "states")
    module.init_optimizer(store, optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    module.forward_backward(mx.io.DataBatch([nd.ones((4, 3))], [nd.zeros((4,))]))
    module.update()
    module.save_optimizer_states(file)
    with open(file, "rb") as saved, open(tmp_path / "direct", "w+b") as direct:
        store.save_optimizer_states(direct.name)
        assert saved.read() == direct.read()
    module.load_optimizer_states(file)


def test_a_store_may_keep_its_optimizer_to_itself(tmp_path):
    class Alone(kv.KVStoreBase):
        def broadcast(self, key, value, out, priority=0):
            for array in out:
                array[:] = value

        def set_optimizer(self, optimizer):
            pass

        @staticmethod
        def is_capable(capability):
            return True

        def save_optimizer_states(self, fname, dump_optimizer=False):
            self.written = fname

        def load_optimizer_states(self, fname):
            self.read = fname

    param = mx.gluon.Parameter("w", shape=(1,))
    param.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    store = Alone()
    trainer = mx.gluon.Trainer([param], "sgd", kvstore=store)
    optimizer = trainer.optimizer
    trainer.save_states(str(tmp_path / "states"))
    trainer.load_states(store.written)
    assert store.read == store.written
    assert trainer.optimizer is optimizer
