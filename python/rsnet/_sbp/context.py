"""What a function of ``sbp=`` gets, and the signatures that such functions make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..base import MXNetError
from .signature import B, OpArg, P, S, Sbp, Signature, TensorDesc


class SbpContext:
    """What a function of ``sbp=`` gets: one use of the operator, with the shapes of its inputs.

    Each ``NewBuilder()....Build()`` adds a signature. All inputs and outputs broadcast is valid for
    every operator and need not be added.
    """

    def __init__(
        self,
        op: str,
        inputs: dict[OpArg, TensorDesc],
        outputs: dict[OpArg, TensorDesc],
        attrs: dict[str, Any],
    ) -> None:
        self.op_type_name = op
        self._inputs, self._outputs, self._attrs = inputs, outputs, attrs
        self._made: list[Signature] = []
        self._begun: list[SignatureBuilder] = []
        self._is_over = False

    def inputs(self) -> list[OpArg]:
        """All inputs in the order of their declaration."""
        return list(self._inputs)

    def descriptions(self) -> tuple[list[Any], list[Any]]:
        """Shape and element type of all inputs, and of all outputs."""
        return list(self._inputs.values()), list(self._outputs.values())

    def attributes(self) -> dict[str, Any]:
        """All attributes by name."""
        return dict(self._attrs)

    def outputs(self) -> list[OpArg]:
        """All outputs in the order of their declaration."""
        return list(self._outputs)

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        if name not in self._attrs:
            raise MXNetError(
                f"{self.op_type_name}: invalid attribute '{name}': expected one of "
                f"{', '.join(self._attrs) or 'none'}"
            )
        return self._attrs[name]

    Attr = attr

    def LogicalTensorDesc4InputArgNameAndIndex(self, name: str, index: int = 0) -> TensorDesc:
        """Shape and dtype of an input."""
        return self._inputs[self._known(OpArg(name, index), self._inputs, "input")]

    def NewBuilder(self) -> SignatureBuilder:
        """Begins a signature."""
        self._check_use()
        builder = SignatureBuilder(self)
        self._begun.append(builder)
        return builder

    def _check_use(self) -> None:
        if self._is_over:
            raise MXNetError(
                f"{self.op_type_name}: invalid use of an SbpContext whose function has returned: "
                "expected one within it"
            )

    def _known(self, arg: OpArg, among: Iterable[OpArg], what: str) -> OpArg:
        known = list(among)
        if arg not in known:
            raise MXNetError(
                f"{self.op_type_name}: invalid {what} '{arg.name}' {arg.index} of an sbp "
                f"signature: expected one of {', '.join(f'{a.name!r} {a.index}' for a in known)}"
            )
        return arg

    def _desc(self, arg: OpArg) -> TensorDesc:
        return self._inputs[arg] if arg in self._inputs else self._outputs[arg]

    def _finished(self) -> list[Signature]:
        """The signatures with the one that is always valid, each once."""
        for builder in self._begun:
            raise MXNetError(
                f"{self.op_type_name}: invalid sbp signature '{Signature(builder._of)}', which was "
                "begun: expected Build() at its end"
            )
        self._is_over = True
        everything = [*self._inputs, *self._outputs]
        return list(dict.fromkeys([*self._made, Signature(dict.fromkeys(everything, B))]))


class SignatureBuilder:
    """A signature in the making. Arguments are an :class:`OpArg`, a pair, or a list of them."""

    def __init__(self, ctx: SbpContext) -> None:
        self._ctx = ctx
        self._of: dict[OpArg, Sbp] = {}

    def Split(self, args: Any, axis: int) -> SignatureBuilder:
        """These are split along an axis."""
        for arg in self._args(args):
            if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
                raise MXNetError(
                    f"{self._ctx.op_type_name}: invalid axis {axis!r} of argument '{arg.name}' "
                    f"{arg.index} in an sbp signature: expected an integer"
                )
            split = S(axis)
            rank = self._ctx._desc(arg).NumAxes()
            if not 0 <= split.axis < rank:  # type: ignore[operator]
                raise MXNetError(
                    f"{self._ctx.op_type_name}: invalid axis {axis} of argument '{arg.name}' "
                    f"{arg.index} in an sbp signature: expected 0 to {rank - 1}"
                )
            self._set(arg, split)
        return self

    def Broadcast(self, args: Any) -> SignatureBuilder:
        """Each rank has a copy of these."""
        for arg in self._args(args):
            self._set(arg, B)
        return self

    def PartialSum(self, args: Any) -> SignatureBuilder:
        """The sum over the ranks is the tensor."""
        for arg in self._args(args):
            self._set(arg, P)
        return self

    def Build(self) -> None:
        """Adds the signature; an error if it leaves an input or output out."""
        ctx = self._ctx
        ctx._check_use()
        everything = [*ctx._inputs, *ctx._outputs]
        for arg in everything:
            if arg not in self._of:
                raise MXNetError(
                    f"{ctx.op_type_name}: invalid sbp signature '{Signature(self._of)}': expected "
                    f"a distribution of argument '{arg.name}' {arg.index}"
                )
        ctx._made.append(Signature({arg: self._of[arg] for arg in everything}))
        ctx._begun = [builder for builder in ctx._begun if builder is not self]

    def _args(self, args: Any) -> Iterator[OpArg]:
        ctx = self._ctx
        if isinstance(args, str) or (
            isinstance(args, tuple) and len(args) == 2 and isinstance(args[0], str)
        ):
            args = [args]
        for arg in args:
            arg = OpArg(arg) if isinstance(arg, str) else OpArg(*arg)
            yield ctx._known(arg, [*ctx._inputs, *ctx._outputs], "argument")

    def _set(self, arg: OpArg, sbp: Sbp) -> None:
        before = self._of.setdefault(arg, sbp)
        if before != sbp:
            raise MXNetError(
                f"{self._ctx.op_type_name}: invalid {sbp} of argument '{arg.name}' {arg.index} in "
                f"an sbp signature: expected {before}, as before"
            )


def collected(ctx: SbpContext, rules: Sequence[Callable[[SbpContext], Any]]) -> list[Signature]:
    """The signatures that the rules make for the use of the operator that ``ctx`` describes."""
    for rule in rules:
        answer = rule(ctx)
        if not (answer is None or answer is True):
            text = answer if isinstance(answer, str) else f"it returned {answer!r}"
            raise MXNetError(f"{ctx.op_type_name}: the sbp function failed: {text}")
    return ctx._finished()
