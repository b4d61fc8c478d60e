"""Modules of programs that define `init_optimizer`, or that are bound or loaded by a program."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import optimizer as opt
from rsnet._half_private import model
from rsnet._half_private.module_executor_group import _load_label
from rsnet.module.executor_group import DataParallelExecutorGroup


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def batches():
    rng = np.random.RandomState(5)
    x, y = rng.rand(8, 2).astype("f"), rng.randint(0, 3, 8).astype("f")
    return mx.io.NDArrayIter(x, y, 4)


class Own(mx.mod.Module):
    """Sets the parts of the update one by one."""

    def init_optimizer(self, kvstore="local", optimizer="sgd", optimizer_params=(), **_):
        if self._params_dirty:
            self._sync_params_from_devices()
        store, on_store = model._create_kvstore(kvstore, len(self._context), self._arg_params)
        self._optimizer = opt.create(optimizer, rescale_grad=0.25, **dict(optimizer_params))
        self._kvstore, self._update_on_kvstore, self._updater = store, on_store, None
        if store:
            model._initialize_kvstore(
                kvstore=store,
                param_arrays=self._exec_group.param_arrays,
                arg_params=self._arg_params,
                param_names=self._param_names,
                update_on_kvstore=on_store,
            )
        if on_store:
            store.set_optimizer(self._optimizer)
        else:
            self._updater = opt.get_updater(self._optimizer)
        self.optimizer_initialized = True


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("on_store", ["0", "1"])
def test_an_optimizer_that_a_module_sets_itself_updates_as_that_of_module(
    monkeypatch, devices, on_store
):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", on_store)
    weights = []
    for kind in (mx.mod.Module, Own):
        module = kind(network(), context=[mx.cpu(i) for i in range(devices)])
        module.fit(
            batches(),
            num_epoch=2,
            initializer=mx.init.One(),
            optimizer_params={"learning_rate": 0.5, "momentum": 0.5},
        )
        weights.append(module.get_params()[0]["fc_weight"].asnumpy())
    assert not np.allclose(weights[0], 1)
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-6)


def test_a_part_of_a_borrowed_update_changes_in_the_borrower_alone():
    one, other = (mx.mod.Module(network()) for _ in range(2))
    for module in (one, other):
        module.bind(batches().provide_data, batches().provide_label)
        module.init_params()
    one.init_optimizer()
    other.borrow_optimizer(one)
    other._updater = updater = opt.get_updater(opt.create("adam"))
    assert other._updater is updater
    assert one._updater is not updater
    assert other._optimizer is one._optimizer


def test_parameters_that_a_program_sets_are_those_of_the_module():
    module = mx.mod.Module(network())
    module._arg_params = {"fc_weight": mx.nd.ones((3, 2)), "fc_bias": mx.nd.zeros(3)}
    module._aux_params, module.params_initialized = {}, True
    module.bind(batches().provide_data, batches().provide_label)
    module.forward(next(batches()))
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), 1 / 3, rtol=1e-6)


def test_a_module_that_a_program_binds_itself_trains():
    module = mx.mod.Module(network())
    assert module._arg_params is module._aux_params is module._data_shapes is None
    module.for_training = module.binded = True
    module._data_shapes = [mx.io.DataDesc("data", (4, 2))]
    module._label_shapes = [mx.io.DataDesc("softmax_label", (4,))]
    module._exec_group = group = DataParallelExecutorGroup(
        module._symbol, module._context, module._work_load_list, module._data_shapes,
        module._label_shapes, module._param_names, True, False,
    )  # fmt: skip
    assert group._total_exec_bytes == group.planned_bytes
    names = zip(module._param_names, group.param_arrays, strict=True)
    module._arg_params = {name: mx.nd.zeros(block[0].shape) for name, block in names}
    module._aux_params = {}
    module.fit(batches(), num_epoch=1, initializer=mx.init.One())
    module.reshape([("data", (2, 2))], [("softmax_label", (2,))])
    assert module._data_shapes == module.data_shapes == [("data", (2, 2))]
    assert not np.allclose(module.get_params()[0]["fc_weight"].asnumpy(), 1)


def test_labels_load_with_and_without_layouts():
    module = mx.mod.Module(network(), context=[mx.cpu(0), mx.cpu(1)])
    module.bind(batches().provide_data, batches().provide_label)
    group, batch = module._exec_group, next(batches())
    for axes in ((), (group.label_layouts,)):
        for exe in group.execs:
            exe.arg_dict["softmax_label"][:] = -1
        _load_label(batch, group.label_arrays, *axes)
        loaded = np.concatenate([e.arg_dict["softmax_label"].asnumpy() for e in group.execs])
        np.testing.assert_array_equal(loaded, batch.label[0].asnumpy())
    assert (group.data_layouts, group.label_layouts, group.output_layouts) == ([0], [0], [0])
