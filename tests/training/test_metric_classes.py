"""Metrics: global results of every class, and of classes that users write."""

import inspect
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rsnet as mx

rng = np.random.RandomState(0)


class Counts(mx.metric.EvalMetric):
    """A metric as programs write it: only the local sum and count."""

    def update(self, labels, preds):
        self.sum_metric += 2
        self.num_inst += 1


def test_a_composite_leaves_what_its_metrics_have_counted():
    metric = Counts("counts")
    metric.update(None, None)
    composite = mx.metric.CompositeEvalMetric([metric])
    assert composite.get() == (["counts"], [2.0])
    composite.reset()
    assert np.isnan(metric.get()[1])


def test_a_metric_without_global_counts_reports_the_local_ones():
    metric = Counts("counts")
    metric.update(None, None)
    assert metric.get_global() == metric.get() == ("counts", 2.0)
    assert metric.get_global_name_value() == [("counts", 2.0)]
    metric.reset_local()
    assert np.isnan(metric.get_global()[1])


def test_a_metric_that_counts_both_says_so():
    class Both(mx.metric.EvalMetric):
        def __init__(self):
            super().__init__("both", has_global_stats=True)

        def update(self, labels, preds):
            self.sum_metric += 2
            self.num_inst += 1
            self.global_sum_metric += 3
            self.global_num_inst += 1

    metric = Both()
    metric.update(None, None)
    assert (metric.get()[1], metric.get_global()[1]) == (2, 3)
    metric.reset_local()
    assert np.isnan(metric.get()[1]) and metric.get_global()[1] == 3


def test_speedometer_shows_values_of_such_a_metric(caplog):
    caplog.set_level(logging.INFO)
    metric, speed = Counts("counts"), mx.callback.Speedometer(1, frequent=1, auto_reset=False)
    for n in range(2):
        metric.update(None, None)
        speed(mx.callback.BatchEndParam(0, n, metric, None))
    assert caplog.messages[-1].endswith("counts=2.000000")


def scores(classes, n):
    e = np.exp(rng.randn(n, classes))
    return mx.nd.array(rng.randint(0, classes, n)), mx.nd.array(e / e.sum(1, keepdims=True))


def values(_, n):
    return mx.nd.array(rng.randn(n, 3)), mx.nd.array(rng.randn(n, 3))


CLASSES = [
    ("acc", {}, scores, 5), ("top_k_acc", {"top_k": 2}, scores, 5), ("ce", {}, scores, 5),
    ("nll_loss", {}, scores, 5), ("perplexity", {"ignore_label": 1}, scores, 5),
    ("pcc", {}, scores, 5), ("f1", {}, scores, 2), ("f1", {"average": "micro"}, scores, 2),
    ("mcc", {}, scores, 2), ("mcc", {"average": "micro"}, scores, 2), ("mae", {}, values, 0),
    ("mse", {}, values, 0), ("rmse", {}, values, 0), ("pearsonr", {}, values, 0),
    ("pearsonr", {"average": "micro"}, values, 0), ("loss", {}, values, 0),
    ("torch", {}, values, 0), ("caffe", {}, values, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "data", "classes"), CLASSES)
def test_global_value_spans_local_resets(name, options, data, classes):
    """The global value is the value of a metric that was never reset."""
    metric, whole = (mx.metric.create(name, **options) for _ in range(2))
    for n in (8, 8, 3):
        pair = data(classes, n)
        fresh = mx.metric.create(name, **options)
        for m in (metric, whole, fresh):
            m.update([pair[0]], [pair[1]])
        assert metric.get() == pytest.approx(fresh.get())
        assert metric.get_global() == pytest.approx(whole.get())
        metric.reset_local()
    assert np.isnan(metric.get()[1]) and not np.isnan(metric.get_global()[1])
    metric.reset()
    assert np.isnan(metric.get_global()[1])
    assert metric.get_config() == options | metric.get_config()


