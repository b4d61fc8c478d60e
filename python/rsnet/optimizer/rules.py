"""The optimizers: each a rule by its formula."""

from __future__ import annotations

import math
from typing import Any

from .. import ndarray as nd
from ..ndarray import NDArray
from .base import Optimizer, PerDevice, clipped, register, zeros_like

__all__ = [
    "SGD", "NAG", "Adam", "AdaGrad", "RMSProp", "AdaDelta", "Ftrl", "Adamax", "Nadam", "Signum",
    "FTML", "DCASGD", "SGLD", "ccSGD", "Test",
]  # fmt: skip


class WithMomentum(Optimizer):
    """A rule whose one state is the momentum, if there is any."""

    momentum: float

    def create_state(self, index: int, weight: NDArray) -> Any:
        return zeros_like(weight) if self.momentum else None


@register
class SGD(WithMomentum):
    """Gradient descent: w ← (1 - lr·wd)·w - lr·clip(g).

    With momentum μ: m ← μ·m - lr·wd·w - lr·clip(g); w ← w + m. All parameters that an `Updater` is
    given in one list are updated by one operator.
    """

    aggregate_num = 1024
    rates_together = 4  # weights that MXNet updates by one operator

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum, self.lazy_update = momentum, lazy_update

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        if state is None:
            nd.sgd_update(weight, grad, out=weight, **common)
        else:
            nd.sgd_mom_update(weight, grad, state, out=weight, momentum=self.momentum, **common)

    def create_state_multi_precision(self, index: int, weight: NDArray) -> Any:
        """The momentum, followed by the float32 copy where there is one."""
        if not self._has_copy(weight):
            return self.create_state(index, weight)
        master = weight.astype("float32")
        return self.create_state(index, master), master

    def update_multi_precision(
        self, index: int, weight: NDArray, grad: NDArray, state: Any
    ) -> None:
        """`update` on the float32 copy where there is one, by one operator."""
        if not self._has_copy(weight):
            self.update(index, weight, grad, state)
            return
        common = self._common(index)
        mom, master = state
        if mom is None:
            nd.mp_sgd_update(weight, grad, master, out=weight, **common)
        else:
            momentum = self.momentum
            nd.mp_sgd_mom_update(weight, grad, mom, master, out=weight, momentum=momentum, **common)

    def update_many(
        self, indices: list[int], weights: list[NDArray], grads: list[NDArray], states: list[Any]
    ) -> None:
        """All updates by one operator."""
        if type(self).update is not SGD.update:  # a subclass has a rule of its own
            super().update_many(indices, weights, grads, states)
            return
        mixed = self._has_copy(weights[0])
        common = self._common_many(indices) | {"num_weights": len(indices)}
        if self.momentum:
            common["momentum"] = self.momentum
        arrays: list[NDArray] = []
        for weight, grad, state in zip(weights, grads, states, strict=True):
            kept = state if mixed else (state,)
            arrays += [weight, grad, *(array for array in kept if array is not None)]
        name = f"multi_{'mp_' * mixed}sgd_{'mom_' * bool(self.momentum)}update"
        getattr(nd, name)(*arrays, out=weights, **common)


@register
class ccSGD(SGD):
    """`SGD` under its name of the first versions."""


@register
class SGLD(Optimizer):
    """Stochastic gradient Langevin dynamics (Welling & Teh, 2011): samples of a posterior.

    w ← w - lr/2·(clip(g) + wd·w) + N(0, lr).
    """

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        lr = common["lr"]
        if lr < 0:
            raise ValueError(f"optimizer SGLD: invalid learning_rate {lr}: expected at least 0")
        noise = nd.random.normal(
            0, math.sqrt(lr), weight.shape, dtype=weight.dtype, ctx=weight.context
        )
        step = self._scaled(grad) + weight * common["wd"]
        weight[:] = weight - step * (lr / 2) + noise


