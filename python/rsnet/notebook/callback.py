"""Callbacks of `fit` for notebooks: tables of the metrics by pandas, live charts by Bokeh.

`callback_args()` of each object gives arguments of `fit`; `args_wrapper` joins those of several:

    fit_args = args_wrapper(PandasLogger(batch_size=32), LiveLearningCurve("accuracy"))
    module.fit(batches, num_epoch=5, **fit_args)

Both packages are imported when the first object is made that needs them, and an error names the
package to install.
"""

from __future__ import annotations

import datetime
import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "LiveBokehChart",
    "LiveLearningCurve",
    "LiveTimeSeries",
    "PandasLogger",
    "args_wrapper",
]

_TABLES = ("train", "eval", "epoch")


def _needed(package: str, module: str, user: str) -> Any:
    """Imports `module`; an error that names `package` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{user}: expected the package {package} (pip install {package}): {error}"
        ) from error


def _metrics_of(param: Any) -> dict[str, Any]:
    return {} if param.eval_metric is None else dict(param.eval_metric.get_name_value())


class PandasLogger:
    """Keeps the metrics of training, of evaluation and of epochs in three `pandas.DataFrame`s.

    Rows of `train_df` and `eval_df` have the metrics, `elapsed` (a `datetime.timedelta`),
    `records_per_sec`, `batches_per_sec`, `minibatch_count` and `epoch`; rows of `epoch_df` have
    `elapsed` and `epoch_time`.

    Parameters
    ----------
    batch_size : int
        Rows of a batch, for the speed.
    frequent : int
        A row of `train_df` is written, and the metric reset, every this many batches.

    Raises
    ------
    ImportError
        pandas is not installed.
    """

    def __init__(self, batch_size: int, frequent: int = 50) -> None:
        self._pandas = _needed("pandas", "pandas", "PandasLogger")
        self.batch_size = batch_size
        self.frequent = frequent
        self._tables = {name: self._pandas.DataFrame() for name in _TABLES}
        self.start_time = datetime.datetime.now()
        self.last_time = self.last_epoch_time = self.start_time

    @property
    def train_df(self) -> Any:
        """Metrics of training, a row every `frequent` batches."""
        return self._tables["train"]

    @property
    def eval_df(self) -> Any:
        """Metrics of evaluation."""
        return self._tables["eval"]

    @property
    def epoch_df(self) -> Any:
        """The time that each epoch took."""
        return self._tables["epoch"]

    @property
    def all_dataframes(self) -> dict[str, Any]:
        """The three tables under ``train``, ``eval`` and ``epoch``."""
        return self._tables

    def elapsed(self) -> datetime.timedelta:
        """The time since the logger was made."""
        return datetime.datetime.now() - self.start_time

    def append_metrics(self, metrics: Mapping[str, Any], df_name: str) -> None:
        """Appends a row to the table `df_name`; new names become columns."""
        if df_name not in self._tables:
            raise ValueError(f"invalid df_name {df_name!r}: expected one of {', '.join(_TABLES)}")
        row = self._pandas.DataFrame([dict(metrics)])
        table = self._tables[df_name]
        whole = row if table.empty else self._pandas.concat([table, row], ignore_index=True)
        self._tables[df_name] = whole

    def train_cb(self, param: Any) -> None:
        """Batch-end callback: a row of `train_df` every `frequent` batches."""
        if param.nbatch % self.frequent == 0:
            self._append_batch(param, "train")

    def eval_cb(self, param: Any) -> None:
        """Evaluation-end callback: a row of `eval_df`."""
        self._append_batch(param, "eval")

    def epoch_cb(self, *_: Any) -> None:
        """Epoch-end callback: a row of `epoch_df`."""
        now = datetime.datetime.now()
        row = {"elapsed": self.elapsed(), "epoch_time": now - self.last_epoch_time}
        self.append_metrics(row, "epoch")
        self.last_epoch_time = now

    def _append_batch(self, param: Any, df_name: str) -> None:
        row = _metrics_of(param)
        if param.eval_metric is not None:
            param.eval_metric.reset()
        now = datetime.datetime.now()
        seconds = (now - self.last_time).total_seconds()
        batches = self.frequent / seconds if seconds > 0 else float("inf")
        row["elapsed"] = self.elapsed()
        row["records_per_sec"] = batches * self.batch_size
        row["batches_per_sec"] = batches
        row["minibatch_count"] = param.nbatch
        row["epoch"] = param.epoch
        self.append_metrics(row, df_name)
        self.last_time = now

    def callback_args(self) -> dict[str, Callable[..., None]]:
        """The callbacks as arguments of `fit`."""
        return {
            "batch_end_callback": self.train_cb,
            "eval_end_callback": self.eval_cb,
            "epoch_end_callback": self.epoch_cb,
        }


class _LiveChart:
    """A Bokeh figure in a notebook that is redrawn at most every `display_freq` seconds."""

    def __init__(self, display_freq: float = 10) -> None:
        user = type(self).__name__
        self._io = _needed("bokeh", "bokeh.io", user)
        self._plotting = _needed("bokeh", "bokeh.plotting", user)
        self.display_freq = display_freq
        self.last_update = time.time()
        self._io.output_notebook(hide_banner=True)
        self.fig: Any = self.setup_chart()
        self.handle = self._io.show(self.fig, notebook_handle=True)

    def setup_chart(self) -> Any:
        """Makes the figure."""
        raise NotImplementedError(f"{type(self).__name__} does not define setup_chart")

    def update_chart_data(self) -> None:
        """Gives the figure the newest data."""
        raise NotImplementedError(f"{type(self).__name__} does not define update_chart_data")

    def interval_elapsed(self) -> bool:
        """Whether `display_freq` seconds have passed since the chart was drawn."""
        return time.time() - self.last_update > self.display_freq

    def _redraw(self) -> None:
        self.update_chart_data()
        if self.handle is not None:  # None outside of a notebook
            self._io.push_notebook(handle=self.handle)
        self.last_update = time.time()

    def batch_cb(self, param: Any) -> None:
        """Batch-end callback: redraws if it is time."""
        if self.interval_elapsed():
            self._redraw()

    def eval_cb(self, param: Any) -> None:
        """Evaluation-end callback: redraws, so that what is shown last is whole."""
        self._redraw()

    def callback_args(self) -> dict[str, Callable[..., None]]:
        """The callbacks as arguments of `fit`."""
        return {"batch_end_callback": self.batch_cb, "eval_end_callback": self.eval_cb}


class _MetricChart(_LiveChart):
    """A chart of one metric, of training and of evaluation, over the time of training."""

    metric_name: str

    def setup_chart(self) -> Any:
        fig = self._plotting.figure(x_axis_label="Training time (s)", y_axis_label=self.metric_name)
        self._lines = {
            "train": fig.line([], [], line_dash="dotted", alpha=0.3, legend_label="train"),
            "eval": fig.line([], [], line_width=2, color="green", legend_label="validation"),
        }
        fig.legend.location = "bottom_right"
        return fig


class LiveBokehChart(_MetricChart):
    """A chart of one metric of a `PandasLogger`, over the time of training.

    A subclass may draw something else by `setup_chart` and `update_chart_data`.

    Parameters
    ----------
    pandas_logger : PandasLogger or None
        Where the numbers come from; with None a logger is made from `batch_size` and `frequent`,
        and its callbacks are among `callback_args`.
    metric_name : str
        Column of the logger's tables.
    display_freq : float
        Seconds between drawings.
    batch_size, frequent : int
        Of the logger that is made.

    Raises
    ------
    ImportError
        Bokeh or pandas is not installed.
    """

    def __init__(
        self,
        pandas_logger: PandasLogger | None,
        metric_name: str,
        display_freq: float = 10,
        batch_size: int | None = None,
        frequent: int = 50,
    ) -> None:
        self._own = pandas_logger is None
        if pandas_logger is None:
            if batch_size is None:
                raise ValueError("invalid batch_size None: expected a number, or a pandas_logger")
            pandas_logger = PandasLogger(batch_size=batch_size, frequent=frequent)
        self.pandas_logger = pandas_logger
        self.metric_name = metric_name
        super().__init__(display_freq)

    def update_chart_data(self) -> None:
        for name, line in self._lines.items():
            table = self.pandas_logger.all_dataframes[name]
            if self.metric_name in table:
                seconds = [value.total_seconds() for value in table["elapsed"]]
                line.data_source.data = {"x": seconds, "y": list(table[self.metric_name])}

    def callback_args(self) -> dict[str, Any]:
        mine = super().callback_args()
        return args_wrapper(self.pandas_logger, mine) if self._own else mine


class LiveTimeSeries(_LiveChart):
    """A chart of numbers that a program hands over one by one.

    Parameters
    ----------
    **fig_params
        Of `bokeh.plotting.figure`.

    Raises
    ------
    ImportError
        Bokeh is not installed.
    """

    def __init__(self, **fig_params: Any) -> None:
        self.fig_params = fig_params
        self.start_time = datetime.datetime.now()
        self.x_axis_val: list[float] = []
        self.y_axis_val: list[float] = []
        super().__init__(display_freq=0)

    def elapsed(self) -> float:
        """Seconds since the chart was made."""
        return (datetime.datetime.now() - self.start_time).total_seconds()

    def setup_chart(self) -> Any:
        fig = self._plotting.figure(x_axis_label="Elapsed time (s)", **self.fig_params)
        self._line = fig.line([], [])
        return fig

    def update_chart_data(self, value: float | None = None) -> None:
        """Appends a number, if one is given, and draws it."""
        if value is None:
            return
        self.x_axis_val.append(self.elapsed())
        self.y_axis_val.append(value)
        self._line.data_source.data = {"x": self.x_axis_val, "y": self.y_axis_val}
        if self.handle is not None:
            self._io.push_notebook(handle=self.handle)


class LiveLearningCurve(_MetricChart):
    """A chart of a metric of training and evaluation over time, without pandas.

    Parameters
    ----------
    metric_name : str
    display_freq : float
        Seconds between drawings.
    frequent : int
        A point is drawn every this many batches of training.

    Raises
    ------
    ImportError
        Bokeh is not installed.
    """

    def __init__(self, metric_name: str, display_freq: float = 10, frequent: int = 50) -> None:
        self.metric_name = metric_name
        self.frequent = frequent
        self.start_time = datetime.datetime.now()
        self._data: dict[str, dict[str, list[float]]] = {
            name: {"x": [], "y": []} for name in ("train", "eval")
        }
        super().__init__(display_freq)

    def update_chart_data(self) -> None:
        for name, line in self._lines.items():
            line.data_source.data = {axis: list(v) for axis, v in self._data[name].items()}

    def batch_cb(self, param: Any) -> None:
        if param.nbatch % self.frequent == 0:
            self._append(param, "train")
        super().batch_cb(param)

    def eval_cb(self, param: Any) -> None:
        self._append(param, "eval")
        super().eval_cb(param)

    def _append(self, param: Any, name: str) -> None:
        metrics = _metrics_of(param)
        if not metrics:
            return
        if self.metric_name not in metrics:
            raise ValueError(
                f"LiveLearningCurve: invalid metric_name {self.metric_name!r}: expected one of "
                f"{', '.join(metrics)}"
            )
        elapsed = datetime.datetime.now() - self.start_time
        self._data[name]["x"].append(elapsed.total_seconds())
        self._data[name]["y"].append(metrics[self.metric_name])
        param.eval_metric.reset()


def args_wrapper(*args: Any) -> dict[str, list[Callable[..., None]]]:
    """Joins the `callback_args` of several objects into arguments of one `fit`.

    Parameters
    ----------
    *args
        Objects with `callback_args`, or what it returns.

    Examples
    --------
    >>> args_wrapper({"batch_end_callback": print}, {"batch_end_callback": repr})
    {'batch_end_callback': [<built-in function print>, <built-in function repr>]}
    """
    joined: dict[str, list[Callable[..., None]]] = {}
    for arg in args:
        given = arg if isinstance(arg, Mapping) else arg.callback_args()
        for name, callback in given.items():
            several = callback if isinstance(callback, list) else [callback]
            joined.setdefault(name, []).extend(several)
    return joined