@pytest.mark.parametrize("name", [n for n in mx.metric.__all__ if n[0].isupper()])
def test_constructors_take_names_in_the_order_of_mxnet(name):
    names = list(inspect.signature(getattr(mx.metric, name).__init__).parameters)
    at = names.index("name")
    extra = ["allow_extra_outputs"] if name == "CustomMetric" else []
    assert names[at + 1 : at + 3 + len(extra)] == [*extra, "output_names", "label_names"]


def test_pcc_of_two_classes_is_mcc():
    label, pred = scores(2, 20)
    pcc, mcc = mx.metric.PCC(), mx.metric.MCC()
    for metric in (pcc, mcc):
        metric.update([label], [pred])
    assert pcc.get()[1] == pytest.approx(mcc.get()[1])


def test_pcc_grows_with_the_classes():
    metric = mx.metric.PCC()
    metric.update([mx.nd.array([0, 1])], [mx.nd.array([0, 1])])
    metric.update([mx.nd.array([5, 4])], [mx.nd.array([5, 4])])
    assert metric.get()[1] == 1.0


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.floats(-1e4, 1e4))
def test_pearson_of_all_batches(sizes, shift):
    """Merged batch by batch it is the coefficient of all pairs, far from 0 as well."""
    source = np.random.RandomState(sum(sizes))
    batches = [(source.randn(n) + shift, source.randn(n)) for n in sizes]
    metric = mx.metric.PearsonCorrelation(average="micro")
    for x, y in batches:
        metric.update([x], [y])
    x, y = (np.concatenate(part) for part in zip(*batches))
    if len(x) > 1:
        assert metric.get()[1] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-6)


def test_custom_metrics_have_no_configuration():
    with pytest.raises(NotImplementedError, match="CustomMetric"):
        mx.metric.create(lambda label, pred: 0).get_config()


def test_composite_configuration():
    config = mx.metric.create(["acc", "mse"]).get_config()
    assert [m["metric"] for m in config["metrics"]] == ["Accuracy", "MSE"]


def test_arrays_by_name():
    metric = mx.metric.MSE(output_names=["a"], label_names=["b"])
    one, two = mx.nd.array([1.0]), mx.nd.array([3.0])
    metric.update_dict({"b": one, "c": two}, {"a": two, "d": one})
    assert metric.get() == ("mse", 4.0)


def test_labels_that_are_no_number():
    """NaN is not a class: wrong in a share of rows, an error where its probability counts."""
    label, pred = mx.nd.array([0, np.nan]), mx.nd.array([[0.9, 0.1], [0.9, 0.1]])
    for name in ("acc", mx.metric.TopKAccuracy(2)):
        metric = mx.metric.create(name)
        metric.update([label], [pred])
        assert metric.get()[1] == 0.5
    with pytest.raises(IndexError, match="metric 'cross-entropy': invalid label nan: expected 0"):
        mx.metric.CrossEntropy().update([label], [pred])
    with pytest.raises(IndexError, match="invalid label 7: expected 0 to 1"):
        mx.metric.CrossEntropy().update([mx.nd.array([0, 7])], [pred])


@pytest.mark.parametrize(
    ("metric", "label", "pred", "error", "says"),
    [
        ("pcc", [np.nan], [[0.1, 0.9]], ValueError, "'pcc': invalid class nan: expected 0 to"),
        ("pcc", [1e9], [[0.1, 0.9]], ValueError, "'pcc': invalid class 1000000000"),
        ("mse", [1, 2], [1, 2, 3], ValueError, r"'mse': invalid shape of labels \(2, 1\)"),
    ],
)
def test_what_a_metric_cannot_count_is_named(metric, label, pred, error, says):
    with pytest.raises(error, match=says):
        mx.metric.create(metric).update([mx.nd.array(label)], [mx.nd.array(pred)])


def test_names_that_are_not_there():
    label, pred = {"label": mx.nd.array([1])}, {"out": mx.nd.array([[0.1, 0.9]])}
    with pytest.raises(KeyError, match="'accuracy': unknown output 'ou': expected out"):
        mx.metric.Accuracy(output_names=["ou"]).update_dict(label, pred)
    with pytest.raises(KeyError, match="unknown label 'labels': expected label"):
        mx.metric.Accuracy(label_names=["labels"]).update_dict(label, pred)
