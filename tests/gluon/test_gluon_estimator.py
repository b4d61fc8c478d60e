"""`contrib.estimator`: training loops as objects."""

import logging
import os

import numpy as np
import pytest

import rsnet as mx
from rsnet import gluon, nd
from rsnet.gluon.contrib import estimator as est

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 5)).astype("float32")
Y = (X[:, 0] > 0).astype("float32")


def loader(batch=10):
    return gluon.data.DataLoader(gluon.data.ArrayDataset(nd.array(X), nd.array(Y)), batch)


def made(rate=0.5, context=None, **more):
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():  # names, and so the order of states, are the same for every network
        net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(2))
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    found = est.Estimator(
        net, loss, train_metrics=mx.metric.Accuracy(), trainer=trainer, context=context, **more
    )
    found.logger.handlers.clear()
    return found


class Seen(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def test_it_learns_and_logs():
    one = made()
    seen = Seen()
    one.logger.addHandler(seen)
    one.fit(loader(), val_data=loader(), epochs=5)
    assert [m.name for m in one.train_metrics + one.val_metrics] == [
        "training accuracy",
        "validation accuracy",
    ]
    assert one.val_metrics[0].get()[1] > 0.9
    assert seen.lines[:3] == [
        "Training begin: using optimizer SGD with current learning rate 0.5000 ",
        "Train for 5 epochs.",
        "[Epoch 0] Begin, current learning rate: 0.5000",
    ]
    assert any(line.startswith("[Epoch 4] Finished in") for line in seen.lines)
    assert seen.lines[-1].startswith("Train finished using total")


def test_two_devices():
    one = made(context=[mx.cpu(0), mx.cpu(1)])
    one.fit(loader(), epochs=5)
    one.evaluate(loader())
    assert one.val_metrics[0].get()[1] > 0.9


def test_handlers_are_called_in_their_order():
    calls = []

    class Watch(est.TrainBegin, est.EpochEnd, est.BatchEnd, est.TrainEnd):
        def train_begin(self, estimator, *args, **kwargs):
            calls.append("begin")

        def batch_end(self, estimator, *args, **kwargs):
            calls.append(len(kwargs["pred"]))

        def epoch_end(self, estimator, *args, **kwargs):
            calls.append("epoch")

        def train_end(self, estimator, *args, **kwargs):
            calls.append("end")

    made().fit(loader(20), epochs=2, event_handlers=Watch())
    assert calls == ["begin", 1, 1, "epoch", 1, 1, "epoch", "end"]
    calls.clear()
    made().fit(loader(20), batches=3, event_handlers=[Watch()])
    assert calls == ["begin", 1, 1, "epoch", 1, "epoch", "end"]


def test_checkpoints_are_kept_and_resumed(tmp_path):
    one = made()
    keep = est.CheckpointHandler(
        str(tmp_path), monitor=one.val_metrics[0], save_best=True, max_checkpoints=2
    )
    one.fit(loader(), val_data=loader(), epochs=3, event_handlers=keep)
    names = sorted(os.listdir(tmp_path))
    assert [n for n in names if n.endswith("params")] == [
        "model-best.params",
        "model-epoch1batch8.params",
        "model-epoch2batch12.params",
    ]
    assert "model-symbol.json" in names and "model-best.states" in names
    resumed = made()
    again = est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True)
    resumed.fit(loader(), epochs=5, event_handlers=again)
    assert resumed.max_epoch == 2 and "model-epoch4batch20.params" in os.listdir(tmp_path)
    with pytest.raises(ValueError, match="after all of 5 epochs"):
        made().fit(
            loader(),
            epochs=5,
            event_handlers=est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True),
        )


def test_it_stops_early():
    one = made(rate=0.0)
    stop = est.EarlyStoppingHandler(one.train_metrics[0], patience=2)
    one.fit(loader(), epochs=50, event_handlers=stop)
    assert stop.stopped_epoch == 2 and stop.current_epoch == 3


def test_wrong_arguments_are_refused():
    one = made()
    net, loss = one.net, one.loss
    for make, text in [
        (lambda: est.Estimator(net, 3), "invalid loss 3: expected"),
        (lambda: est.Estimator(net, loss, train_metrics=3), "invalid metric 3: expected"),
        (lambda: est.Estimator(net, loss, trainer=3), "invalid trainer 3: expected"),
        (lambda: est.Estimator(net, loss, batch_processor=3), "invalid batch_processor 3"),
        (lambda: one.fit(loader()), "fit: epochs is .* expected one of them"),
        (lambda: one.fit(loader(), epochs=1, batches=1), "fit: epochs is .* expected one of them"),
        (lambda: one.fit([1], epochs=1), r"invalid data \[1\]: expected a gluon.data.DataLoader"),
        (
            lambda: one.fit(loader(), epochs=1, event_handlers=[3]),
            "invalid event handler 3: expected",
        ),
        (
            lambda: est.CheckpointHandler(".", save_best=True),
            "invalid monitor None: expected a metric",
        ),
        (lambda: est.EarlyStoppingHandler(3), "invalid monitor 3: expected a metric"),
        (lambda: est.EarlyStoppingHandler(one.train_metrics[0], mode="x"), "invalid mode 'x'"),
        (lambda: est.LoggingHandler("batch"), "invalid log_interval 'batch': expected"),
    ]:
        with pytest.raises(ValueError, match=text):
            make()
    for argument, text in [
        ({"epochs": 0}, "invalid epochs 0: expected at least 1"),
        ({"epochs": 1.5}, "invalid epochs 1.5: expected an integer"),
        ({"epochs": "3"}, "invalid epochs '3': expected an integer"),
        ({"batches": -1}, "invalid batches -1: expected at least 1"),
    ]:
        with pytest.raises((TypeError, ValueError), match=text):
            one.fit(loader(), **argument)
    stop = est.StoppingHandler()
    stop.max_epoch = stop.max_batch = 0  # a program may lower them meanwhile
    assert stop.batch_end(one) and stop.epoch_end(one)
    empty = gluon.data.DataLoader(gluon.data.SimpleDataset([]), 1)
    with pytest.raises(ValueError, match="gave no batch"):
        one.fit(empty, epochs=1)
