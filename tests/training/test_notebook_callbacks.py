"""Tables and live charts of `fit`, with pandas and Bokeh where they are installed."""

import importlib
import sys

import numpy as np
import pytest

import rsnet as mx
from rsnet.notebook import callback


def fitted(*loggers, **options):
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    y = (x[:, 0] > 0).astype("float32")
    data = mx.io.NDArrayIter(x, y, batch_size=8)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    module.fit(
        data,
        mx.io.NDArrayIter(x, y, batch_size=8),
        num_epoch=2,
        **callback.args_wrapper(*loggers),
        **options,
    )


@pytest.mark.parametrize(
    ("make", "package"),
    [
        (lambda: callback.PandasLogger(8), "pandas"),
        (lambda: callback.LiveLearningCurve("accuracy"), "bokeh"),
        (lambda: callback.LiveTimeSeries(), "bokeh"),
        (lambda: callback.LiveBokehChart(object(), "accuracy"), "bokeh"),
    ],
)
def test_an_absent_package_is_named(make, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for name in [n for n in sys.modules if n.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=rf"expected the package {package} \(pip install"):
        make()


class Recorder:
    """Counts the calls of each callback."""

    def __init__(self):
        self.calls = {"batch_end_callback": 0, "eval_end_callback": 0, "epoch_end_callback": 0}

    def callback_args(self):
        def counter(name):
            def count(*_):
                self.calls[name] += 1

            return count

        return {name: counter(name) for name in self.calls}


def test_callbacks_of_several_objects_are_joined():
    one, two = Recorder(), Recorder()
    fitted(one, two.callback_args())
    assert one.calls == two.calls
    assert one.calls == {"batch_end_callback": 16, "eval_end_callback": 2, "epoch_end_callback": 2}


def test_pandas_logger_keeps_a_row_for_every_few_batches():
    pytest.importorskip("pandas")
    logger = callback.PandasLogger(batch_size=8, frequent=4)
    fitted(logger)
    assert logger.train_df["minibatch_count"].tolist() == [0, 4, 0, 4]
    assert logger.train_df["epoch"].tolist() == [0, 0, 1, 1]
    assert logger.train_df["accuracy"].between(0, 1).all()
    ratio = logger.train_df["records_per_sec"] / logger.train_df["batches_per_sec"]
    assert ratio.round(6).eq(8).all()
    assert len(logger.eval_df) == len(logger.epoch_df) == 2
    assert set(logger.all_dataframes) == {"train", "eval", "epoch"}
    with pytest.raises(ValueError, match="invalid df_name 'test'"):
        logger.append_metrics({}, "test")


@pytest.fixture
def bokeh(monkeypatch):
    """Bokeh without a notebook: figures are made, nothing is shown."""
    io = pytest.importorskip("bokeh.io")
    shown = []
    monkeypatch.setattr(io, "output_notebook", lambda **_: None)
    monkeypatch.setattr(io, "show", lambda fig, **_: "handle")
    monkeypatch.setattr(io, "push_notebook", lambda handle: shown.append(handle))
    return shown


def test_a_learning_curve_gets_points_of_training_and_evaluation(bokeh):
    curve = callback.LiveLearningCurve("accuracy", display_freq=1e9, frequent=2)
    fitted(curve)
    train, evaluation = (line.data_source.data for line in curve._lines.values())
    assert len(train["x"]) == len(train["y"]) == 8
    assert len(evaluation["y"]) == 2 and all(0 <= value <= 1 for value in evaluation["y"])
    assert bokeh == ["handle"] * 2  # at each end of an epoch
    with pytest.raises(ValueError, match="invalid metric_name 'f1': expected one of accuracy"):
        fitted(callback.LiveLearningCurve("f1"))


def test_a_chart_shows_a_column_of_a_logger(bokeh):
    pytest.importorskip("pandas")
    chart = callback.LiveBokehChart(None, "accuracy", batch_size=8, frequent=2)
    fitted(chart)
    assert len(chart._lines["train"].data_source.data["y"]) == 8
    assert len(chart._lines["eval"].data_source.data["y"]) == 2
    with pytest.raises(ValueError, match="invalid batch_size None"):
        callback.LiveBokehChart(None, "accuracy")


def test_a_time_series_gets_number_by_number(bokeh):
    series = callback.LiveTimeSeries()
    for value in (3, 1, 2):
        series.update_chart_data(value)
    assert series._line.data_source.data["y"] == [3, 1, 2] and bokeh == ["handle"] * 3


def test_the_module_is_found_under_its_old_path():
    assert importlib.import_module("rsnet.notebook.callback") is mx.notebook.callback
