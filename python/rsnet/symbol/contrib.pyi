"""Written by `python -m rsnet.docs --stubs`; do not edit."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from ..symbol.symbol import Symbol

_bool: TypeAlias = bool
_int: TypeAlias = int
_float: TypeAlias = float
_str: TypeAlias = str

__all__ = ['CTCLoss', 'arange_like', 'ctc_loss', 'div_sqrt_dim', 'gradientmultiplier', 'quadratic']

def CTCLoss(data: Symbol | None = ..., label: Symbol | None = ..., data_lengths: Symbol | None = ..., label_lengths: Symbol | None = ..., use_data_lengths: _bool = ..., use_label_lengths: _bool = ..., blank_label: Literal['first', 'last'] = ..., name: _str | None = ..., **kwargs: Any) -> Symbol: ...
def arange_like(data: Symbol | None = ..., start: _float = ..., step: _float = ..., repeat: _int = ..., ctx: _str = ..., axis: _int | None = ..., name: _str | None = ..., **kwargs: Any) -> Symbol: ...
def ctc_loss(data: Symbol | None = ..., label: Symbol | None = ..., data_lengths: Symbol | None = ..., label_lengths: Symbol | None = ..., use_data_lengths: _bool = ..., use_label_lengths: _bool = ..., blank_label: Literal['first', 'last'] = ..., name: _str | None = ..., **kwargs: Any) -> Symbol: ...
def div_sqrt_dim(data: Symbol | None = ..., name: _str | None = ..., **kwargs: Any) -> Symbol: ...
def gradientmultiplier(data: Symbol | None = ..., scalar: _float = ..., is_int: _bool = ..., name: _str | None = ..., **kwargs: Any) -> Symbol: ...
def quadratic(data: Symbol | None = ..., a: _float = ..., b: _float = ..., c: _float = ..., name: _str | None = ..., **kwargs: Any) -> Symbol: ...
