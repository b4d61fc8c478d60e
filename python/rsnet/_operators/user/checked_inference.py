"""Inference with the rules of ``op.define(sbp=...)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._sbp.context import SbpContext, collected
from ..._sbp.rules import parse_rule
from ..._sbp.signature import OpArg, Signature, TensorDesc
from ...base import MXNetError
from .conf import Conf
from .inference import Found, Inference, Types


class CheckedInference:
    """The inference of a user operator that also computes and checks its signatures.

    ``op.define`` puts it around the operator's own inference. Errors of the rules so appear where
    the operator is used first, on one machine too.
    """

    #: Shapes and attributes whose signatures are kept.
    MOST_KEPT = 256

    def __init__(self, definition: Any, sbp: Any, inference: Inference) -> None:
        op = definition.name
        self._inference = inference
        self._definition = definition
        ins, outs = [a.name for a in definition.inputs], [a.name for a in definition.outputs]
        given = [sbp] if isinstance(sbp, str) or callable(sbp) else sbp
        if not isinstance(given, list | tuple) or not all(
            isinstance(rule, str) or callable(rule) for rule in given
        ):
            raise MXNetError(
                f"{op}: invalid sbp {sbp!r}: expected a function of an SbpContext, a rule such as "
                "'in:S(i) out:S(i) for i in axes(in)', or a list of them"
            )
        self._rules: list[Callable[[SbpContext], Any]] = []
        for rule in given:
            parsed: Any = parse_rule(op, rule, ins, outs) if isinstance(rule, str) else rule
            self._rules.append(parsed)
        self._kept: dict[Any, list[Signature]] = {}

    def both(self, conf: Conf, shapes: Sequence[Any], names: list[Any]) -> Found:
        """Inference with signatures, see ``Inference.both``."""
        found = self._inference.both(conf, shapes, names)
        in_types, out_shapes, out_types = found
        self.signatures(conf, shapes, in_types, out_shapes, out_types)
        return found

    def shapes(self, conf: Conf, ins: list[Any]) -> list[Any]:
        return self._inference.shapes(conf, ins)

    def types(self, conf: Conf, ins: list[Any]) -> Types | None:
        return self._inference.types(conf, ins)

    def signatures(
        self, conf: Conf, shapes: Any, in_types: Any, out_shapes: Any, out_types: Any
    ) -> list[Signature]:
        """The signatures for these tensors."""
        descs = [
            tuple(TensorDesc(tuple(s), str(t)) for s, t in zip(shapes, types, strict=True))
            for shapes, types in ((shapes, in_types), (out_shapes, out_types))
        ]
        key = (*descs, tuple(conf.counts.items()), tuple(conf.attrs.items()))
        kept = self._kept.get(key)
        if kept is None:
            kept = self._run(conf, *descs)
            while len(self._kept) >= self.MOST_KEPT:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[key] = kept
        return kept

    def _run(self, conf: Conf, ins: Any, outs: Any) -> list[Signature]:
        d = self._definition
        inputs, outputs = (
            dict(zip((OpArg(a.name, i) for a in args for i in range(conf.counts[a.name])), descs,
                     strict=True))
            for args, descs in ((d.inputs, ins), (d.outputs, outs))
        )  # fmt: skip
        return collected(SbpContext(d.name, inputs, outputs, conf.attrs), self._rules)
