"""A callback that writes metrics for TensorBoard, by a writer that is installed."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["LogMetricsCallback"]

#: Modules with a class `SummaryWriter`, in the order in which they are tried.
WRITERS = ("tensorboardX", "torch.utils.tensorboard", "mxboard")


def _writer(logging_dir: str) -> Any:
    broken = ""
    for name in WRITERS:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            if error.name not in (name, name.partition(".")[0]):  # it lacks a package itself
                broken += f"; {name} cannot be imported: {error}"
            continue
        return module.SummaryWriter(logging_dir)
    raise ImportError(
        f"LogMetricsCallback: expected a package that writes TensorBoard's files, one of: "
        f"{', '.join(WRITERS)} (pip install tensorboardX){broken}"
    )


class LogMetricsCallback:
    """Batch-end or evaluation-end callback that writes the values of the metric.

    Parameters
    ----------
    logging_dir : str
        Folder of TensorBoard's files.
    prefix : str, optional
        Begins the names of the values, followed by "-".

    Raises
    ------
    ImportError
        No writer is installed.
    """

    def __init__(self, logging_dir: str, prefix: str | None = None) -> None:
        self.prefix = prefix
        self.step = 0
        self.summary_writer = _writer(logging_dir)

    def __call__(self, param: Any) -> None:
        """Writes the values under the number of the call."""
        self.step += 1
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            full = name if self.prefix is None else f"{self.prefix}-{name}"
            self.summary_writer.add_scalar(full, value, self.step)
