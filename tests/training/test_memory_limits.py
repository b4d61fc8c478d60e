"""Training within a limit of memory."""

import numpy as np
import pytest
from memory import settled_bytes

import rsnet as mx


@pytest.mark.parametrize("way", ["bind", "fit"])
def test_memory_can_be_limited(way):
    data = mx.io.NDArrayIter(np.ones((8, 64), "float32"), np.zeros(8), batch_size=4)
    net = mx.sym.Variable("data")
    for _ in range(12):
        net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=64), act_type="tanh")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    free = net.memory_plan(data=(4, 64), softmax_label=(4,)).arena_bytes
    module = mx.mod.Module(net)
    if way == "bind":
        module.bind(data.provide_data, data.provide_label, memory_limit=free // 2)
    else:
        module.fit(data, num_epoch=1, memory_limit=free // 2)
    used = module.executors.execs[0].memory_plan()
    assert 0 < used.arena_bytes <= free // 2 and used.recomputed_nodes > 0
    module.reshape([("data", (2, 64))], [("softmax_label", (2,))])
    assert module.executors.planned_bytes <= free // 2


def test_buckets_are_bound_within_a_limit():
    def sym_gen(rows):
        net = mx.sym.Variable("data")
        for i in range(12):
            net = mx.sym.Activation(
                mx.sym.FullyConnected(net, num_hidden=64, name=f"fc{i}"), act_type="tanh"
            )
        return net, ("data",), None

    module = mx.mod.BucketingModule(sym_gen, default_bucket_key=8)
    free = sym_gen(8)[0].memory_plan(data=(8, 64)).arena_bytes
    module.bind([("data", (8, 64))], memory_limit=free * 3 // 4)
    module.switch_bucket(4, [("data", (4, 64))])
    module.init_params()
    for bucket in module._buckets.values():
        assert 0 < bucket.executors.planned_bytes <= free * 3 // 4
    with pytest.raises(ValueError, match=r"invalid memory_limit '50%': expected bytes, as an int"):
        module.bind([("data", (8, 64))], force_rebind=True, memory_limit="50%")


def deep_block(memory_limit=None):
    net = mx.gluon.nn.HybridSequential()
    for _ in range(16):
        net.add(mx.gluon.nn.Dense(64, activation="tanh", in_units=64))
    net.initialize(mx.init.Constant(0.01))
    net.hybridize(memory_limit=memory_limit)
    return net


def test_hybridized_blocks_train_within_a_limit():
    x = mx.nd.array(np.random.default_rng(0).normal(size=(256, 64)))
    grown, grads = [], []
    for limit in (None, 800_000, "800kB"):
        net = deep_block(limit)
        before = settled_bytes()
        with mx.autograd.record():
            y = net(x)
        y.backward()
        grown.append(settled_bytes() - before - y.size * 4)
        grads.append(net[0].weight.grad().asnumpy())
    # Sixteen activations of 65,536 bytes are kept without a limit.
    assert grown[0] > 16 * 65536 and max(grown[1:]) <= 800_000 + 3 * 65536
    for found in grads[1:]:
        np.testing.assert_allclose(found, grads[0], rtol=1e-5, atol=1e-7)


def test_limits_of_blocks_that_cannot_be_met_or_read():
    net = deep_block("10kB")
    with pytest.raises(mx.MXNetError, match="memory_limit of 10000 bytes cannot be met"):
        with mx.autograd.record():
            net(mx.nd.ones((256, 64)))
    net.hybridize(memory_limit="10MB")
    assert net(mx.nd.ones((256, 64))).shape == (256, 64)
    for bad in ("50%", -1):
        with pytest.raises(ValueError, match="invalid memory_limit"):
            net.hybridize(memory_limit=bad)
