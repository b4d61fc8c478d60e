"""Arguments of schedules, optimizers, iterators and the like that are refused by name."""

import numpy as np
import pytest
from test_module import batches, trained

import rsnet as mx
from rsnet import lr_scheduler, nd
from rsnet.gluon.data import DataLoader
from rsnet.gluon.data.vision.transforms import CenterCrop
from rsnet.gluon.loss import HuberLoss
from rsnet.io.files import _RowIter

SENTENCES = [[1, 2], [3]]
NUMBER = "expected a number"
PICKLE = b"\x80\x04}r\xff\xff\xff\x7f."  # a dict, remembered in place 2,147,483,647
INTEGER = "expected an integer"


def updated(optimizer):
    mx.optimizer.get_updater(optimizer)(0, nd.ones((2,)), nd.ones((2,)))


def measured(value):
    metric = mx.metric.np(lambda label, pred: value, name="mine")
    metric.update([nd.ones((2,))], [nd.ones((2,))])


def compressed(params):
    mx.kv.create("device").set_gradient_compression(params)


CASES = {
    "step": (lambda: lr_scheduler.FactorScheduler("a"), TypeError, f"step 'a': {NUMBER}"),
    "factor": (lambda: lr_scheduler.FactorScheduler(1, "a"), TypeError, f"factor 'a': {NUMBER}"),
    "no factor": (
        lambda: lr_scheduler.FactorScheduler(1, float("nan")), ValueError, "nan: expected 0 to 1",
    ),
    "endless": (
        lambda: lr_scheduler.FactorScheduler(1)(float("inf")), ValueError,
        "num_update inf: expected a finite number",
    ),
    "base_lr": (
        lambda: lr_scheduler.FactorScheduler(1, base_lr="a"), TypeError, f"base_lr 'a': {NUMBER}",
    ),
    "frequent": (
        lambda: mx.callback.Speedometer(4, 0), ValueError, "frequent 0: expected at least 1",
    ),
    "total": (
        lambda: mx.callback.ProgressBar(0), ValueError, "total 0: expected a number greater than 0",
    ),
    "interval": (lambda: mx.mon.Monitor(0), ValueError, "interval 0: expected at least 1"),
    "rho": (lambda: HuberLoss(rho=0), ValueError, "rho 0: expected a number greater than 0"),
    "size": (lambda: CenterCrop((3, 0)), ValueError, "size .3, 0.: expected at least 1"),
    "grad_req": (
        lambda: mx.mod.Module(mx.sym.Variable("data"), label_names=None).bind(
            [("data", (1, 2))], grad_req=5
        ),
        ValueError, "grad_req 5: expected a string, a list or a dict",
    ),
    "size of batches": (
        lambda: _RowIter(np.ones((3, 2)), np.ones(3), 1.5, ("data", "label"), "float32"), TypeError,
        f"batch_size 1.5: {INTEGER}",
    ),
    "rows of gates": (
        lambda: mx.rnn.LSTMCell(3, prefix="x_").unpack_weights(
            {f"x_{g}_{k}": nd.ones((7, 3)) for g in ("i2h", "h2h") for k in ("weight", "bias")}
        ),
        ValueError, "invalid x_i2h_weight of shape .7, 3.: expected a multiple of 4 rows",
    ),
    "places of a pickle": (
        lambda: mx.optimizer.Updater(mx.optimizer.SGD()).set_states(PICKLE), ValueError,
        "invalid number 2147483647 at byte 3",
    ),
    "steps": (lambda: lr_scheduler.MultiFactorScheduler(3), TypeError, "step 3: expected a list"),
    "steps of text": (
        lambda: lr_scheduler.MultiFactorScheduler(["a"]), TypeError, f"step 'a': {NUMBER}",
    ),
    "max_update": (
        lambda: lr_scheduler.PolyScheduler("a"), TypeError, f"max_update 'a': {NUMBER}",
    ),
    "pwr": (lambda: lr_scheduler.PolyScheduler(5, pwr="a"), TypeError, f"pwr 'a': {NUMBER}"),
    "num_update": (
        lambda: lr_scheduler.CosineScheduler(5)(-1), ValueError, "num_update -1: expected at least",
    ),
    "lr_scheduler": (
        lambda: mx.optimizer.SGD(lr_scheduler=3), TypeError,
        "optimizer SGD: invalid lr_scheduler 3: expected an LRScheduler",
    ),
    "begin_num_update": (
        lambda: mx.optimizer.Adam(begin_num_update=-5), ValueError,
        "begin_num_update -5: expected at least 0",
    ),
    "rate of SGLD": (
        lambda: updated(mx.optimizer.SGLD(learning_rate=-1)), ValueError,
        "SGLD: invalid learning_rate -1.* expected at least 0",
    ),
    "iters": (lambda: mx.io.PrefetchingIter([1]), TypeError, r"iters \[1\]: expected a DataIter"),
    "data_iter": (lambda: mx.io.ResizeIter(1, 3), TypeError, "data_iter 1: expected a DataIter"),
    "sentences": (
        lambda: mx.rnn.BucketSentenceIter(3, 2), TypeError, "sentences 3: expected lists",
    ),
    "batch_size of sentences": (
        lambda: mx.rnn.BucketSentenceIter(SENTENCES, 0), ValueError, "batch_size 0: expected at",
    ),
    "bucket": (
        lambda: mx.rnn.BucketSentenceIter(SENTENCES, 2, buckets=[-1]), ValueError,
        "buckets -1: expected at least 1",
    ),
    "buckets": (
        lambda: mx.rnn.BucketSentenceIter(SENTENCES, 2, buckets=3), TypeError,
        "buckets 3: expected a list of lengths",
    ),
    "batch_size": (lambda: DataLoader([1], "4"), TypeError, f"batch_size '4': {INTEGER}"),
    "part of a batch": (lambda: DataLoader([1], 1.5), TypeError, f"batch_size 1.5: {INTEGER}"),
    "num_workers": (
        lambda: DataLoader([1], 1, num_workers="4"), TypeError, f"num_workers '4': {INTEGER}",
    ),
    "prefetch": (lambda: DataLoader([1], 1, prefetch="a"), TypeError, f"prefetch 'a': {INTEGER}"),
    "timeout": (lambda: DataLoader([1], 1, timeout="a"), TypeError, f"timeout 'a': {NUMBER}"),
    "pattern": (
        lambda: mx.init.Mixed(["("], [mx.init.One()]), ValueError,
        r"Mixed: invalid pattern '\(': expected a regular expression",
    ),
    "compression": (lambda: compressed(3), TypeError, "compression_params 3: expected a dict"),
    "type of compression": (lambda: compressed({"type": 1}), ValueError, "type 1 of gradient"),
    "threshold": (
        lambda: compressed({"type": "2bit", "threshold": "a"}),
        TypeError,
        f"threshold 'a': {NUMBER}",
    ),
    "num_batch": (
        lambda: trained().predict(batches(), num_batch="a"), TypeError, f"num_batch 'a': {NUMBER}",
    ),
    "num_batch of score": (
        lambda: trained().score(batches(), "acc", "a"), TypeError, f"num_batch 'a': {NUMBER}",
    ),
    "no value": (
        lambda: measured(None), TypeError, "metric 'mine': invalid value None of its function: exp",
    ),
    "three values": (lambda: measured((1, 2, 3)), TypeError, r"value \(1, 2, 3\) of its function"),
    "feval": (lambda: mx.metric.CustomMetric(3), TypeError, "feval 3: expected a function"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_what_does_not_fit_is_named(case):
    call, error, says = CASES[case]
    with pytest.raises(error, match=says) as caught:
        call()
    assert "invalid " in str(caught.value)


def test_a_quotient_is_a_size():
    """In Python 3 it is a float, which programs of Python 2 do not expect."""
    assert len(list(DataLoader(np.arange(8), 8 / 2))) == 2
    assert next(mx.io.NDArrayIter(np.arange(8), batch_size=8 / 2)).data[0].shape == (4,)


def test_empty_sentences_have_no_bucket_of_their_own():
    assert mx.rnn.BucketSentenceIter([[], [], [1, 2], [3, 4]], 2).buckets == [2]
