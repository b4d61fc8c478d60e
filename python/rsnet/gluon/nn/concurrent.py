"""Blocks side by side, and the identity.

`Concurrent` and `HybridConcurrent` are the names of these containers in `gluon.contrib.nn`.
"""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ..hybrid_block import HybridBlock
from .basic_layers import HybridSequential, Sequential

__all__ = [
    "Concatenate",
    "Concurrent",
    "HybridConcatenate",
    "HybridConcurrent",
    "Identity",
]


class Concurrent(Sequential):
    """Gives the input to every child and concatenates what they return.

    Parameters
    ----------
    axis : int
        Along which axis.
    """

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any, *args: Any) -> Any:
        return nd.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class HybridConcurrent(HybridSequential):
    """Gives the input to every child and concatenates what they return.

    Parameters
    ----------
    axis : int
        Along which axis.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet.gluon.nn import HybridConcurrent, Identity
    >>> net = HybridConcurrent(axis=1)
    >>> net.add(Identity(), Identity())
    >>> net(mx.nd.ones((2, 3))).shape
    (2, 6)
    """

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return F.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class Concatenate(Concurrent):
    """`Concurrent`, by its later name."""


class HybridConcatenate(HybridConcurrent):
    """`HybridConcurrent`, by its later name."""


class Identity(HybridBlock):
    """Returns its input."""

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x
