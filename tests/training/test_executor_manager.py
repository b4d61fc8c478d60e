"""Data-parallel training before modules, and other names of old programs."""

import sys
import types

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def batches(rows=32):
    x = np.random.uniform(-1, 1, (rows, 4)).astype("float32")
    return mx.io.NDArrayIter(x, (x.sum(axis=1) > 0).astype("float32"), batch_size=8)


def test_a_loop_over_two_devices_learns():
    data, metric = batches(), mx.metric.Accuracy()
    manager = mx.executor_manager.DataParallelExecutorManager(
        network(), [mx.cpu(0), mx.cpu(1)], data, work_load_list=[1, 3]
    )
    first = {"fc_weight": mx.nd.zeros((2, 4)), "fc_bias": mx.nd.zeros((2,))}
    manager.set_params(first, {})
    for _ in range(10):
        data.reset()
        metric.reset()
        for batch in data:
            manager.load_data_batch(batch)
            manager.forward(is_train=True)
            manager.backward()
            for weights, grads in zip(manager.param_arrays, manager.grad_arrays, strict=True):
                total = sum(g.as_in_context(mx.cpu()) for g in grads)
                for weight in weights:
                    weight -= 0.1 * total.as_in_context(weight.context)
            manager.update_metric(metric, batch.label)
    assert metric.get()[1] > 0.9
    manager.copy_to(first, {})
    assert abs(first["fc_weight"].asnumpy()).max() > 0


def test_misuse_of_the_manager():
    manager = mx.executor_manager.DataParallelExecutorManager(network(), [mx.cpu()], batches())
    with pytest.raises(AssertionError, match="call load_data_batch first"):
        manager.forward()
    with pytest.raises(ValueError, match="expected 1 numbers, one for each device"):
        mx.executor_manager.DataParallelExecutorManager(
            network(), [mx.cpu()], batches(), work_load_list=[1, 2]
        )
    twice = mx.sym.Variable("a") + mx.sym.Variable("a")
    with pytest.raises(ValueError, match="invalid argument name 'a'"):
        mx.executor_manager._check_arguments(twice)


def test_a_group_by_itself_computes_gradients():
    net, data = network(), batches()
    names = net.list_arguments()
    group = mx.executor_manager.DataParallelExecutorGroup(
        net,
        names,
        ["fc_weight", "fc_bias"],
        [mx.cpu(0), mx.cpu(1)],
        [slice(0, 2), slice(2, 8)],
        data,
    )
    batch = next(data)
    with pytest.raises(AssertionError, match="call load_data_batch first"):
        group.forward()
    group.load_data_batch(batch)
    group.forward(is_train=True)
    group.backward()
    assert [exe.outputs[0].shape for exe in group.train_execs] == [(2, 2), (6, 2)]
    whole = net.simple_bind(mx.cpu(), data=(8, 4))
    whole.forward(is_train=True, data=batch.data[0], softmax_label=batch.label[0])
    whole.backward()
    for grads, name in zip(group.grad_arrays, group.param_names, strict=True):
        total = sum(g.asnumpy() for g in grads)
        np.testing.assert_allclose(total, whole.grad_dict[name].asnumpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="invalid slices .* expected 2, one per device"):
        mx.executor_manager.DataParallelExecutorGroup(
            net, names, ["fc_weight"], [mx.cpu(0), mx.cpu(1)], [slice(0, 8)], data
        )


def test_rows_of_devices():
    assert mx.executor_manager._split_input_slice(8, [1, 3]) == [slice(0, 2), slice(2, 8)]


def test_the_oldest_schedules_count_iterations():
    rate = mx.misc.FactorScheduler(step=10)
    rate.base_lr = 1.0
    np.testing.assert_allclose([rate(i) for i in (0, 9, 10, 25)], [1, 1, 0.1, 0.01])
    sgd = mx.optimizer.SGD(learning_rate=1.0, lr_scheduler=rate)
    sgd.num_update = 10
    assert sgd.learning_rate == rate(10)
    for wrong in ({"step": 0}, {"step": 1, "factor": 1.0}):
        with pytest.raises(ValueError, match="expected"):
            mx.misc.FactorScheduler(**wrong)


def test_outputs_are_chosen_by_number():
    halves = mx.sym.SliceChannel(mx.sym.Variable("data"), num_outputs=3)
    mod = mx.mod.Module(halves, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    mod.bind([("data", (4, 6))], for_training=False)
    mod.init_params()
    mod.forward(mx.io.DataBatch([nd.ones((4, 6))], None))
    group = mod._exec_group
    assert [o.shape for o in group.get_outputs(begin=1)] == [(4, 2)] * 2
    assert [len(o) for o in group.get_outputs(False, 0, 1)] == [2]
    assert group.decide_slices(group.data_shapes) == [0]


def test_metrics_are_written_for_tensorboard(monkeypatch, tmp_path):
    written = []

    class SummaryWriter:
        def __init__(self, folder):
            assert folder == str(tmp_path)

        def add_scalar(self, name, value, step):
            written.append((name, step))

    module = types.ModuleType("tensorboardX")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    callback = mx.contrib.tensorboard.LogMetricsCallback(str(tmp_path), prefix="train")
    mx.mod.Module(network()).fit(
        batches(16), num_epoch=1, batch_end_callback=callback, progress=False
    )
    assert written == [("train-accuracy", 1), ("train-accuracy", 2)]


def test_without_a_writer_the_callback_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(mx.contrib.tensorboard, "WRITERS", ("no_such_writer",))
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        mx.contrib.tensorboard.LogMetricsCallback(str(tmp_path))
    (tmp_path / "broken_writer.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(mx.contrib.tensorboard, "WRITERS", ("broken_writer",))
    with pytest.raises(ImportError, match="broken_writer cannot be imported.*no_such_package"):
        mx.contrib.tensorboard.LogMetricsCallback(str(tmp_path))


def test_operators_of_contrib():
    assert mx.contrib.nd is mx.nd.contrib and mx.contrib.sym is mx.sym.contrib
    with pytest.raises(AttributeError, match="has no attribute 'no_such'"):
        mx.contrib.no_such  # noqa: B018
