"""Metrics of classifiers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace

import numpy

from .._numbers import check_number, integer
from .base import PairMetric, ScoreOfBatches, check_label_shapes, checked_average, register

__all__ = [
    "Accuracy",
    "CrossEntropy",
    "F1",
    "MCC",
    "NegativeLogLikelihood",
    "PCC",
    "Perplexity",
    "TopKAccuracy",
]


#: The matrix of so many classes has as many columns and rows, and takes 2 GB.
_MAX_CLASSES = 1 << 14


def _as_integers(values: numpy.ndarray, dtype: str = "int64") -> numpy.ndarray:
    """Labels or predictions as numbers of classes; NaN and infinity become no class."""
    with numpy.errstate(invalid="ignore"):
        return values.astype(dtype).ravel()


@register("acc")
class Accuracy(PairMetric):
    """Share of correct classes. A prediction of another shape than its label is argmaxed over
    `axis`.

    Example
    -------
    >>> metric = Accuracy()
    >>> metric.update([numpy.array([1, 0])], [numpy.array([[0.2, 0.8], [0.3, 0.7]])])
    >>> metric.get()
    ('accuracy', 0.5)
    """

    def __init__(
        self,
        axis: int = 1,
        name: str = "accuracy",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        self.axis = axis
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        if pred.shape != label.shape:
            pred = pred.argmax(self.axis)
        label, pred = _as_integers(label, "int32"), _as_integers(pred, "int32")
        check_label_shapes(label, pred)
        self._add(int((label == pred).sum()), label.size)


@register("top_k_accuracy", "top_k_acc")
class TopKAccuracy(PairMetric):
    """Share of rows whose label is among the `top_k` largest predictions (N, C)."""

    def __init__(
        self,
        top_k: int = 1,
        name: str = "top_k_accuracy",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        if integer("top_k", top_k) <= 1:
            raise ValueError(f"invalid top_k {top_k}: expected more than 1 (use Accuracy)")
        self.top_k = top_k
        super().__init__(
            f"{name}_{top_k}", output_names, label_names, top_k=top_k, has_global_stats=True
        )

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        label = _as_integers(label, "int32")
        if pred.ndim != 2:
            raise ValueError(
                f"TopKAccuracy: invalid shape of predictions {pred.shape}: expected (N, C)"
            )
        check_label_shapes(label, pred)
        # Which of equal scores count is up to NumPy, as in MXNet.
        k = min(self.top_k, pred.shape[1])
        best = numpy.argpartition(pred.astype("float32"), -k)[:, pred.shape[1] - k :]
        self._add(int((best == label[:, None]).sum()), label.size)


@register("ce")
class CrossEntropy(PairMetric):
    """Mean of -log(p[label] + eps) over rows of probabilities (N, C)."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "cross-entropy",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        check_number("eps", eps)
        self.eps = eps
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        given, label = label.ravel(), _as_integers(label)
        check_label_shapes(label, pred)
        classes = pred.shape[-1]
        wrong = given[(label < -classes) | (label >= classes)]
        if wrong.size:
            raise IndexError(
                f"metric '{self.name}': invalid label {wrong[0]:.17g}: expected 0 to "
                f"{classes - 1}, or -1 to {-classes} for the last ones"
            )
        chosen = pred[numpy.arange(label.size), label]
        self._add(float(-numpy.log(chosen + self.eps).sum()), label.size)


