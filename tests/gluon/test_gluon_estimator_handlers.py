"""Handlers of `contrib.estimator`, called as an estimator calls them, with metrics of given values.
"""  # fmt: skip

import logging
from types import SimpleNamespace

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet.gluon.contrib import estimator as est


class Told(mx.metric.EvalMetric):
    """A metric with the value that a test gives it."""

    value = 0.0

    def get(self):
        return self.name, self.value


def standing(weight=1.0):
    """What handlers see of an estimator: a network of one weight and its trainer."""
    net = gluon.nn.Dense(1, in_units=1, use_bias=False, prefix="net_")
    net.initialize(mx.init.Constant(weight))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    return SimpleNamespace(
        net=net, trainer=trainer, logger=logging.getLogger("standing"), max_epoch=5,
        max_batch=None, context=mx.cpu(), batch_axis=0,
    )  # fmt: skip


def weight_after_a_step(estimator):
    with autograd.record():
        loss = estimator.net(nd.ones((1, 1)))
    loss.backward()
    estimator.trainer.step(1)
    return estimator.net.weight.data().asscalar()


def test_a_checkpoint_gives_parameters_and_states_back(tmp_path):
    one = standing()
    weight_after_a_step(one)
    keep = est.CheckpointHandler(str(tmp_path))
    keep.train_begin(one)
    keep.epoch_end(one)
    resumed = standing(weight=7.0)
    est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True).train_begin(resumed)
    assert resumed.net.weight.data().asscalar() == one.net.weight.data().asscalar()
    assert weight_after_a_step(resumed) == weight_after_a_step(one)  # by the same momentum
    assert resumed.max_epoch == 4


@pytest.mark.parametrize(
    ("name", "mode", "values"),
    [
        ("accuracy", "auto", [0.5, 0.9, 0.7]),
        ("my f1", "auto", [0.5, 0.9, 0.7]),
        ("loss", "auto", [0.5, 0.2, 0.3]),
        ("accuracy", "min", [0.5, 0.2, 0.3]),
        ("loss", "max", [0.5, 0.9, 0.7]),
    ],
)
def test_the_best_parameters_are_kept(tmp_path, name, mode, values):
    one, metric = standing(), Told(name)
    keep = est.CheckpointHandler(str(tmp_path), monitor=metric, save_best=True, mode=mode)
    keep.train_begin(one)
    for epoch, metric.value in enumerate(values):
        one.net.weight.set_data(nd.array([[epoch]]))
        keep.epoch_end(one)
    one.net.load_parameters(str(tmp_path / "model-best.params"))
    assert one.net.weight.data().asscalar() == 1
    assert keep.best == values[1]


@pytest.mark.parametrize(
    ("options", "values", "last"),
    [
        ({"mode": "max"}, [0.5, 0.6, 0.6, 0.9], 2),
        ({"mode": "min"}, [0.5, 0.4, 0.4, 0.1], 2),
        ({"mode": "max", "min_delta": 0.1}, [0.5, 0.7, 0.75, 0.9], 2),
        ({"mode": "min", "min_delta": 0.1}, [0.5, 0.3, 0.25, 0.1], 2),
        ({"mode": "max", "baseline": 0.6}, [0.5, 0.9], 0),
        ({"mode": "min", "baseline": 0.4}, [0.5, 0.1], 0),
        ({"mode": "max", "patience": 2}, [0.5, 0.4, 0.6, 0.5, 0.4, 0.9], 4),
        ({"mode": "max", "patience": 2}, [0.5, np.nan, np.nan, 0.4, 0.3], 4),
    ],
)
def test_training_stops_at_the_first_epoch_without_a_change_that_counts(options, values, last):
    one, metric = standing(), Told("value")
    stop = est.EarlyStoppingHandler(metric, **{"patience": 1, **options})
    stop.train_begin(one)
    ended = []
    for metric.value in values[: last + 1]:
        ended.append(stop.epoch_end(one))
    assert ended == [False] * last + [True]
    assert stop.stopped_epoch == last


@pytest.mark.parametrize(
    ("epochs", "batches", "expected"),
    [(2, None, ["epoch 2", "epoch 4"]), (None, 5, ["batch 5", "batch 10"]), (None, None, [])],
)
def test_validation_is_called_at_its_periods(epochs, batches, expected):
    seen = []
    handler = est.ValidationHandler(
        "data", lambda val_data, **_: seen.append((val_data, now)), epochs, batches
    )
    one = standing()
    handler.train_begin(one)
    for epoch in range(1, 5):
        for batch in range(3 * epoch - 2, 3 * epoch + 1):
            now = f"batch {batch}"
            handler.batch_end(one)
        now = f"epoch {epoch}"
        handler.epoch_end(one)
    assert seen == [("data", when) for when in expected]


def test_a_line_is_logged_at_each_interval_of_batches(caplog):
    one, metric = standing(), Told("training value")
    handler = est.LoggingHandler(log_interval=2, metrics=[metric])
    with caplog.at_level(logging.INFO):
        handler.train_begin(one)
        handler.epoch_begin(one)
        for _ in range(5):
            handler.batch_begin(one)
            handler.batch_end(one, batch=[nd.ones((3, 1))])
    batches = [line.split(" time/")[0] for line in caplog.messages if "[Batch" in line]
    assert batches == [
        "[Epoch 0][Batch 0][Samples 3]",
        "[Epoch 0][Batch 2][Samples 9]",
        "[Epoch 0][Batch 4][Samples 15]",
    ]
