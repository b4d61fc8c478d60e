"""Written by `python -m rsnet.docs --stubs`; do not edit."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from .._core import NDArray

_bool: TypeAlias = bool
_int: TypeAlias = int
_float: TypeAlias = float
_str: TypeAlias = str

__all__ = ['CTCLoss', 'arange_like', 'ctc_loss', 'div_sqrt_dim', 'gradientmultiplier', 'quadratic']

def CTCLoss(data: NDArray | None = ..., label: NDArray | None = ..., data_lengths: NDArray | None = ..., label_lengths: NDArray | None = ..., use_data_lengths: _bool = ..., use_label_lengths: _bool = ..., blank_label: Literal['first', 'last'] = ..., out: NDArray | Sequence[NDArray] | None = ..., name: _str | None = ..., **kwargs: Any) -> NDArray: ...
def arange_like(data: NDArray | None = ..., start: _float = ..., step: _float = ..., repeat: _int = ..., ctx: _str = ..., axis: _int | None = ..., out: NDArray | Sequence[NDArray] | None = ..., name: _str | None = ..., **kwargs: Any) -> NDArray: ...
def ctc_loss(data: NDArray | None = ..., label: NDArray | None = ..., data_lengths: NDArray | None = ..., label_lengths: NDArray | None = ..., use_data_lengths: _bool = ..., use_label_lengths: _bool = ..., blank_label: Literal['first', 'last'] = ..., out: NDArray | Sequence[NDArray] | None = ..., name: _str | None = ..., **kwargs: Any) -> NDArray: ...
def div_sqrt_dim(data: NDArray | None = ..., out: NDArray | Sequence[NDArray] | None = ..., name: _str | None = ..., **kwargs: Any) -> NDArray: ...
def gradientmultiplier(data: NDArray | None = ..., scalar: _float = ..., is_int: _bool = ..., out: NDArray | Sequence[NDArray] | None = ..., name: _str | None = ..., **kwargs: Any) -> NDArray: ...
def quadratic(data: NDArray | None = ..., a: _float = ..., b: _float = ..., c: _float = ..., out: NDArray | Sequence[NDArray] | None = ..., name: _str | None = ..., **kwargs: Any) -> NDArray: ...
