"""Metrics: running averages of how good predictions are.

Each metric keeps a local pair (sum, count), which `reset_local` clears, and a global one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from ._class_registry import register_class

__all__ = [
    "EvalMetric",
    "CompositeEvalMetric",
    "Accuracy",
    "TopKAccuracy",
    "MAE",
    "MSE",
    "RMSE",
    "CrossEntropy",
    "NegativeLogLikelihood",
    "Perplexity",
    "F1",
    "MCC",
    "Loss",
    "CustomMetric",
    "create",
    "register",
    "np",
    "check_label_shapes",
]

_REGISTRY: dict[str, type[EvalMetric]] = {}


def register(*aliases: Any) -> Any:
    """Class decorator: makes a metric known to `create` by its lower-case name and `aliases`.

    Bare (``@register``), or with aliases (``@register("acc")``).
    """
    return register_class(_REGISTRY, aliases)


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from an instance, a name, a function `f(label, pred)` or a list of these.

    Raises
    ------
    ValueError
        If no metric has that name.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, list):
        composite = CompositeEvalMetric()
        for one in metric:
            composite.add(create(one, *args, **kwargs))
        return composite
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    if metric.lower() not in _REGISTRY:
        raise ValueError(
            f"{metric} is not registered. Please register with metric.register first; known are "
            + ", ".join(sorted(_REGISTRY))
        )
    return _REGISTRY[metric.lower()](*args, **kwargs)


def _host(x: Any) -> numpy.ndarray:
    return x.asnumpy() if hasattr(x, "asnumpy") else numpy.asarray(x)


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> Any:
    """Checks that there are as many labels as predictions (equal shapes with `shape`).

    Raises
    ------
    ValueError
        If not.
    """
    mine = labels.shape if shape else len(labels)
    theirs = preds.shape if shape else len(preds)
    if mine != theirs:
        raise ValueError(f"Shape of labels {mine} does not match shape of predictions {theirs}")
    if wrap:
        labels = labels if isinstance(labels, (list, tuple)) else [labels]
        preds = preds if isinstance(preds, (list, tuple)) else [preds]
    return labels, preds


class EvalMetric:
    """Base: a subclass defines `update(labels, preds)` and calls `_add` with a sum and a count."""

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def reset(self) -> None:
        """Forgets everything."""
        self.sum_metric = 0.0
        self.num_inst = 0
        self.global_sum_metric = 0.0
        self.global_num_inst = 0

    def reset_local(self) -> None:
        """Forgets what `get` reports, not what `get_global` does."""
        self.sum_metric = 0.0
        self.num_inst = 0

    def _add(self, total: float, count: int) -> None:
        self.sum_metric += total
        self.num_inst += count
        self.global_sum_metric += total
        self.global_num_inst += count

    def update(self, labels: Any, preds: Any) -> None:
        """Counts a batch: lists of label and prediction arrays."""
        raise NotImplementedError(f"{type(self).__name__} defines no update")

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        """`update` with the arrays that `label_names` and `output_names` select."""
        preds = [pred[n] for n in self.output_names] if self.output_names else list(pred.values())
        labels = [label[n] for n in self.label_names] if self.label_names else list(label.values())
        self.update(labels, preds)

    def _value(self, total: float, count: int) -> float:
        return total / count if count else float("nan")

    def get(self) -> tuple[Any, Any]:
        """(name, value since the last `reset_local`); nan when nothing was counted."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """(name, value since the last `reset`)."""
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    @staticmethod
    def _pairs(name: Any, value: Any) -> list[tuple[str, float]]:
        return list(zip(name, value, strict=True)) if isinstance(name, list) else [(name, value)]

    def get_name_value(self) -> list[tuple[str, float]]:
        """`get` as a list of pairs."""
        return self._pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """`get_global` as a list of pairs."""
        return self._pairs(*self.get_global())


@register("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics at once; `get` returns lists."""

    def __init__(
        self, metrics: Sequence[Any] | None = None, name: str = "composite", **kwargs: Any
    ) -> None:
        self.metrics = [create(m) for m in metrics or []]
        super().__init__(name, **kwargs)

    def add(self, metric: Any) -> None:
        """Appends a metric, or what `create` takes."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """Metric number `index`."""
        return self.metrics[index]

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[Any, Any]:
        pairs = [p for m in self.metrics for p in m.get_name_value()]
        return [n for n, _ in pairs], [v for _, v in pairs]

    def get_global(self) -> tuple[Any, Any]:
        pairs = [p for m in self.metrics for p in m.get_global_name_value()]
        return [n for n, _ in pairs], [v for _, v in pairs]


@register("acc")
class Accuracy(EvalMetric):
    """Share of right classes. A prediction of another shape than its label is argmaxed over `axis`.

    Example
    -------
    >>> metric = Accuracy()
    >>> metric.update([numpy.array([1, 0])], [numpy.array([[0.2, 0.8], [0.3, 0.7]])])
    >>> metric.get()
    ('accuracy', 0.5)
    """

    def __init__(self, axis: int = 1, name: str = "accuracy", **kwargs: Any) -> None:
        self.axis = axis
        super().__init__(name, **kwargs)

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=True):
            label, pred = _host(label), _host(pred)
            if pred.shape != label.shape:
                pred = pred.argmax(self.axis)
            label, pred = label.astype("int32").ravel(), pred.astype("int32").ravel()
            check_label_shapes(label, pred)
            self._add(int((label == pred).sum()), label.size)


@register("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """Share of rows whose label is among the `top_k` largest predictions (N, C)."""

    def __init__(self, top_k: int = 1, name: str = "top_k_accuracy", **kwargs: Any) -> None:
        if top_k <= 1:
            raise ValueError(f"top_k is {top_k}, expected more than 1 (use Accuracy)")
        self.top_k = top_k
        super().__init__(f"{name}_{top_k}", **kwargs)

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=True):
            label, pred = _host(label).astype("int32").ravel(), _host(pred)
            best = numpy.argsort(-pred, axis=1, kind="stable")[:, : self.top_k]
            self._add(int((best == label[:, None]).sum()), label.size)


class _Regression(EvalMetric):
    """Mean over batches of an error of (N, 1) or (N, ...) arrays."""

    def _error(self, label: numpy.ndarray, pred: numpy.ndarray) -> float:
        raise NotImplementedError

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=True):
            label, pred = _host(label), _host(pred)
            label = label.reshape(-1, 1) if label.ndim == 1 else label
            pred = pred.reshape(-1, 1) if pred.ndim == 1 else pred
            self._add(float(self._error(label, pred)), 1)


@register()
class MAE(_Regression):
    """Mean absolute error."""

    def __init__(self, name: str = "mae", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def _error(self, label: numpy.ndarray, pred: numpy.ndarray) -> float:
        return numpy.abs(label - pred).mean()


@register()
class MSE(_Regression):
    """Mean squared error."""

    def __init__(self, name: str = "mse", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def _error(self, label: numpy.ndarray, pred: numpy.ndarray) -> float:
        return ((label - pred) ** 2).mean()


@register()
class RMSE(_Regression):
    """Root of the mean squared error, a batch at a time."""

    def __init__(self, name: str = "rmse", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def _error(self, label: numpy.ndarray, pred: numpy.ndarray) -> float:
        return numpy.sqrt(((label - pred) ** 2).mean())


@register("ce")
class CrossEntropy(EvalMetric):
    """Mean of -log(p[label] + eps) over rows of probabilities (N, C)."""

    def __init__(self, eps: float = 1e-12, name: str = "cross-entropy", **kwargs: Any) -> None:
        self.eps = eps
        super().__init__(name, **kwargs)

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=True):
            label, pred = _host(label).astype("int64").ravel(), _host(pred)
            check_label_shapes(label, pred)
            chosen = pred[numpy.arange(label.size), label]
            self._add(float(-numpy.log(chosen + self.eps).sum()), label.size)


@register("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """Mean of -log(p[label] + eps) over rows of probabilities (N, C), under another name."""

    def __init__(self, eps: float = 1e-12, name: str = "nll-loss", **kwargs: Any) -> None:
        super().__init__(eps, name, **kwargs)


@register()
class Perplexity(EvalMetric):
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
        **kwargs: Any,
    ) -> None:
        self.ignore_label = ignore_label
        self.axis = axis
        super().__init__(name, **kwargs)

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=True):
            pred = numpy.moveaxis(_host(pred), self.axis, -1)
            label = _host(label).astype("int64").ravel()
            rows = pred.reshape(-1, pred.shape[-1])
            check_label_shapes(label, rows)
            kept = slice(None) if self.ignore_label is None else label != self.ignore_label
            label, rows = label[kept], rows[kept]
            chosen = rows[numpy.arange(label.size), label]
            self._add(float(-numpy.log(numpy.maximum(1e-10, chosen)).sum()), label.size)

    def _value(self, total: float, count: int) -> float:
        return math.exp(total / count) if count else float("nan")


class _Binary(EvalMetric):
    """A score of the four counts of a binary classification, 1 being the positive class.

    Predictions have the probabilities of both classes (N, 2). `average` is "macro" (the mean of the
    batches' scores) or "micro" (the score of all counts).
    """

    def __init__(self, name: str, average: str = "macro", **kwargs: Any) -> None:
        if average not in ("macro", "micro"):
            raise ValueError(f"average is {average!r}, expected 'macro' or 'micro'")
        self.average = average
        super().__init__(name, **kwargs)

    def reset(self) -> None:
        super().reset()
        self._counts = numpy.zeros((2, 2))
        self._global_counts = numpy.zeros((2, 2))

    def reset_local(self) -> None:
        super().reset_local()
        self._counts = numpy.zeros((2, 2))

    def _score(self, counts: numpy.ndarray) -> float:
        """The score of `counts[label, prediction]`."""
        raise NotImplementedError

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=True):
            label, pred = _host(label).astype("int64").ravel(), _host(pred)
            check_label_shapes(label, pred)
            if numpy.any((label < 0) | (label > 1)) or pred.ndim != 2 or pred.shape[1] > 2:
                raise ValueError(f"{type(self).__name__} currently only supports binary classes.")
            counts = numpy.zeros((2, 2))
            numpy.add.at(counts, (label, pred.argmax(1)), 1)
            self._counts += counts
            self._global_counts += counts
            # A batch is an instance: `micro` replaces the sum of scores by the score of all counts.
            self._add(self._score(counts), 1)

    def get(self) -> tuple[Any, Any]:
        if self.average == "micro" and self.num_inst:
            return self.name, self._score(self._counts)
        return super().get()

    def get_global(self) -> tuple[Any, Any]:
        if self.average == "micro" and self.global_num_inst:
            return self.name, self._score(self._global_counts)
        return super().get_global()


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

    def __init__(self, name: str = "f1", average: str = "macro", **kwargs: Any) -> None:
        super().__init__(name, average, **kwargs)

    def _score(self, counts: numpy.ndarray) -> float:
        both = counts[0, 1] + counts[1, 0] + 2 * counts[1, 1]
        return float(2 * counts[1, 1] / both) if both else 0.0


@register()
class MCC(_Binary):
    """Matthews' correlation of labels and predictions of a binary classification, -1 to 1."""

    def __init__(self, name: str = "mcc", average: str = "macro", **kwargs: Any) -> None:
        super().__init__(name, average, **kwargs)

    def _score(self, counts: numpy.ndarray) -> float:
        # Sums of rows and columns; one that is 0 counts as 1.
        sums = numpy.concatenate([counts.sum(0), counts.sum(1)])
        divisor = math.sqrt(numpy.where(sums == 0, 1, sums).prod())
        return float((counts[0, 0] * counts[1, 1] - counts[0, 1] * counts[1, 0]) / divisor)


@register()
class Loss(EvalMetric):
    """Mean of the predictions themselves, for networks that end in a loss; labels are ignored."""

    def __init__(self, name: str = "loss", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def update(self, labels: Any, preds: Any) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            pred = _host(pred)
            self._add(float(pred.sum()), pred.size)


class CustomMetric(EvalMetric):
    """Mean of `feval(label, pred)`, which gets NumPy arrays and returns a value or (sum, count)."""

    def __init__(
        self,
        feval: Callable[[Any, Any], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        **kwargs: Any,
    ) -> None:
        if name is None:
            name = getattr(feval, "__name__", type(feval).__name__)
            if "<" in name:
                name = f"custom({name})"
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs
        super().__init__(name, **kwargs)

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=False):
            value = self._feval(_host(label), _host(pred))
            if isinstance(value, tuple):
                self._add(*value)
            else:
                self._add(value, 1)


def np(
    numpy_feval: Callable[[Any, Any], Any],
    name: str | None = None,
    allow_extra_outputs: bool = False,
) -> CustomMetric:
    """A metric from a function of NumPy arrays `f(label, pred)`, under its own name by default.

    Example
    -------
    >>> metric = mx.metric.np(lambda label, pred: abs(label - pred).max(), name="worst")
    >>> metric.update([nd.array([1.0, 2.0])], [nd.array([1.5, 2.0])])
    >>> name, value = metric.get()
    >>> name, float(value)
    ('worst', 0.5)
    """
    return CustomMetric(numpy_feval, name or numpy_feval.__name__, allow_extra_outputs)
