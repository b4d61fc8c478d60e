"""Base classes and registry of metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from .._class_registry import TABLES, class_named, register_aliases, register_class
from ..base import shown

__all__ = [
    "CompositeEvalMetric",
    "CustomMetric",
    "EvalMetric",
    "check_label_shapes",
    "create",
    "np",
    "alias",
    "register",
]

_REGISTRY: dict[str, type[EvalMetric]] = {}


def register(*aliases: Any) -> Any:
    """Class decorator: makes a metric known to `create` by its lower-case name and `aliases`.

    Bare (``@register``), or with aliases (``@register("acc")``).
    """
    return register_class(_REGISTRY, aliases)


def alias(*aliases: str) -> Any:
    """Class decorator: makes a metric known to `create` under further names."""
    return register_aliases(_REGISTRY, aliases)


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from an instance, a name, a function `f(label, pred)` or a list of these.

    Raises
    ------
    TypeError
        It is none of these.
    ValueError
        No metric has that name.
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
    if not isinstance(metric, str):
        raise TypeError(
            f"invalid metric {shown(metric)}: expected an EvalMetric, a name, a function or a list "
            "of these"
        )
    return class_named(_REGISTRY, "metric", metric)(*args, **kwargs)


def host(x: Any) -> numpy.ndarray:
    """`x` as a NumPy array."""
    return x.asnumpy() if hasattr(x, "asnumpy") else numpy.asarray(x)


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> Any:
    """Checks that there are as many labels as predictions (equal shapes with `shape`).

    Raises
    ------
    ValueError
        If not.
    """
    for name, given in (("labels", labels), ("preds", preds)):
        if not hasattr(given, "__len__"):
            raise TypeError(f"invalid {name} {shown(given)}: expected arrays")
    mine = labels.shape if shape else len(labels)
    theirs = preds.shape if shape else len(preds)
    if mine == 0 and theirs and not shape:
        raise ValueError(
            f"invalid number of labels 0: expected {theirs}, as of the predictions (the iterator's "
            "provide_label names them)"
        )
    if mine != theirs:
        what = "shape of labels" if shape else "number of labels"
        raise ValueError(f"invalid {what} {mine}: expected {theirs}, as of the predictions")
    if wrap:
        labels = labels if isinstance(labels, (list, tuple)) else [labels]
        preds = preds if isinstance(preds, (list, tuple)) else [preds]
    return labels, preds


def checked_average(average: str) -> str:
    """`average` itself, where it is one of the two ways to combine batches."""
    if average not in ("macro", "micro"):
        raise ValueError(f"invalid average {average!r}: expected 'macro' or 'micro'")
    return average


class EvalMetric:
    """Base class of metrics.

    A subclass defines `update(labels, preds)`, which adds to `sum_metric` and `num_inst`. Where it
    also adds to `global_sum_metric` and `global_num_inst`, it passes ``has_global_stats=True`` to
    this constructor, and `get_global` reports these; else `get_global` reports what `get` does.

    Parameters
    ----------
    name : str
        Name that `get` reports.
    output_names, label_names : list of str
        Arrays that `update_dict` selects; all by default.
    **kwargs
        Further parameters of the metric, for `get_config`.
    """

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
        self._has_global_stats = bool(kwargs.pop("has_global_stats", False))
        self._kwargs = kwargs
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """Class name and parameters of the metric."""
        return self._kwargs | {
            "metric": type(self).__name__,
            "name": self.name,
            "output_names": self.output_names,
            "label_names": self.label_names,
        }

    def reset(self) -> None:
        """Clears the local and the global result."""
        self.sum_metric = 0.0
        self.num_inst = 0
        self.global_sum_metric = 0.0
        self.global_num_inst = 0

    def reset_local(self) -> None:
        """Clears the local result, which `get` reports, and keeps the global one."""
        self.sum_metric = 0.0
        self.num_inst = 0

    def _add(self, total: float, count: int) -> None:
        self.sum_metric += total
        self.num_inst += count
        self.global_sum_metric += total
        self.global_num_inst += count

    def update(self, labels: Any, preds: Any) -> None:
        """Adds a batch: lists of label and prediction arrays."""
        raise NotImplementedError(f"{type(self).__name__} does not define 'update'")

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        """Calls `update` with the arrays that `label_names` and `output_names` select."""
        labels = self._selected("label", label, self.label_names)
        self.update(labels, self._selected("output", pred, self.output_names))

    def _selected(self, kind: str, given: dict[str, Any], names: Sequence[str] | None) -> list[Any]:
        """The arrays of these names, or all."""
        for name in names or ():
            if name not in given:
                known = ", ".join(given) or "none"
                raise KeyError(f"metric '{self.name}': unknown {kind} '{name}': expected {known}")
        return [given[name] for name in (given if names is None else names)]

    def _value(self, total: float, count: int) -> float:
        return total / count if count else float("nan")

    def get(self) -> tuple[Any, Any]:
        """(name, value since the last `reset_local`); nan when nothing was added."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """(name, value since the last `reset`)."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    @staticmethod
    def _pairs(name: Any, value: Any) -> list[tuple[str, float]]:
        if not isinstance(name, list):
            name = [name]
        if not isinstance(value, list):
            value = [value]
        return list(zip(name, value, strict=True))

    def get_name_value(self) -> list[tuple[str, float]]:
        """`get` as a list of pairs."""
        return self._pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """`get_global` as a list of pairs."""
        return self._pairs(*self.get_global())


