"""More optimizers of ``optimizer``, which imports them: each a rule by its formula (see there)."""

from __future__ import annotations

from typing import Any

from . import ndarray as nd
from .ndarray import NDArray
from .optimizer import Optimizer, _Momentum, register
from .optimizer import _zeros_like as zeros_like


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
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.lamda1 = lamda1
        self.beta = beta

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
        self.beta1 = beta1
        self.beta2 = beta2

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
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay
        self.m_schedule = 1.0

    def _mu(self, t: int) -> float:
        return self.beta1 * (1 - 0.5 * 0.96 ** (t * self.schedule_decay))

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
class Signum(_Momentum):
    """Steps by the sign of the momentum (Bernstein et al., ICML 2018).

    m ← μ·m - (1-μ)·(wd·w + clip(g)); w ← (1 - lr·wd_lh)·w + lr·sign(m). Without momentum:
    w ← (1 - lr·wd)·w - lr·sign(g).
    """

    def __init__(
        self,
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        wd_lh: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum
        self.wd_lh = wd_lh

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
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

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
        self.momentum = momentum
        self.lamda = lamda

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