@register
class NAG(WithMomentum):
    """Nesterov's momentum: with d(w) = lr·(clip(g) + wd·w), w' ← w + μ²·m - (1 + μ)·d(w) and then
    m ← μ·m - d(w'): the weight decay in the momentum is that of the new weight, as in MXNet.
    """

    def __init__(self, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        lr, wd = common["lr"], common["wd"]
        scaled = self._scaled(grad)
        if state is None:
            weight[:] = weight - (scaled + weight * wd) * lr
            return
        state *= self.momentum
        step = (scaled + weight * wd) * lr
        weight[:] = weight + state * self.momentum - step * (1 + self.momentum)
        state -= (scaled + weight * wd) * lr


@register
class Adam(Optimizer):
    """Adam (Kingma and Ba, arXiv:1412.6980), weight decay inside the clipped gradient.

    m ← β1·m + (1-β1)·g; v ← β2·v + (1-β2)·g²; w ← w - lr·√(1-β2ᵗ)/(1-β1ᵗ) · m / (√v + ε).
    """

    zero_states = 2

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.lazy_update = lazy_update

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        t = self._index_update_count[index]
        common["lr"] *= math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
        common |= {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}
        mean, var = state
        nd.adam_update(weight, grad, mean, var, out=weight, **common)


@register
class AdaGrad(Optimizer):
    """AdaGrad (Duchi et al., JMLR 2011): h ← h + clip(g)²; w ← w - lr·(clip(g)/√(h+ε) + wd·w)."""

    def __init__(self, eps: float = 1e-7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: int, weight: NDArray) -> Any:
        return zeros_like(weight)

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        g = self._scaled(grad)
        state[:] = state + nd.square(g)
        step = g / nd.sqrt(state + self.float_stable_eps) + weight * common["wd"]
        weight[:] = weight - step * common["lr"]


@register
class RMSProp(Optimizer):
    """RMSProp: with g ← clip(g + wd·w), n ← γ1·n + (1-γ1)·g²; w ← w - lr·g/√(n+ε).

    Centred (Graves, arXiv:1308.0850): also s ← γ1·s + (1-γ1)·g, δ ← γ2·δ - lr·g/√(n-s²+ε), w ← w
    + δ.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1, self.gamma2, self.epsilon = gamma1, gamma2, epsilon
        self.centered, self.clip_weights = centered, clip_weights

    @property
    def zero_states(self) -> int:  # type: ignore[override]
        """One array, or three if centered; by calculation, as MXNet's pickles do not say."""
        return 3 if self.centered else 1

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        g = self._decayed(grad, weight, common["wd"])
        n = state[0]
        n[:] = n * self.gamma1 + nd.square(g) * (1 - self.gamma1)
        if self.centered:
            _, s, delta = state
            s[:] = s * self.gamma1 + g * (1 - self.gamma1)
            step = g * common["lr"] / nd.sqrt(n - nd.square(s) + self.epsilon)
            delta[:] = delta * self.gamma2 - step
            weight[:] = weight + delta
        else:
            weight[:] = weight - g * common["lr"] / nd.sqrt(n + self.epsilon)
        if self.clip_weights:
            weight[:] = clipped(weight, self.clip_weights)


@register
class AdaDelta(Optimizer):
    """AdaDelta (Zeiler, arXiv:1212.5701); it has no learning rate.

    a ← ρ·a + (1-ρ)·g²; d = √(b+ε)/√(a+ε)·g; b ← ρ·b + (1-ρ)·d²; w ← w - d - wd·w.
    """

    zero_states = 2

    def __init__(self, rho: float = 0.90, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rho, self.epsilon = rho, epsilon

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        g = self._scaled(grad)
        a, b = state
        a[:] = a * self.rho + nd.square(g) * (1 - self.rho)
        step = nd.sqrt(b + self.epsilon) / nd.sqrt(a + self.epsilon) * g
        b[:] = b * self.rho + nd.square(step) * (1 - self.rho)
        weight[:] = weight - step - weight * common["wd"]


@register
class Test(Optimizer):
    """For tests: w ← w + g; the state is a copy of w."""

    def create_state(self, index: int, weight: NDArray) -> Any:
        return zeros_like(weight)

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        weight[:] = weight + grad * self.rescale_grad
        state[:] = weight


@register
class Ftrl(Optimizer):
    """FTRL-Proximal (McMahan et al., KDD 2013): most weights of sparse features stay exactly 0.

    z ← z + g - (√(n+g²) - √n)/lr·w; n ← n + g²; w ← (sign(z)·λ1 - z)/((β+√n)/lr + wd) where
    |z| > λ1, else 0.
    """

    zero_states = 2

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if self.lr_scheduler is None:  # a schedule keeps its own rate, as in MXNet
            self._check_number("learning_rate", learning_rate)
            self.lr = learning_rate
        self.lamda1, self.beta = lamda1, beta

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        z, n = state
        nd.ftrl_update(weight, grad, z, n, out=weight, lamda1=self.lamda1, beta=self.beta, **common)


@register
class Adamax(Optimizer):
    """Adam with the largest gradient in place of the mean square (Kingma and Ba, section 7.1).

    With g ← clip(g + wd·w): m ← β1·m + (1-β1)·g; u ← max(β2·u, |g|); w ← w - lr/(1-β1ᵗ)·m/u.
    """

    zero_states = 2

    def __init__(
        self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2 = beta1, beta2

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        rate = common["lr"] / (1 - self.beta1 ** self._index_update_count[index])
        g = self._decayed(grad, weight, common["wd"])
        m, u = state
        m[:] = m * self.beta1 + g * (1 - self.beta1)
        u[:] = nd.maximum(u * self.beta2, nd.abs(g))
        weight[:] = weight - m / u * rate


@register
class Nadam(Optimizer):
    """Adam with Nesterov's momentum (T. Dozat, ICLR 2016 workshop).

    With μₜ = β1·(1 - 0.5·0.96^(t·schedule_decay)); the product of all μ so far is one number for
    all parameters.
    """

    zero_states = 2
    m_schedule = PerDevice(1.0)

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.schedule_decay = schedule_decay

    def _mu(self, t: int) -> float:
        return float(self.beta1 * (1 - 0.5 * 0.96 ** (t * self.schedule_decay)))

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        t = self._index_update_count[index]
        g = self._decayed(grad, weight, common["wd"])
        now, following = self._mu(t), self._mu(t + 1)
        self.m_schedule *= now
        m, v = state
        m[:] = m * self.beta1 + g * (1 - self.beta1)
        v[:] = v * self.beta2 + nd.square(g) * (1 - self.beta2)
        g_hat = g / (1 - self.m_schedule)
        m_hat = m / (1 - self.m_schedule * following)
        v_hat = v / (1 - self.beta2**t)
        step = g_hat * (1 - now) + m_hat * following
        weight[:] = weight - step * common["lr"] / (nd.sqrt(v_hat) + self.epsilon)


@register
class Signum(WithMomentum):
    """Steps by the sign of the momentum (Bernstein et al., ICML 2018).

    m ← μ·m - (1-μ)·(wd·w + clip(g)); w ← (1 - lr·wd_lh)·w + lr·sign(m). Without momentum:
    w ← (1 - lr·wd)·w - lr·sign(g).
    """

    def __init__(
        self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum, self.wd_lh = momentum, wd_lh

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        if state is None:
            nd.signsgd_update(weight, grad, out=weight, **common)
            return
        common |= {"momentum": self.momentum, "wd_lh": self.wd_lh}
        nd.signum_update(weight, grad, state, out=weight, **common)


@register
class FTML(Optimizer):
    """Follow the moving leader (Zheng and Kwok, ICML 2017).

    With g ← clip(g + wd·w): v ← β2·v + (1-β2)·g²; d' = (1-β1ᵗ)/lr·(√(v/(1-β2ᵗ)) + ε);
    z ← β1·z + (1-β1)·g - (d' - β1·d)·w; w ← -z/d'; d ← d'.
    """

    zero_states = 3

    def __init__(
        self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        if "clip_gradient" in common:
            common["clip_grad"] = common.pop("clip_gradient")
        common |= {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}
        common["t"] = self._index_update_count[index]
        d, v, z = state
        nd.ftml_update(weight, grad, d, v, z, out=weight, **common)


@register
class DCASGD(Optimizer):
    """Descent that makes up for delayed gradients (Zheng et al., ICML 2017).

    With g ← clip(g): d = -lr·(g + wd·w + λ·g²·(w - w')), m ← μ·m + d, w' ← w, w ← w + m.
    """

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum, self.lamda = momentum, lamda

    def create_state(self, index: int, weight: NDArray) -> Any:
        return (zeros_like(weight) if self.momentum else None), weight.copy()

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        g = self._scaled(grad)
        mom, previous = state
        delay = nd.square(g) * (weight - previous) * self.lamda
        step = (g + weight * common["wd"] + delay) * -common["lr"]
        if mom is not None:
            mom[:] = mom * self.momentum + step
            step = mom
        previous[:] = weight
        weight[:] = weight + step
