"""`Constant`: a parameter that training does not change."""

from __future__ import annotations

import warnings
from typing import Any

from .. import initializer
from .. import ndarray as nd
from .. import symbol as sym
from ..ndarray import NDArray
from .parameter import Parameter

__all__ = ["Constant"]


class Constant(Parameter):
    """A parameter that training does not change.

    Parameters
    ----------
    name : str
    value : NDArray or array_like

    Examples
    --------
    >>> from rsnet import gluon
    >>> scale = gluon.Constant("scale", [1, 2])
    >>> scale.initialize()
    >>> scale.data().asnumpy().tolist(), scale.grad_req
    ([1.0, 2.0], 'null')
    """

    def __init__(self, name: str, value: Any) -> None:
        self.value = value if isinstance(value, NDArray) else nd.array(value)
        super().__init__(
            name,
            grad_req="null",
            shape=self.value.shape,
            dtype=self.value.dtype,
            init=_Fill(self.value),
        )

    def __repr__(self) -> str:
        return f"Constant {self.name} (shape={self.shape}, dtype={self.dtype})"

    @property
    def grad_req(self) -> str:
        """Always 'null'."""
        return "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req != "null":
            warnings.warn(
                f'Constant parameter "{self.name}" does not support grad_req other than "null", '
                f'and new value "{req}" is ignored.',
                stacklevel=2,
            )
        self._grad_req = "null"

    def var(self) -> sym.Symbol:
        if self._var is None:
            self._var = sym.Variable(self.name, shape=self.shape, dtype=self.dtype)
        return self._var


class _Fill(initializer.Initializer):
    """Fills with a given value."""

    def __init__(self, value: NDArray) -> None:
        super().__init__()
        self._value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        self._value.copyto(arr)

    def dumps(self) -> str:
        return f'["constant", {{"value": {self._value.asnumpy().tolist()}}}]'
