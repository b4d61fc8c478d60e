"""Attributes of objects that MXNet does not document and programs read or set."""

import logging
import pickle

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet.contrib import amp


def symbols(key=3):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)


def batch(width=3):
    shapes = {"provide_data": [("data", (2, width))], "provide_label": [("softmax_label", (2,))]}
    return mx.io.DataBatch([nd.ones((2, width))], [nd.ones((2,))], bucket_key=width, **shapes)


def bound(module):
    module.bind([("data", (2, 3))], [("softmax_label", (2,))], grad_req="add")
    module.init_params()
    module.init_optimizer()
    return module


@pytest.mark.parametrize("bucketing", [False, True])
def test_modules_show_what_they_were_made_with(bucketing):
    def made(**options):
        if bucketing:
            return mx.mod.BucketingModule(symbols, default_bucket_key=3, **options)
        return mx.mod.Module(*symbols(), **options)

    plain = made()
    assert plain._fixed_param_names == plain._state_names == []
    assert plain._group2ctxs is plain._compression_params is plain._grad_req is None
    devices, compression = [mx.cpu(0), mx.cpu(1)], {"type": "2bit"}
    module = made(
        context=devices,
        work_load_list=[1, 2],
        fixed_param_names=("fc_bias",),
        compression_params=compression,
    )
    assert module._context == devices
    assert module._work_load_list == [1, 2]
    assert module._fixed_param_names == ["fc_bias"]
    assert module._compression_params is compression
    assert bound(made())._grad_req == "add"


def test_buckets_are_made_with_the_attributes_of_the_module():
    def gen(key):
        net = mx.sym.sum(mx.sym.var("data"), axis=1, keepdims=True)
        net = mx.sym.FullyConnected(net, num_hidden=2, name="fc")
        return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

    module = bound(mx.mod.BucketingModule(gen, 3, context=mx.cpu(1), fixed_param_names=["fc_bias"]))
    module.forward(batch(5))
    assert module._curr_module._context == [mx.cpu(1)]
    assert module._curr_module._fixed_param_names == ["fc_bias"]
    module._fixed_param_names = []
    module.forward(batch(4))
    assert module._curr_module._fixed_param_names == []


@pytest.mark.parametrize("kind", ["plain", "bucketing"])
def test_params_are_dirty_from_an_update_until_they_are_asked_for(kind):
    plain = kind == "plain"
    module = bound(
        mx.mod.Module(*symbols())
        if plain
        else mx.mod.BucketingModule(symbols, default_bucket_key=3)
    )
    assert not module._params_dirty
    module.forward(batch())
    module.backward()
    module.update()
    assert module._params_dirty
    before = module.get_params()[0]["fc_weight"].asnumpy()
    assert not module._params_dirty
    group = module.executors
    weight = group.execs[0].arg_dict["fc_weight"]
    weight[:] = 7
    assert np.array_equal(module.get_params()[0]["fc_weight"].asnumpy(), before)
    module._params_dirty = True
    assert np.all(module.get_params()[0]["fc_weight"].asnumpy() == 7)


def test_trainers_show_what_they_ask_of_a_store():
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="local")
    assert trainer._kvstore_params == {"kvstore": "local", "update_on_kvstore": None}
    assert not (trainer._contains_sparse_weight or trainer._contains_sparse_grad)
    assert not trainer._distributed
    on_store = mx.kv.create("device")
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=on_store, update_on_kvstore=True)
    trainer._kvstore_params["update_on_kvstore"] = False
    trainer._init_kvstore()
    assert not trainer._update_on_kvstore


def test_an_updater_says_whether_it_updates_together():
    assert mx.optimizer.get_updater(mx.optimizer.SGD()).aggregate_updates
    assert not mx.optimizer.get_updater(mx.optimizer.Adam()).aggregate_updates


def test_a_subclass_of_speedometer_counts_with_its_attributes(caplog):
    class Quiet(mx.callback.Speedometer):
        def __call__(self, param):
            before = self.init, self.last_count
            super().__call__(param)
            self.seen = [*getattr(self, "seen", []), (*before, self.init, self.last_count)]

    meter = Quiet(4, frequent=2)
    assert (meter.init, meter.tic, meter.last_count) == (False, 0, 0)
    with caplog.at_level(logging.INFO):
        for count in (1, 2, 3):
            meter(mx.model.BatchEndParam(0, count, None, None))
    assert meter.seen == [(False, 0, True, 1), (True, 1, True, 2), (True, 2, True, 3)]
    assert meter.tic > 1e9  # as `time.time`
    assert caplog.text.count("Speed") == 1


def test_layers_and_executors():
    assert gluon.nn.Conv2D(2, 3)._op_name == "Convolution"
    assert gluon.nn.Conv1DTranspose(2, 3)._op_name == "Deconvolution"
    layers = gluon.rnn.LSTM(2), gluon.rnn.GRU(2), gluon.rnn.RNN(2)
    assert [layer._gates for layer in layers] == [4, 3, 1]
    assert symbols()[0].simple_bind(mx.cpu(1), data=(2, 3))._ctx == mx.cpu(1)


def scaled_step(net, trainer):
    with autograd.record(), amp.scale_loss(net(nd.ones((1, 2))), trainer) as loss:
        loss.backward()
    trainer.step(1)


def test_a_trainer_keeps_its_scale_of_losses():
    net = gluon.nn.Dense(1, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    assert not hasattr(trainer, "_amp_loss_scaler")
    amp.init_trainer(trainer)
    assert trainer._kvstore_params["update_on_kvstore"] is False
    scaler = trainer._amp_loss_scaler
    assert isinstance(scaler, amp.loss_scaler.LossScaler)
    assert vars(scaler) == {
        "_loss_scale": 65536.0, "_next_loss_scale": 65536.0, "_max_loss_scale": 2.0**24,
        "_scale_seq_len": 2000, "_unskipped": 0,
    }  # fmt: skip
    assert trainer._amp_original_scale == trainer._scale == 1
    scaler._scale_seq_len = 2
    scaled_step(net, trainer)
    assert trainer._scale == 1 / 65536
    scaled_step(net, trainer)
    assert (scaler.loss_scale, scaler._unskipped) == (131072, 0)
    # A checkpoint stores it, and a later run goes on with it.
    trainer._amp_loss_scaler = pickle.loads(pickle.dumps(scaler))
    scaled_step(net, trainer)
    assert trainer._amp_loss_scaler._unskipped == 1
    assert trainer._scale == 1 / 131072


def test_a_scaler_of_a_program_is_asked():
    class Scaler(amp.loss_scaler.LossScaler):
        def has_overflow(self, params):
            self.asked = list(params)
            return True

    net = gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(init="ones")
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    amp.init_trainer(trainer)
    trainer._amp_loss_scaler = scaler = Scaler()
    scaler._next_loss_scale = 8.0
    scaled_step(net, trainer)
    assert scaler.asked == [net.weight]
    assert net.weight.data().asnumpy().tolist() == [[1, 1]]
    assert not amp.loss_scaler.LossScaler.has_overflow(scaler, [net.weight])
    assert scaler.loss_scale == 8
