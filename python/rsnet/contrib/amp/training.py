"""Training in mixed precision: `init`, and losses that are scaled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...gluon import Trainer, hybrid_block
from .convert import Conditions, Rules, _converted
from .loss_scaler import LossScaler

__all__ = ["init", "init_trainer", "scale_loss", "unscale"]

#: Has `init` been called? Layers of other libraries ask, to choose constants that float16 holds.
_amp_initialized = False


def init(
    target_dtype: Any = "float16",
    target_precision_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    fp32_ops: Iterable[str] | None = None,
) -> None:
    """From now on the graphs of hybridized blocks are made in mixed precision.

    Parameters
    ----------
    target_dtype : dtype
        float16.
    target_precision_ops, fp32_ops : list of str, optional
        Operators that run in float16 besides those of `contrib.amp.lists`, and in float32.
    conditional_fp32_ops : list of (str, str, list of str), optional
        Operators that run in float32 where a parameter has one of these values.

    Raises
    ------
    ValueError
        An operator is to run in both.

    Examples
    --------
    See `scale_loss`.
    """
    from . import lists

    half = {*lists.FP16_FUNCS, *(target_precision_ops or ())} - set(fp32_ops or ())
    single = {*lists.FP32_FUNCS, *(fp32_ops or ())} - set(target_precision_ops or ())
    conditional = [*lists.CONDITIONAL_FP32_FUNCS, *(conditional_fp32_ops or ())]
    rules = Rules.of(target_dtype, half, single, conditional)
    hybrid_block.change_graphs(lambda symbol: _converted(symbol, rules))
    global _amp_initialized
    _amp_initialized = True


def _checked(optimizer_or_trainer: Any) -> Trainer:
    if not isinstance(optimizer_or_trainer, Trainer):
        raise TypeError(
            f"invalid optimizer_or_trainer of type {type(optimizer_or_trainer).__name__}: "
            "expected a gluon.Trainer"
        )
    return optimizer_or_trainer


def _scaler_of(trainer: Trainer) -> LossScaler:
    scaler = getattr(trainer, "_amp_loss_scaler", None)
    if scaler is None:
        raise ValueError("the trainer has no scale of losses: call amp.init_trainer(trainer) first")
    found: LossScaler = scaler
    return found


def init_trainer(optimizer_or_trainer: Trainer) -> None:
    """Lets a trainer leave out the updates in which gradients overflowed.

    Raises
    ------
    TypeError
        It is no `gluon.Trainer`.
    ValueError
        It updates the parameters in a key-value store.
    """
    _checked(optimizer_or_trainer)._take_loss_scaler(LossScaler())


@contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Trainer) -> Iterator[Any]:
    """Gives the loss, or list of losses, times the trainer's scale; steps divide by it again.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet import autograd, gluon
    >>> from rsnet.contrib import amp
    >>> net = gluon.nn.Dense(1, in_units=2)
    >>> net.initialize(init="ones")
    >>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    >>> amp.init_trainer(trainer)
    >>> with autograd.record():
    ...     loss = net(mx.nd.ones((4, 2)))
    ...     with amp.scale_loss(loss, trainer) as scaled:
    ...         autograd.backward(scaled)
    >>> trainer.step(4)
    >>> net.weight.data().asnumpy().tolist()
    [[0.5, 0.5]]
    """
    trainer = _checked(optimizer_or_trainer)
    scale = _scaler_of(trainer).loss_scale
    trainer._loss_was_scaled(scale)
    yield [one * scale for one in loss] if isinstance(loss, (list, tuple)) else loss * scale


def unscale(optimizer_or_trainer: Trainer) -> None:
    """Divides the gradients by the scale of the loss here and now, so that they can be clipped."""
    trainer = _checked(optimizer_or_trainer)
    _scaler_of(trainer)
    trainer._unscale_gradients()
