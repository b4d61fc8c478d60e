"""Initializers made of others, or of stored values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .._checkpoint import without_marks
from .._packed_rnn import PackedWeights
from ..base import shown
from ..ndarray import NDArray, load
from .base import InitDesc, Initializer, create, register

__all__ = ["FusedRNN", "Load", "Mixed"]


@register
class FusedRNN(Initializer):
    """The packed weights of `rnn.FusedRNNCell`: each piece by an initializer of its own.

    Parameters
    ----------
    init : Initializer, str or None
        For the pieces; None: the initializer of the whole model.
    num_hidden, num_layers, mode, bidirectional, forget_bias
        As for the cell.
    """

    def __init__(
        self,
        init: Any,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        init = create(init) if isinstance(init, str) else init
        super().__init__(
            init=None if init is None else init.dumps(), num_hidden=num_hidden,
            num_layers=num_layers, mode=mode, bidirectional=bidirectional, forget_bias=forget_bias,
        )  # fmt: skip
        self._init = init
        self._options = (num_hidden, num_layers, mode, bidirectional)
        self._forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        packed = PackedWeights(*self._options)
        pieces = packed.unpack({packed.key: arr})
        whole = getattr(name, "global_init", None)
        for piece, value in pieces.items():
            desc = InitDesc(piece, global_init=whole)
            if self._options[2] == "lstm" and piece.endswith("_f_bias"):
                value[:] = self._forget_bias
            elif self._init is not None:
                self._init(desc, value)
            elif whole is not None:
                whole(desc, value)
            else:
                raise ValueError(
                    f"FusedRNN: invalid init None for {name!r}: expected an initializer, or that "
                    "of a model"
                )
        arr[:] = packed.pack(pieces)[packed.key].reshape(arr.shape)


class Load:
    """Takes values from `param` (a dict or a file); `default_init` fills the others.

    Raises
    ------
    ValueError
        At the call, if the shapes differ, or a name is missing and there is no default.
    """

    def __init__(
        self,
        param: dict[str, NDArray] | str,
        default_init: Callable[[str, NDArray], None] | None = None,
        verbose: bool = False,
    ) -> None:
        if isinstance(param, str):
            loaded: dict[str, NDArray] = load(param)
        else:
            loaded = param
        self.param = without_marks(loaded)
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, arr: NDArray) -> None:
        if name in self.param:
            found = self.param[name]
            if found.shape != arr.shape:
                raise ValueError(
                    f"Parameter {name} cannot be initialized from loading: shape {found.shape}, "
                    f"expected {arr.shape}"
                )
            arr[:] = found
        elif self.default_init is not None:
            self.default_init(name, arr)
        else:
            raise ValueError(
                f"no value for '{name}': expected it in the loaded parameters, or default_init"
            )


def _compiled(pattern: Any) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (TypeError, re.error) as error:
        raise ValueError(
            f"Mixed: invalid pattern {shown(pattern)}: expected a regular expression ({error})"
        ) from error


class Mixed:
    """Uses the initializer whose pattern is the first that matches the name."""

    def __init__(
        self, patterns: Sequence[str], initializers: Sequence[Callable[[str, NDArray], None]]
    ) -> None:
        if len(patterns) != len(initializers):
            raise ValueError(
                f"Mixed: invalid number of patterns {len(patterns)}: expected {len(initializers)}, "
                "as of initializers"
            )
        self.map = list(zip(map(_compiled, patterns), initializers, strict=True))

    def __call__(self, name: str, arr: NDArray) -> None:
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        raise ValueError(
            f"Mixed: invalid name {name!r}: expected one that a pattern matches (a last pattern "
            "'.*' matches all)"
        )
