"""Training within a limit of memory."""

import numpy as np
import pytest

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
