"""Signatures of common operators and the cost of changing a distribution, as data.

Nothing on one machine needs them; they are the table by which a distributed run chooses
signatures and collectives (OneFlow, arXiv 2110.15032). ``RULES`` has a function per operator name,
from shapes and attributes to signatures; ``BOXING`` a row per pair of distributions.

>>> import rsnet as mx
>>> mx.sbp.signatures("dot", (4, 5), (5, 6))
... # doctest: +NORMALIZE_WHITESPACE
[lhs:S(0) rhs:B out:S(0), lhs:B rhs:S(1) out:S(1), lhs:S(1) rhs:S(0) out:P,
 lhs:P rhs:B out:P, lhs:B rhs:P out:P, lhs:B rhs:B out:B]
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ._operators import publish, registry
from ._sbp.boxing import BOXING, Boxing, boxing
from ._sbp.signature import B, OpArg, Signature
from ._sbp.table import RULES, Rules, Shapes
from .base import MXNetError
from .symbol import var
from .symbol.register import function

__all__ = ["BOXING", "RULES", "Boxing", "Rules", "boxing", "by_table"]

#: Parameters that an operator needs and its signatures do not depend on, from its shapes.
_COMPLETIONS: dict[str, Callable[[Shapes], dict[str, Any]]] = {
    "FullyConnected": lambda s: {"num_hidden": s[1][0], "no_bias": len(s) == 2},
    "Convolution": lambda s: {"num_filter": s[1][0], "kernel": s[1][2:], "no_bias": len(s) == 2},
    "Embedding": lambda s: {"input_dim": s[1][0], "output_dim": s[1][1]},
    "clip": lambda s: {"a_min": 0, "a_max": 1},
    "Cast": lambda s: {"dtype": "float32"},
    "cast": lambda s: {"dtype": "float32"},
}


def _check_shapes(op: str, shapes: Shapes, attrs: dict[str, Any]) -> None:
    """Infers the operator's output, if it is built in: an error if something does not fit."""
    if registry.version(op) is None:
        return
    params = attrs
    if op in _COMPLETIONS:
        with contextlib.suppress(IndexError):  # a weight of too few axes is refused by inference
            params = _COMPLETIONS[op](shapes) | attrs
    inputs = [var(f"input{i}", shape=shape) for i, shape in enumerate(shapes)]
    function(op)(*inputs, **params, name=op).infer_shape()


def by_table(op: str, shapes: Shapes, attrs: dict[str, Any]) -> list[Signature]:
    """The signatures of an operator of ``RULES``, the one that is all broadcast last."""
    names = RULES[op].inputs
    variable = names[-1].startswith("*")
    if variable:
        args = [OpArg(names[-1][1:], i) for i in range(len(shapes))]
    else:
        args = [OpArg(name) for name in names[: len(shapes)]]
    # A bias may be left out; every other input must be there.
    least = len(names) - (names[-1] == "bias" and op != "bias_add")
    if not shapes or (not variable and not least <= len(shapes) <= len(names)):
        raise MXNetError(f"{op}: {len(shapes)} inputs given, expected {', '.join(names)}")
    _check_shapes(op, shapes, attrs)
    everything = [*args, OpArg("out")]
    rows = [*RULES[op].rows(shapes, attrs), (B,) * len(everything)]
    return list(dict.fromkeys(Signature(dict(zip(everything, r, strict=True))) for r in rows))


publish(__name__, [globals()[name] for name in __all__])
