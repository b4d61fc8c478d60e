"""Buckets take the memory of the largest of them, in whatever order they come."""

import gc
import itertools

import numpy as np
import pytest

import rsnet as mx
from rsnet import _core, nd

LENGTHS = (2, 4, 8)
BATCH, WIDTH = 16, 32


def network(length):
    data = mx.sym.Variable("data")
    steps = mx.sym.split(data, num_outputs=length, axis=1, squeeze_axis=length > 1)
    cell = mx.rnn.GRUCell(WIDTH, prefix="gru_")
    outputs, _ = cell.unroll(length, list(steps), layout="NTC")
    net = mx.sym.FullyConnected(outputs[-1], num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)


def batch_of(length):
    draw = np.random.default_rng(length)
    x = draw.normal(size=(BATCH, length, WIDTH))
    return mx.io.DataBatch(
        [nd.array(x)],
        [nd.array(x[:, 0, 0] > 0)],
        bucket_key=length,
        provide_data=[("data", x.shape)],
        provide_label=[("softmax_label", (BATCH,))],
    )


def module_of(default, grad_req="write"):
    first = batch_of(default)
    module = mx.mod.BucketingModule(network, default_bucket_key=default)
    module.bind(first.provide_data, first.provide_label, grad_req=grad_req)
    np.random.seed(0)
    mx.random.seed(0)
    module.init_params(mx.init.One())
    module.init_optimizer(optimizer_params={"learning_rate": 0.1})
    return module


def trained(lengths, default):
    module = module_of(default)
    outputs = []
    for length in lengths:
        module.forward_backward(batch_of(length))
        module.update()
        outputs.append(module.get_outputs()[0].asnumpy())
    return module, outputs


def used_bytes():
    gc.collect()
    nd.waitall()
    return _core.memory_usage()[0]


def planned_bytes(length):
    return (
        network(length)[0]
        .memory_plan(data=(BATCH, length, WIDTH), softmax_label=(BATCH,))
        .arena_bytes
    )


FIRST, *FURTHER = itertools.permutations(LENGTHS)


@pytest.mark.parametrize(
    "order", [FIRST, *(pytest.param(order, marks=pytest.mark.slow) for order in FURTHER)]
)
def test_the_order_of_buckets_changes_neither_memory_nor_results(order):
    lengths = [*order, *order]
    before = used_bytes()
    module, expected = trained(lengths, default=8)
    largest_first = used_bytes() - before
    del module
    for default in (2, 4):
        before = used_bytes()
        module, found = trained(lengths, default)
        # Executors of which none shares hold their outputs inside of it: some bytes more or less.
        assert abs(used_bytes() - before - largest_first) < planned_bytes(2) / 2
        del module
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_the_current_outputs_survive_that_a_larger_bucket_is_prepared():
    module = module_of(2)
    module.forward(batch_of(2), is_train=False)
    expected = module.get_outputs()[0].asnumpy()
    module.prepare(batch_of(8))
    np.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), expected)
    module.forward(batch_of(8), is_train=False)
    module.forward(batch_of(2), is_train=False)  # bound again
    np.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), expected)


def test_sums_of_gradients_go_on_in_buckets_that_are_bound_again():
    def summed(default):
        module = module_of(default, grad_req="add")
        for length in (2, 4, 8, 2, 4):
            module.forward_backward(batch_of(length))
        return [grad.asnumpy() for [grad] in module.executors.grad_arrays]

    for found, expected in zip(summed(2), summed(8)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_monitor_watches_buckets_that_are_bound_again():
    module = module_of(2)
    monitor = mx.monitor.Monitor(1, pattern="fc_output")
    module.install_monitor(monitor)
    for length in (2, 8, 2):
        monitor.tic()
        module.forward(batch_of(length), is_train=False)
        assert [name for _, name, _ in monitor.toc()] == ["fc_output"], length


def test_a_monitor_lets_go_of_executors_that_buckets_gave_up():
    module = module_of(2)
    monitor = mx.monitor.Monitor(1, pattern="fc_weight")
    module.install_monitor(monitor)
    for buckets, length in enumerate((2, 4, 8), start=1):
        for each in (length, 2, length):  # the bucket of 2 is bound again
            monitor.tic()
            module.forward(batch_of(each), is_train=False)
            rows = [name for _, name, _ in monitor.toc()]
            assert 1 <= len(rows) <= buckets, (length, each)
    assert len(monitor.exes) == sum(len(m.executors.execs) for m in module._buckets.values())
