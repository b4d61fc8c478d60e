"""SBP signatures of user operators, by the rules of ``op.define(sbp=...)``."""

from __future__ import annotations

import functools
from typing import Any

from ..._sbp.context import SbpContext, collected
from ..._sbp.rules import parse_rule
from ..._sbp.signature import OpArg, Signature, TensorDesc
from ..checks import invalid
from .arguments import Conf

#: Shapes and attributes whose signatures are kept.
MOST_KEPT = 256


class Signatures:
    """Computes and checks the signatures of a user operator.

    The operator's inference asks for them. Errors of the rules so appear where the operator is used
    first, on one machine too.
    """

    def __init__(self, definition: Any, sbp: Any) -> None:
        op = definition.name
        self._definition = definition
        ins, outs = [a.name for a in definition.inputs], [a.name for a in definition.outputs]
        given = [sbp] if isinstance(sbp, str) or callable(sbp) else sbp
        if not isinstance(given, list | tuple) or not all(
            isinstance(rule, str) or callable(rule) for rule in given
        ):
            forms = (
                "a function of an SbpContext, a rule such as 'in:S(i) out:S(i) for i in axes(in)', "
                "or a list of them"
            )
            raise invalid(op, "sbp", sbp, forms)
        self._rules: list[Any] = [
            parse_rule(op, rule, ins, outs) if isinstance(rule, str) else rule for rule in given
        ]
        self._kept = functools.lru_cache(MOST_KEPT)(self._run)

    def __call__(
        self, conf: Conf, shapes: Any, in_types: Any, out_shapes: Any, out_types: Any
    ) -> list[Signature]:
        """The signatures for these tensors."""
        ins, outs = (
            tuple(TensorDesc(tuple(s), str(t)) for s, t in zip(shapes, types, strict=True))
            for shapes, types in ((shapes, in_types), (out_shapes, out_types))
        )
        return self._kept(ins, outs, tuple(conf.counts.items()), tuple(conf.attrs.items()))

    def _run(self, ins: Any, outs: Any, counts: Any, attrs: Any) -> list[Signature]:
        d, n = self._definition, dict(counts)
        inputs, outputs = (
            dict(zip([OpArg(a.name, i) for a in args for i in range(n[a.name])], of, strict=True))
            for args, of in ((d.inputs, ins), (d.outputs, outs))
        )
        return collected(SbpContext(d.name, inputs, outputs, dict(attrs)), self._rules)
