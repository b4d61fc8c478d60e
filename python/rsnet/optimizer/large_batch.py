"""Optimizers for large batches: rates that follow the norms of weights and gradients."""

from __future__ import annotations

import math
from typing import Any

from .. import ndarray as nd
from ..ndarray import NDArray
from .base import Optimizer, PerDevice, push_together, register
from .rules import SGD, WithMomentum

__all__ = ["LAMB", "LARS", "LBSGD"]


@register
class LAMB(Optimizer):
    """Layer-wise adaptive moments (You et al., arXiv:1904.00962).

    m, v ← moving averages of g and g²; u = m̂ / (√v̂ + ε) + wd·w; w ← w - lr·(‖w‖ / ‖u‖)·u, where
    ‖w‖ is kept within the bounds and the ratio is 1 if a norm is 0.

    Parameters
    ----------
    learning_rate, beta1, beta2, epsilon : float
    lower_bound, upper_bound : float, optional
        Bounds on ‖w‖; 0 is none.
    bias_correction : bool
        Divide the averages by 1 - βᵗ?
    """

    zero_states = 2
    aggregate_num = 1024

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        self.bias_correction = bias_correction

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._step([index], [weight], [grad], [state], mixed=False)

    def update_multi_precision(
        self, index: int, weight: NDArray, grad: NDArray, state: Any
    ) -> None:
        """`update`, by the copy in float32 where there is one."""
        self.update_many([index], [weight], [grad], [state])

    def update_many(
        self, indices: list[int], weights: list[NDArray], grads: list[NDArray], states: list[Any]
    ) -> None:
        """All updates by one operator."""
        self._step(indices, weights, grads, states, mixed=self._has_copy(weights[0]))

    def _step(
        self,
        indices: list[int],
        weights: list[NDArray],
        grads: list[NDArray],
        states: list[Any],
        mixed: bool,
    ) -> None:
        common = self._common_many(indices)
        bounds = {"lower_bound": self.lower_bound, "upper_bound": self.upper_bound}
        common |= {name: bound for name, bound in bounds.items() if bound}
        common |= {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}
        common |= {
            "bias_correction": self.bias_correction,
            "step_count": [self._index_update_count[index] for index in indices],
        }
        copies = [[state[0] for state in states]] if mixed else []
        averages = [state[1] for state in states] if mixed else states
        means, variances = (list(kind) for kind in zip(*averages, strict=True))
        contrib: Any = nd.contrib  # the copies are an argument of one of the two
        update = contrib.multi_mp_lamb_update if mixed else contrib.multi_lamb_update
        update(weights, grads, means, variances, *copies, out=weights, **common)