TABLES[EvalMetric] = _REGISTRY


class PairMetric(EvalMetric):
    """A metric of each output and its label; a subclass defines `_update_pair`."""

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=True):
            self._update_pair(host(label), host(pred))

    def _update_pair(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        """Adds one output of a batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define '_update_pair'")


class ScoreOfBatches(PairMetric):
    """A score that is not a mean over rows: with `average` "macro" the mean of the batches' scores,
    with "micro" the score of all batches together.

    A subclass defines `_nothing`, what there is before a batch, and `_score`; its `_update_pair`
    adds a batch to `_seen` and `_all_seen`, and an instance to the counts.
    """

    average = "micro"

    def _nothing(self) -> Any:
        """What `_score` is computed from, before the first batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define '_nothing'")

    def _score(self, seen: Any) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not define '_score'")

    def reset(self) -> None:
        super().reset()
        self._seen, self._all_seen = self._nothing(), self._nothing()

    def reset_local(self) -> None:
        super().reset_local()
        self._seen = self._nothing()

    def get(self) -> tuple[Any, Any]:
        if self.average == "micro" and self.num_inst:
            return self.name, self._score(self._seen)
        return super().get()

    def get_global(self) -> tuple[Any, Any]:
        if self._has_global_stats and self.average == "micro" and self.global_num_inst:
            return self.name, self._score(self._all_seen)
        return super().get_global()


def _only_named(arrays: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    return arrays if names is None else {n: a for n, a in arrays.items() if n in names}


@register("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics at once; `get` returns lists.

    Parameters
    ----------
    metrics : list of EvalMetric or str
    name : str
    output_names, label_names : list of str, optional
        Predictions and labels that `update_dict` passes on; all if None.
    """

    def __init__(
        self,
        metrics: Sequence[Any] | None = None,
        name: str = "composite",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        self.metrics: list[EvalMetric] = []  # filled later: the base class resets what is here
        super().__init__(name, output_names, label_names, has_global_stats=True)
        self.metrics = [create(m) for m in metrics or []]

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"metrics": [m.get_config() for m in self.metrics]}

    def add(self, metric: Any) -> None:
        """Appends a metric, or anything that `create` accepts."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """Metric number `index`."""
        if not -len(self.metrics) <= index < len(self.metrics):
            raise IndexError(f"invalid index {index}: expected less than {len(self.metrics)}")
        return self.metrics[index]

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def update_dict(self, labels: dict[str, Any], preds: dict[str, Any]) -> None:
        labels = _only_named(labels, self.label_names)
        preds = _only_named(preds, self.output_names)
        for metric in self.metrics:
            metric.update_dict(labels, preds)

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


@register
class CustomMetric(EvalMetric):
    """Mean of `feval(label, pred)`, a function of NumPy arrays that returns a value or (sum,
    count).
    """

    def __init__(
        self,
        feval: Callable[[Any, Any], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        if not callable(feval):
            raise TypeError(f"CustomMetric: invalid feval {shown(feval)}: expected a function")
        if name is None:
            name = getattr(feval, "__name__", type(feval).__name__)
            if "<" in name:
                name = f"custom({name})"
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(
            "get_config: invalid metric, a CustomMetric, whose function cannot be stored: expected "
            "another"
        )

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=False):
            value = self._feval(host(label), host(pred))
            pair = value if isinstance(value, tuple) else (value, 1)
            if len(pair) != 2 or not all(hasattr(part, "__float__") for part in pair):
                raise TypeError(
                    f"metric '{self.name}': invalid value {shown(value)} of its function: expected "
                    "a number, or a pair of a sum and a count"
                )
            self._add(*pair)


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
    return CustomMetric(numpy_feval, name, allow_extra_outputs)