@register("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """Mean of -log(p[label] + eps) over rows of probabilities (N, C), under another name."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "nll-loss",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(eps, name, output_names, label_names)


@register()
class Perplexity(PairMetric):
    """exp of the mean of -log(max(1e-10, p[label])), p along `axis`; `ignore_label` does not count.

    Example
    -------
    >>> metric = Perplexity(ignore_label=None)
    >>> metric.update([numpy.array([0, 1])], [numpy.array([[0.25, 0.75], [0.75, 0.25]])])
    >>> round(float(metric.get()[1]), 6)
    4.0
    """

    def __init__(
        self,
        ignore_label: int | None = None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        self.ignore_label = ignore_label
        self.axis = axis
        super().__init__(
            name,
            output_names,
            label_names,
            ignore_label=ignore_label,
            axis=axis,
            has_global_stats=True,
        )

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        pred = numpy.moveaxis(pred, self.axis, -1)
        label = _as_integers(label)
        rows = pred.reshape(-1, pred.shape[-1])
        check_label_shapes(label, rows)
        kept = slice(None) if self.ignore_label is None else label != self.ignore_label
        label, rows = label[kept], rows[kept]
        # As in MXNet, a label that is not a class counts as the nearest one.
        chosen = rows[numpy.arange(label.size), label.clip(0, rows.shape[-1] - 1)]
        self._add(float(-numpy.log(numpy.maximum(1e-10, chosen)).sum()), label.size)

    def _value(self, total: float, count: int) -> float:
        return math.exp(total / count) if count else float("nan")


class _Confusion(ScoreOfBatches):
    """A score of the confusion matrix `counts[label, prediction]`."""

    def _nothing(self) -> numpy.ndarray:
        return numpy.zeros((2, 2))

    def _count(self, label: numpy.ndarray, pred: numpy.ndarray) -> numpy.ndarray:
        """Adds a batch to the matrices, enlarged to its largest class; returns its own matrix."""
        size = 1 + int(max(label.max(initial=1), pred.max(initial=1)))
        counts = numpy.zeros((size, size))
        numpy.add.at(counts, (label, pred), 1)
        self._seen = _sum(self._seen, counts)
        self._all_seen = _sum(self._all_seen, counts)
        return counts


def _sum(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    """The sum of two square matrices, the smaller one padded with zeros."""
    size = max(len(a), len(b))
    return numpy.asarray(sum(numpy.pad(m, (0, size - len(m))) for m in (a, b)))


def _by_name(counts: numpy.ndarray, prefix: str) -> dict[str, float]:
    """The four counts of a binary classification, and what follows from them."""
    (tn, fp), (fn, tp) = counts.astype(int).tolist()
    found = {
        "true_positives": tp,
        "false_negatives": fn,
        "false_positives": fp,
        "true_negatives": tn,
        "total_examples": tp + fn + fp + tn,
        "precision": tp / (tp + fp) if tp + fp else 0.0,
        "recall": tp / (tp + fn) if tp + fn else 0.0,
        "fscore": 2 * tp / (2 * tp + fp + fn) if tp else 0.0,
    }
    return {prefix + name: value for name, value in found.items()}


class _Binary(_Confusion):
    """A score of the four counts of a binary classification, 1 being the positive class.

    Predictions have the probabilities of both classes (N, 2). `average` is "macro" (the mean of the
    batches' scores) or "micro" (the score of all counts).
    """

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | None,
        label_names: Sequence[str] | None,
        average: str,
    ) -> None:
        self.average = checked_average(average)
        super().__init__(name, output_names, label_names, average=average, has_global_stats=True)

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        label = _as_integers(label)
        check_label_shapes(label, pred)
        wrong = label[(label < 0) | (label > 1)]
        if wrong.size:
            raise ValueError(f"metric '{self.name}': invalid label {wrong[0]}: expected 0 or 1")
        if pred.ndim != 2 or pred.shape[1] > 2:
            raise ValueError(
                f"metric '{self.name}': invalid shape of predictions {pred.shape}: expected (N, 2)"
            )
        # A batch is an instance: `micro` replaces the sum of scores by the score of all counts.
        self._add(self._score(self._count(label, pred.argmax(1))), 1)

    @property
    def metrics(self) -> SimpleNamespace:
        """Counts since `reset_local`, and since `reset` as ``global_...``: `true_positives`,
        `false_negatives`, `false_positives`, `true_negatives`, `total_examples`, `precision`,
        `recall`, `fscore`.
        """
        return SimpleNamespace(**_by_name(self._seen, ""), **_by_name(self._all_seen, "global_"))


@register()
class F1(_Binary):
    """2 * precision * recall / (precision + recall) of a binary classification; 0 where undefined.

    Example
    -------
    >>> metric = F1()
    >>> pred = numpy.array([[0.3, 0.7], [0.4, 0.6], [0.9, 0.1]])
    >>> metric.update([numpy.array([1, 0, 0])], [pred])
    >>> round(metric.get()[1], 4)
    0.6667
    """

    def __init__(
        self,
        name: str = "f1",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    def _score(self, counts: numpy.ndarray) -> float:
        both = counts[0, 1] + counts[1, 0] + 2 * counts[1, 1]
        return float(2 * counts[1, 1] / both) if both else 0.0


@register()
class MCC(_Binary):
    """Matthews' correlation of labels and predictions of a binary classification, -1 to 1."""

    def __init__(
        self,
        name: str = "mcc",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    def _score(self, counts: numpy.ndarray) -> float:
        # Sums of rows and columns; one that is 0 counts as 1.
        sums = numpy.concatenate([counts.sum(0), counts.sum(1)])
        divisor = math.sqrt(numpy.where(sums == 0, 1, sums).prod())
        return float((counts[0, 0] * counts[1, 1] - counts[0, 1] * counts[1, 0]) / divisor)


@register()
class PCC(_Confusion):
    """Correlation of labels and predicted classes, -1 to 1: MCC for any number of classes.

    Computed from the confusion matrix of all instances (Gorodkin, Comput. Biol. Chem. 28, 2004).

    Example
    -------
    >>> metric = PCC()
    >>> metric.update([numpy.array([0, 1, 2, 2])], [numpy.array([0, 1, 2, 1])])
    >>> round(metric.get()[1], 4)
    0.7
    """

    def __init__(
        self,
        name: str = "pcc",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        has_global_stats: bool = True,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=has_global_stats)

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        if pred.shape != label.shape:
            pred = pred.argmax(1)
        given = numpy.concatenate([label.ravel(), pred.ravel()])
        label, pred = _as_integers(label), _as_integers(pred)
        check_label_shapes(label, pred)
        classes = numpy.concatenate([label, pred])
        wrong = given[(classes < 0) | (classes >= _MAX_CLASSES)]
        if wrong.size:
            raise ValueError(
                f"metric '{self.name}': invalid class {wrong[0]:.17g}: expected 0 to "
                f"{_MAX_CLASSES - 1}"
            )
        self._count(label, pred)
        self._add(0.0, 1)

    def _score(self, counts: numpy.ndarray) -> float:
        total = counts.sum()
        rows, cols = counts.sum(1), counts.sum(0)
        divisor = math.sqrt((total**2 - cols @ cols) * (total**2 - rows @ rows))
        covariance = total * numpy.trace(counts) - rows @ cols
        return float(covariance / divisor) if divisor else float("nan")