@register
class LARS(WithMomentum):
    """Layer-wise adaptive rates (You et al., arXiv:1708.03888).

    lr ← lr·eta·‖w‖ / (‖g‖ + wd·‖w‖ + eps) where both norms are greater than 0, then as SGD with
    momentum. Parameters whose names end in gamma, beta or bias keep their rate; weight decay
    applies to names that end in `_weight`.

    Parameters
    ----------
    momentum, eta, eps : float
    momentum_correction : bool
        Where the rate has changed since the last call, scale the momentum of this call by the ratio
        of the two? As in MXNet a call is one of up to four parameters, so that only the first four
        of a step are scaled.
    """

    aggregate_num = 4
    _current_lr: Any = PerDevice(None)

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0.0,
        momentum_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.momentum, self.lazy_update = momentum, lazy_update
        self.eta, self.eps = eta, eps
        self.momentum_correction = momentum_correction

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_current_lr": state.get("cur_lr")} | state)  # MXNet's name of it

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Sets multipliers of the weight decay: 0 for all names but those that end in `_weight`."""
        super().set_wd_mult(args_wd_mult)
        for name in self.idx2name.values():
            if not name.endswith("_weight") and name not in args_wd_mult:
                self.wd_mult[name] = 0.0

    def _rate(self, index: int, weight: NDArray, g: NDArray, lr: float, wd: float) -> NDArray:
        """The rate of one parameter, as an array of one element."""
        name = self.idx2name.get(index, str(index))
        if name.endswith(("gamma", "beta", "bias")):
            return nd.full((1,), lr, ctx=weight.context, dtype=weight.dtype)
        w_norm, g_norm = nd.norm(weight), nd.norm(g)
        both = (w_norm > 0) * (g_norm > 0)
        below = g_norm + w_norm * wd + self.eps
        ratio = self.eta * w_norm / (below + (1 - both))
        return nd.where(both, ratio, nd.ones_like(ratio)) * lr

    def _momentum_of_call(self) -> float:
        """The momentum of a call for one or several parameters, after they were counted."""
        last, now = self._current_lr, self.learning_rate
        self._current_lr = now
        if not self.momentum_correction or not last:
            return self.momentum
        return float(self.momentum * now / last)

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        self._step(index, weight, grad, state, self._momentum_of_call())

    def update_multi_precision(
        self, index: int, weight: NDArray, grad: NDArray, state: Any
    ) -> None:
        """`update`, by the copy in float32 where there is one."""
        self.update_many([index], [weight], [grad], [state])

    def update_many(
        self, indices: list[int], weights: list[NDArray], grads: list[NDArray], states: list[Any]
    ) -> None:
        """All updates with one momentum."""
        for index in indices:
            self._update_count(index)
        momentum = self._momentum_of_call()

        def update(at: int) -> None:
            weight, grad, state = weights[at], grads[at], states[at]
            if not self._has_copy(weight):
                self._step(indices[at], weight, grad, state, momentum)
                return
            master, inner = state
            # As in MXNet, the rate follows the weight, which a program may have set.
            g, measured = grad.astype("float32"), weight.astype("float32")
            self._step(indices[at], master, g, inner, momentum, measured)
            master.copyto(weight)

        push_together(weights, update)

    def _step(
        self,
        index: int,
        weight: NDArray,
        grad: NDArray,
        state: Any,
        momentum: float,
        measured: NDArray | None = None,
    ) -> None:
        """A step at the rate that the norm of `measured`, the weight by default, allows."""
        lr, wd = self._get_lr(index), self._get_wd(index)
        scaled = grad * self.rescale_grad
        rate = self._rate(index, weight if measured is None else measured, scaled, lr, wd)
        flat = (self._clipped(scaled) + weight * wd).reshape((-1,))
        step = nd.broadcast_mul(flat, rate.reshape((1,))).reshape(weight.shape)
        if state is None:
            weight[:] = weight - step
        else:
            state[:] = state * momentum - step
            weight[:] = weight + state


@register
class LBSGD(SGD):
    """SGD for large batches: gradients of several batches are added, and the rate warms up.

    Parameters
    ----------
    momentum : float
    multi_precision : bool
    warmup_strategy : {'linear', 'power2', 'sqrt', 'lars'}
        How the rate grows to `batch_scale` times itself; 'lars' follows the norms instead.
    warmup_epochs, updates_per_epoch : int
        Length of the warm-up.
    batch_scale : int
        Batches whose gradients are added before a step.
    """

    _counted: Any = PerDevice(None)

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: float = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ) -> None:
        super().__init__(momentum=momentum, multi_precision=multi_precision, **kwargs)
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs, self.updates_per_epoch = warmup_epochs, updates_per_epoch
        self.batch_scale, self.begin_epoch, self.num_epochs = batch_scale, begin_epoch, num_epochs
        self.init_updates = begin_epoch * updates_per_epoch
        self.lbmult = 1.0
        # The rate of each number of updates, of late; gradients by device and index.
        self._rates: dict[int, float] = {}
        self._base_lr = self.learning_rate
        self._added: dict[tuple[int, int], tuple[int, NDArray]] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # MXNet's pickles lack the first, and count all batches of which it has added gradients.
        scale, sums = max(1, int(state["batch_scale"])), state.get("cumgrads", {})
        counts = {index: sums[index]["num_cums"] % scale for index in sums}
        added = {(0, i): (count, sums[i]["cum_grad"]) for i, count in counts.items() if count}
        super().__setstate__({"_rates": {}, "_added": added} | state)

    def _updates_so_far(self) -> int:
        """The number of updates as the device whose turn it is has counted them."""
        if self._counted is None:
            self._counted = max(self._index_update_count.values(), default=self.begin_num_update)
        return int(self._counted)

    def _update_count(self, index: int | list[int] | tuple[int, ...]) -> int:
        so_far = self._updates_so_far()
        count = super()._update_count(index)
        self._counted = max(count, so_far)
        return count

    def _rate_before(self) -> float:
        """The rate of the updates before this one, as in MXNet, and the same on all devices: a
        device that is behind uses the rate of the first one, because schedules cannot be evaluated
        backwards.
        """
        so_far = self._updates_so_far()
        if so_far < self.num_update and so_far in self._rates:
            return self._rates[so_far]
        rate = self.learning_rate
        self._rates = {n: r for n, r in self._rates.items() if n >= so_far - 1} | {so_far: rate}
        return rate

    def _multiplier_at(self, update: int) -> float:
        """The factor on the rate at this number of updates."""
        length, most = self.warmup_epochs * self.updates_per_epoch, float(self.batch_scale)
        if update >= length:
            return most
        if length <= 1:
            return 1.0
        share = {
            "linear": lambda: update / length,
            "power2": lambda: (update / length) ** 2,
            "sqrt": lambda: math.sqrt(update / length),
        }.get(self.warmup_strategy)
        return 1.0 if share is None else 1.0 + (most - 1.0) * share()

    # A float16 weight is updated by its float32 copy through `update`, not by SGD's own operators,
    # which step in every call.
    create_state_multi_precision = Optimizer.create_state_multi_precision
    update_multi_precision = Optimizer.update_multi_precision

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._base_lr = self._rate_before()
        at = (self.device_id, index)
        count, total = self._added.get(at, (0, None))
        total = grad.copy() if total is None else total + grad
        count += 1
        self._added[at] = (count, total)
        if count % max(1, int(self.batch_scale)):
            self._update_count(index)
            return
        del self._added[at]
        mean = total / count
        if self.warmup_strategy == "lars":
            w2, g2 = (float(nd.sum(nd.square(a)).asscalar()) for a in (weight, mean))
            ratio = math.sqrt(w2 / (g2 + self._get_wd(index) * w2 + 1e-18))
            self.lbmult = min(max(ratio, 0.01), 100.0)
        else:
            before = self._index_update_count.get(index, self.begin_num_update)
            update = before + 1 - self.begin_num_update
            self.lbmult = self._multiplier_at(update + self.init_updates)
        super().update(index, weight, mean, state)

    def _get_lr(self, index: int) -> float:
        factor = self._multiplier(self.lr_mult, "lr_mult", index)
        return self._base_lr * factor * self.lbmult
