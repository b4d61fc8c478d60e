"""Losses: the difference of predictions and labels, one number per sample.

A loss is the mean over all axes but the batch's, where its class does not say otherwise. `weight`
multiplies the loss, and so does `sample_weight` of a call, which is broadcast to the loss of every
element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import ndarray as nd
from ..base import numeric_types, shown
from .hybrid_block import HybridBlock

__all__ = [
    "Loss",
    "L2Loss",
    "L1Loss",
    "SigmoidBinaryCrossEntropyLoss",
    "SigmoidBCELoss",
    "SoftmaxCrossEntropyLoss",
    "SoftmaxCELoss",
    "KLDivLoss",
    "CTCLoss",
    "HuberLoss",
    "HingeLoss",
    "SquaredHingeLoss",
    "LogisticLoss",
    "TripletLoss",
    "PoissonNLLLoss",
    "CosineEmbeddingLoss",
    "SDMLLoss",
]


def _apply_weighting(F: Any, loss: Any, weight: Any = None, sample_weight: Any = None) -> Any:
    """The loss times `sample_weight`, which is broadcast, and times the number `weight`."""
    if sample_weight is not None:
        loss = F.broadcast_mul(loss, sample_weight)
    _check_weight(weight)
    return loss if weight is None else loss * weight


def _check_weight(weight: Any) -> None:
    if weight is not None and not isinstance(weight, numeric_types):
        raise AssertionError(f"invalid weight {shown(weight)}: expected a number")


def _reshape_like(F: Any, x: Any, y: Any) -> Any:
    """`x` in the shape of `y`."""
    return F.reshape_like(x, y)


class Loss(HybridBlock):
    """Base of losses.

    Parameters
    ----------
    weight : float, optional
        Multiplies the loss.
    batch_axis : int
        The axis of samples.
    """

    def __init__(self, weight: float | None, batch_axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_weight(weight)
        self._weight = weight
        self._batch_axis = batch_axis

    def _mean(self, F: Any, loss: Any, sample_weight: Any, weight: Any = None) -> Any:
        """The weighted mean over all axes but the batch's."""
        weight = self._weight if weight is None else weight
        loss = _apply_weighting(F, loss, weight, sample_weight)
        return F.mean(loss, axis=self._batch_axis, exclude=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"


class L2Loss(Loss):
    """½ (pred - label)².

    Examples
    --------
    >>> import rsnet as mx
    >>> loss = mx.gluon.loss.L2Loss()
    >>> loss(mx.nd.array([[1.0, 3.0]]), mx.nd.array([[1.0, 1.0]])).asnumpy().tolist()
    [1.0]
    """

    def __init__(self, weight: float | None = 1.0, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.square(_reshape_like(F, label, pred) - pred)
        half = 0.5 if self._weight is None else self._weight / 2
        return self._mean(F, loss, sample_weight, half)


class L1Loss(Loss):
    """|pred - label|."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        return self._mean(F, F.abs(_reshape_like(F, label, pred) - pred), sample_weight)


class SigmoidBinaryCrossEntropyLoss(Loss):
    """-(w·y·log p + (1 - y)·log(1 - p)), where p is σ(pred).

    Parameters
    ----------
    from_sigmoid : bool
        Is `pred` the probability p itself?

    A call takes ``(pred, label, sample_weight=None, pos_weight=None)``; `pos_weight` is w.
    """

    def __init__(
        self,
        from_sigmoid: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None
    ) -> Any:
        label = _reshape_like(F, label, pred)
        if self._from_sigmoid:
            eps = 1e-12
            positive = F.log(pred + eps) * label
            if pos_weight is not None:
                positive = F.broadcast_mul(positive, pos_weight)
            loss = -(positive + F.log(1.0 - pred + eps) * (1.0 - label))
        else:
            # log(1 + exp(-|x|)) does not overflow.
            softplus = F.Activation(-F.abs(pred), act_type="softrelu")
            if pos_weight is None:
                loss = F.relu(pred) - pred * label + softplus
            else:
                scale = 1 + F.broadcast_mul(pos_weight - 1, label)
                loss = pred - pred * label + scale * (softplus + F.relu(-pred))
        return self._mean(F, loss, sample_weight)


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss


class SoftmaxCrossEntropyLoss(Loss):
    """-log p[label], where p is softmax(pred).

    Parameters
    ----------
    axis : int
        The axis of classes.
    sparse_label : bool
        True: labels are class numbers; False: probabilities of all classes.
    from_logits : bool
        Is `pred` log p itself?
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            loss = -F.sum(pred * _reshape_like(F, label, pred), axis=self._axis, keepdims=True)
        return self._mean(F, loss, sample_weight)


SoftmaxCELoss = SoftmaxCrossEntropyLoss


class KLDivLoss(Loss):
    """Σ label·(log label - log p): how far a distribution is from another.

    Parameters
    ----------
    from_logits : bool
        Is `pred` log p itself? If not, p is softmax(pred).
    axis : int
        The axis of classes.
    """

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._axis = axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, self._axis)
        loss = _apply_weighting(
            F, label * (F.log(label + 1e-12) - pred), self._weight, sample_weight
        )
        return F.sum(loss, axis=self._batch_axis, exclude=True)


class CTCLoss(Loss):
    """Connectionist temporal classification (Graves et al. 2006): one number per sample.

    Parameters
    ----------
    layout : str
        'NTC' or 'TNC' for predictions, whose last class is blank.
    label_layout : str
        'NT' or 'TN'; labels are padded with -1 unless lengths are given.

    A call takes ``(pred, label, pred_lengths=None, label_lengths=None, sample_weight=None)``.
    """

    def __init__(
        self,
        layout: str = "NTC",
        label_layout: str = "NT",
        weight: float | None = None,
        **kwargs: Any,
    ) -> None:
        if layout not in ("NTC", "TNC"):
            raise AssertionError(f"CTCLoss: invalid layout {layout!r}: expected 'NTC' or 'TNC'")
        if label_layout not in ("NT", "TN"):
            raise AssertionError(
                f"CTCLoss: invalid label_layout {label_layout!r}: expected 'NT' or 'TN'"
            )
        self._layout = layout
        self._label_layout = label_layout
        super().__init__(weight, label_layout.find("N"), **kwargs)

    def hybrid_forward(
        self,
        F: Any,
        pred: Any,
        label: Any,
        pred_lengths: Any = None,
        label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        if self._layout == "NTC":
            pred = F.swapaxes(pred, 0, 1)
        if self._batch_axis == 1:
            label = F.swapaxes(label, 0, 1)
        lengths = [length for length in (pred_lengths, label_lengths) if length is not None]
        loss = F.CTCLoss(
            pred,
            label,
            *lengths,
            use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None,
            blank_label="last",
        )
        return _apply_weighting(F, loss, self._weight, sample_weight)


class HuberLoss(Loss):
    """½ d² / rho where d = |pred - label| is at most rho, d - rho/2 elsewhere."""

    def __init__(
        self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        if not rho > 0:
            raise ValueError(f"invalid rho {rho}: expected a number greater than 0")
        self._rho = rho

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        far = F.abs(_reshape_like(F, label, pred) - pred)
        loss = F.where(far > self._rho, far - 0.5 * self._rho, (0.5 / self._rho) * F.square(far))
        return self._mean(F, loss, sample_weight)


class HingeLoss(Loss):
    """max(0, margin - pred·label), for labels -1 and 1."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.relu(self._margin - pred * _reshape_like(F, label, pred))
        return self._mean(F, loss, sample_weight)


class SquaredHingeLoss(Loss):
    """max(0, margin - pred·label)², for labels -1 and 1."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.square(F.relu(self._margin - pred * _reshape_like(F, label, pred)))
        return self._mean(F, loss, sample_weight)


class LogisticLoss(Loss):
    """log(1 + exp(-pred·label)), for labels -1 and 1.

    Parameters
    ----------
    label_format : str
        'signed' for labels -1 and 1, 'binary' for 0 and 1.
    """

    def __init__(
        self,
        weight: float | None = None,
        batch_axis: int = 0,
        label_format: str = "signed",
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        if label_format not in ("signed", "binary"):
            raise ValueError(
                f"LogisticLoss: invalid label_format {label_format!r}: expected 'signed' or "
                "'binary'"
            )
        self._label_format = label_format

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        softplus = F.Activation(-F.abs(pred), act_type="softrelu")
        return self._mean(F, F.relu(pred) - pred * label + softplus, sample_weight)


class TripletLoss(Loss):
    """max(0, Σ (pred - positive)² - Σ (pred - negative)² + margin).

    A call takes ``(pred, positive, negative, sample_weight=None)``.
    """

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(
        self, F: Any, pred: Any, positive: Any, negative: Any, sample_weight: Any = None
    ) -> Any:
        near = F.square(_reshape_like(F, positive, pred) - pred)
        far = F.square(_reshape_like(F, negative, pred) - pred)
        difference = F.sum(near - far, axis=self._batch_axis, exclude=True)
        return _apply_weighting(F, F.relu(difference + self._margin), self._weight, sample_weight)


class PoissonNLLLoss(Loss):
    """The negative log likelihood of counts, pred - label·log pred: the mean of all samples.

    Parameters
    ----------
    from_logits : bool
        Is `pred` the logarithm of the mean?
    compute_full : bool
        Add Stirling's approximation of log(label!)?

    A call takes ``(pred, target, sample_weight=None, epsilon=1e-08)``.
    """

    def __init__(
        self,
        weight: float | None = None,
        from_logits: bool = True,
        batch_axis: int = 0,
        compute_full: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._compute_full = compute_full

    def hybrid_forward(
        self, F: Any, pred: Any, target: Any, sample_weight: Any = None, epsilon: float = 1e-8
    ) -> Any:
        target = _reshape_like(F, target, pred)
        if self._from_logits:
            loss = F.exp(pred) - target * pred
        else:
            loss = pred - target * F.log(pred + epsilon)
        if self._compute_full:
            stirling = (
                target * F.log(target + epsilon)
                - target
                + 0.5 * F.log(2 * target * math.pi + epsilon)
            )
            loss = loss + stirling * (target > 1)
        return F.mean(_apply_weighting(F, loss, self._weight, sample_weight))


class CosineEmbeddingLoss(Loss):
    """1 - cos(input1, input2) where the label is 1, max(0, cos - margin) where it is -1.

    A call takes ``(input1, input2, label, sample_weight=None)``.
    """

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(
        self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None
    ) -> Any:
        input1 = _reshape_like(F, input1, input2)
        cosine = self._cosine(F, input1, input2)
        label = _reshape_like(F, label, cosine)
        loss = F.where(label == 1, 1 - cosine, F.relu(cosine - self._margin))
        return _apply_weighting(F, loss, self._weight, sample_weight)

    @staticmethod
    def _cosine(F: Any, x: Any, y: Any, axis: int = -1) -> Any:
        lengths = F.norm(x, axis=axis).reshape((-1, 1)) * F.norm(y, axis=axis).reshape((-1, 1))
        product = F.sum(x * y, axis=axis).reshape((-1, 1))
        return product / F.broadcast_maximum(lengths, F.ones_like(lengths) * 1e-12)


class SDMLLoss(Loss):
    """Smoothed deep metric learning (Bonadiman et al. 2019): pairs of the same row belong together,
    the other rows of the batch do not.

    Parameters
    ----------
    smoothing_parameter : float
        Probability that is spread over the other rows.
    """

    def __init__(
        self,
        smoothing_parameter: float = 0.3,
        weight: float | None = 1.0,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self.kl_loss = KLDivLoss(from_logits=True)
        self.smoothing_parameter = smoothing_parameter

    def _compute_labels(self, F: Any, batch_size: int) -> Any:
        gold = np.eye(batch_size)
        rest = self.smoothing_parameter / (batch_size - 1)
        return nd.array(gold * (1 - self.smoothing_parameter) + (1 - gold) * rest)

    def forward(self, x1: Any, x2: Any) -> Any:
        """The loss of each row of `x1` (N, C), which belongs to the same row of `x2`."""
        rows = x1.shape[0]
        if rows < 2:
            raise ValueError(f"SDMLLoss: invalid batch of {rows} rows: expected at least 2")
        difference = nd.broadcast_sub(nd.expand_dims(x1, 1), nd.expand_dims(x2, 0))
        distances = nd.sum(nd.square(difference), axis=2)
        log_probabilities = nd.log_softmax(-distances, axis=1)
        labels = self._compute_labels(nd, rows).as_in_context(x1.context)
        return self.kl_loss(log_probabilities, labels)
