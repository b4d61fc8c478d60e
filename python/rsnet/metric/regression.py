"""Metrics of regression, and the mean of a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from .base import (
    EvalMetric,
    PairMetric,
    ScoreOfBatches,
    check_label_shapes,
    checked_average,
    host,
    register,
)

__all__ = ["Caffe", "Loss", "MAE", "MSE", "PearsonCorrelation", "RMSE", "Torch"]


class _Regression(PairMetric):
    """Mean over batches of an error of (N, 1) or (N, ...) arrays."""

    def _error(self, label: numpy.ndarray, pred: numpy.ndarray) -> float:
        raise NotImplementedError

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        label = label.reshape(-1, 1) if label.ndim == 1 else label
        pred = pred.reshape(-1, 1) if pred.ndim == 1 else pred
        try:
            numpy.broadcast_shapes(label.shape, pred.shape)
        except ValueError:
            raise ValueError(
                f"metric '{self.name}': invalid shape of labels {label.shape}: expected "
                f"{pred.shape}, as of the predictions"
            ) from None
        self._add(float(self._error(label, pred)), 1)


@register()
class MAE(_Regression):
    """Mean absolute error."""

    def __init__(
        self,
        name: str = "mae",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def _error(self, label: numpy.ndarray, pred: numpy.ndarray) -> float:
        return float(numpy.abs(label - pred).mean())


@register()
class MSE(_Regression):
    """Mean squared error."""

    def __init__(
        self,
        name: str = "mse",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def _error(self, label: numpy.ndarray, pred: numpy.ndarray) -> float:
        return float(((label - pred) ** 2).mean())


@register()
class RMSE(_Regression):
    """Root of the mean squared error, a batch at a time."""

    def __init__(
        self,
        name: str = "rmse",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def _error(self, label: numpy.ndarray, pred: numpy.ndarray) -> float:
        return float(numpy.sqrt(((label - pred) ** 2).mean()))


class _Moments:
    """Number, means and central second moments of pairs, merged batch by batch.

    The merge is that of Chan, Golub and LeVeque (1979), which does not cancel.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean = numpy.zeros(2)
        self._moments = numpy.zeros((2, 2))

    def add(self, x: numpy.ndarray, y: numpy.ndarray) -> None:
        """Adds the pairs of `x` and `y`."""
        pairs = numpy.stack([x, y]).astype("float64")
        count = pairs.shape[1]
        if count == 0:
            return
        mean = pairs.mean(1)
        centred = pairs - mean[:, None]
        shift, total = mean - self._mean, self._count + count
        self._moments += centred @ centred.T
        self._moments += numpy.outer(shift, shift) * (self._count * count / total)
        self._mean += shift * (count / total)
        self._count = total

    def correlation(self) -> float:
        """Pearson's coefficient; nan where a variance is 0."""
        (xx, xy), (_, yy) = self._moments
        return float(xy / numpy.sqrt(xx * yy)) if xx > 0 and yy > 0 else float("nan")


@register("pearsonr")
class PearsonCorrelation(ScoreOfBatches):
    """Pearson's correlation of labels and predictions.

    `average` is "macro" (the mean of the batches' coefficients) or "micro" (the coefficient of all
    pairs).

    Example
    -------
    >>> metric = PearsonCorrelation()
    >>> metric.update([numpy.array([1.0, 2.0, 3.0])], [numpy.array([1.0, 3.0, 2.0])])
    >>> round(metric.get()[1], 6)
    0.5
    """

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        average: str = "macro",
    ) -> None:
        self.average = checked_average(average)
        super().__init__(name, output_names, label_names, average=average, has_global_stats=True)

    def _nothing(self) -> _Moments:
        return _Moments()

    def _score(self, seen: _Moments) -> float:
        return seen.correlation()

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        check_label_shapes(label, pred, shape=True)
        batch = _Moments()
        for moments in (batch, self._seen, self._all_seen):
            moments.add(label.ravel(), pred.ravel())
        self._add(batch.correlation(), 1)


@register()
class Loss(EvalMetric):
    """Mean of the predictions themselves, for networks that end in a loss; labels are ignored."""

    def __init__(
        self,
        name: str = "loss",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, labels: Any, preds: Any) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            pred = host(pred)
            self._add(float(pred.sum()), pred.size)


@register()
class Torch(Loss):
    """`Loss` under the name that programs with Torch criteria use."""

    def __init__(
        self,
        name: str = "torch",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, output_names, label_names)


@register()
class Caffe(Loss):
    """`Loss` under the name that programs with Caffe criteria use."""

    def __init__(
        self,
        name: str = "caffe",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, output_names, label_names)
