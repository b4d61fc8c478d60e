"""Layers that apply an activation function to every element."""

from __future__ import annotations

from typing import Any

from ... import initializer
from ..hybrid_block import HybridBlock

__all__ = ["ELU", "GELU", "SELU", "Activation", "LeakyReLU", "PReLU", "Swish"]


#: What the operator `Activation` computes.
_KINDS = ("relu", "sigmoid", "softrelu", "softsign", "tanh")


def _check(owner: str, activation: Any) -> None:
    if activation not in _KINDS:
        raise ValueError(
            f"{owner}: invalid activation {activation!r}: expected one of: {', '.join(_KINDS)} "
            "(others, such as nn.GELU(), are layers of their own)"
        )


def activation_layer(owner: str, activation: str | None) -> Activation | None:
    """The layer of an `activation` argument of `owner`."""
    if activation is None or activation == "":
        return None
    _check(owner, activation)
    return Activation(activation, prefix=f"{activation}_")


class Activation(HybridBlock):
    """An activation by name.

    Parameters
    ----------
    activation : str
        'relu', 'sigmoid', 'tanh', 'softrelu' or 'softsign'.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.gluon.nn.Activation("relu")(mx.nd.array([-1, 2])).asnumpy().tolist()
    [0.0, 2.0]
    """

    def __init__(self, activation: str, **kwargs: Any) -> None:
        _check(type(self).__name__, activation)
        self._act_type = activation
        super().__init__(**kwargs)

    def _alias(self) -> str:
        return self._act_type

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


class LeakyReLU(HybridBlock):
    """x where x > 0, alpha·x elsewhere.

    Parameters
    ----------
    alpha : float
        At least 0.
    """

    def __init__(self, alpha: float, **kwargs: Any) -> None:
        if alpha < 0:
            raise AssertionError(f"LeakyReLU: invalid alpha {alpha}: expected at least 0")
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


class PReLU(HybridBlock):
    """x where x > 0, alpha·x elsewhere, where alpha is learned (He et al. 2015).

    Parameters
    ----------
    alpha_initializer : Initializer
    in_channels : int
        1 for one alpha, or as many as there are channels.
    """

    def __init__(self, alpha_initializer: Any = None, in_channels: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if alpha_initializer is None:
            alpha_initializer = initializer.Constant(0.25)
        with self.name_scope():
            self.alpha = self.params.get("alpha", shape=(in_channels,), init=alpha_initializer)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        return F.LeakyReLU(x, gamma=alpha, act_type="prelu", name="fwd")


class ELU(HybridBlock):
    """x where x > 0, alpha·(exp(x) - 1) elsewhere (Clevert et al. 2015)."""

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


class SELU(HybridBlock):
    """Scaled ELU, which keeps mean and variance (Klambauer et al. 2017)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(HybridBlock):
    """x·Φ(x), where Φ is the distribution function of the normal distribution (Hendrycks 2016)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(HybridBlock):
    """x·σ(beta·x) (Ramachandran et al. 2017)."""

    def __init__(self, beta: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._beta = beta

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x * F.sigmoid(self._beta * x, name="fwd")
