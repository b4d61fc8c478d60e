"""SBP: how the tensors of an operator may be distributed over ranks.

A tensor on p ranks is split along an axis (``S(axis)``: the pieces, concatenated, are the tensor),
broadcast (``B``: each rank has a copy) or a partial sum (``P``: the tensors of the ranks add up to
it). A signature says so for every input and output of an operator. ``op.define(..., sbp=...)``
takes the signatures of a user operator: a function of a :class:`SbpContext`, or rules as text.
They are computed and checked whenever the operator is inferred for shapes that are new to it; a run
on one machine has no other use of them. ``signatures`` returns them.

>>> import rsnet as mx
>>> def rules(ctx):
...     for axis in range(ctx.LogicalTensorDesc4InputArgNameAndIndex("in", 0).NumAxes()):
...         ctx.NewBuilder().Split(mx.sbp.OpArg("in", 0), axis).Split(
...             mx.sbp.OpArg("out", 0), axis).Build()
>>> _ = mx.op.define("doc_sbp", inputs="in", sbp=rules,
...                  infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
>>> mx.sbp.signatures("doc_sbp", (4, 5))
[in:S(0) out:S(0), in:S(1) out:S(1), in:B out:B]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .base import MXNetError

if TYPE_CHECKING:
    from ._operators.user.inference import Inference

__all__ = [
    "B", "P", "S", "OpArg", "Sbp", "SbpContext", "Signature", "TensorDesc", "elementwise", "linear",
    "signatures",
]  # fmt: skip


class Sbp(NamedTuple):
    """One distribution: ``S(axis)``, ``B`` or ``P``."""

    kind: str
    axis: int | None = None

    def __repr__(self) -> str:
        return self.kind if self.axis is None else f"{self.kind}({self.axis})"


B, P = Sbp("B"), Sbp("P")


def S(axis: int) -> Sbp:
    """Split along an axis."""
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise MXNetError(f"invalid axis {axis!r} of S: expected an integer")
    return Sbp("S", int(axis))


class OpArg(NamedTuple):
    """Array ``index`` of an argument of an operator."""

    name: str
    index: int = 0  # type: ignore[assignment]


class TensorDesc(NamedTuple):
    """Shape and dtype of the whole (logical) tensor."""

    shape: tuple[int, ...]
    dtype: str

    def NumAxes(self) -> int:
        """Number of axes."""
        return len(self.shape)


class Signature:
    """The distribution of every input and output, by :class:`OpArg`."""

    __slots__ = ("of",)

    def __init__(self, of: dict[OpArg, Sbp]) -> None:
        self.of = of

    def __getitem__(self, arg: str | tuple[str, int]) -> Sbp:
        return self.of[OpArg(arg) if isinstance(arg, str) else OpArg(*arg)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self.of == other.of

    def __hash__(self) -> int:
        return hash(frozenset(self.of.items()))

    def __repr__(self) -> str:
        alone = {arg.name for arg in self.of} - {arg.name for arg in self.of if arg.index}
        names = (arg.name if arg.name in alone else f"{arg.name}[{arg.index}]" for arg in self.of)
        return " ".join(f"{name}:{sbp}" for name, sbp in zip(names, self.of.values(), strict=True))


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


# Ready-made rules -------------------------------------------------------------------------------


def elementwise(ctx: SbpContext) -> None:
    """``S(i)`` of all inputs gives ``S(i)`` of all outputs, for each axis i of the first input."""
    for axis in range(ctx.LogicalTensorDesc4InputArgNameAndIndex(*ctx.inputs()[0]).NumAxes()):
        ctx.NewBuilder().Split(ctx.inputs(), axis).Split(ctx.outputs(), axis).Build()


def linear(ctx: SbpContext) -> None:
    """As :func:`elementwise`, and partial sums of all inputs give partial sums of the outputs."""
    elementwise(ctx)
    ctx.NewBuilder().PartialSum(ctx.inputs()).PartialSum(ctx.outputs()).Build()


#: OneFlow's name.
SplitForEachAxis = elementwise


# Rules as text ----------------------------------------------------------------------------------

_LOOP = re.compile(r"(.*?)\s+for\s+(\w+)\s+in\s+axes\(\s*(\w+)\s*\)\s*\Z")
_TERM = re.compile(r"(\w+)(?:\[(\d+)\])?:(?:(B)|(P)|S\((?:(\d+)|([A-Za-z_]\w*)([+-]\d+)?)\))\Z")


class _Term(NamedTuple):
    """``x:S(i+1)`` or ``x[2]:B``."""

    name: str
    #: The only array that is meant, None for all of the argument.
    index: int | None  # type: ignore[assignment]
    kind: str
    #: The axis, or what is added to the variable of the loop.
    number: int
    variable: str | None


class _TextRule(NamedTuple):
    """``in:S(i) out:S(i) for i in axes(in)``."""

    terms: tuple[_Term, ...]
    loop_over: str | None

    def __call__(self, ctx: SbpContext) -> None:
        axes = range(1)
        if self.loop_over is not None:
            axes = range(ctx.LogicalTensorDesc4InputArgNameAndIndex(self.loop_over).NumAxes())
        for i in axes:
            builder = ctx.NewBuilder()
            for name, index, kind, number, variable in self.terms:
                arrays = [a for a in (*ctx.inputs(), *ctx.outputs()) if a.name == name]
                args = arrays if index is None else [OpArg(name, index)]
                if kind == "S":
                    builder.Split(args, number + (i if variable else 0))
                else:
                    (builder.Broadcast if kind == "B" else builder.PartialSum)(args)
            builder.Build()


def parse_rule(op: str, text: str, inputs: Sequence[str], outputs: Sequence[str]) -> _TextRule:
    def wrong(why: str) -> MXNetError:
        return MXNetError(f"{op}: invalid sbp rule '{text}': {why}")

    loop = _LOOP.match(text.strip())
    body, variable, over = loop.groups() if loop else (text, None, None)
    if over is not None and over not in inputs:
        raise wrong(f"axes({over}): expected an input, one of {', '.join(inputs) or 'none'}")
    terms = []
    for word in body.split():
        found = _TERM.match(word)
        if found is None:
            raise wrong(f"'{word}': expected name:B, name:P, name:S(0) or name:S(i)")
        name, index, b, p, axis, used, plus = found.groups()
        if name not in (*inputs, *outputs):
            raise wrong(f"'{name}': expected one of {', '.join((*inputs, *outputs))}")
        if used not in (None, variable):
            raise wrong(f"'{used}': expected the variable of a loop, 'for {used} in axes(...)'")
        number = int(axis or plus or 0)
        terms.append(
            _Term(name, None if index is None else int(index), b or p or "S", number, used)
        )
    missing = [name for name in (*inputs, *outputs) if name not in {t.name for t in terms}]
    if missing:
        raise wrong(f"expected a distribution of argument '{missing[0]}'")
    return _TextRule(tuple(terms), over)


# The hook of op.define --------------------------------------------------------------------------


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

    def both(self, conf: Any, shapes: Any, names: Any) -> Any:
        """Inference with signatures, see ``Inference.both``."""
        found = self._inference.both(conf, shapes, names)
        in_types, out_shapes, out_types = found
        self.signatures(conf, shapes, in_types, out_shapes, out_types)
        return found

    def shapes(self, conf: Any, ins: list[Any]) -> list[Any]:
        return self._inference.shapes(conf, ins)

    def types(self, conf: Any, ins: list[Any]) -> Any:
        return self._inference.types(conf, ins)

    def signatures(
        self, conf: Any, shapes: Any, in_types: Any, out_shapes: Any, out_types: Any
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

    def _run(self, conf: Any, ins: Any, outs: Any) -> list[Signature]:
        d = self._definition
        inputs, outputs = (
            dict(zip((OpArg(a.name, i) for a in args for i in range(conf.counts[a.name])), descs,
                     strict=True))
            for args, descs in ((d.inputs, ins), (d.outputs, outs))
        )  # fmt: skip
        ctx = SbpContext(d.name, inputs, outputs, conf.attrs)
        for rule in self._rules:
            answer = rule(ctx)
            if not (answer is None or answer is True):
                text = answer if isinstance(answer, str) else f"it returned {answer!r}"
                raise MXNetError(f"{d.name}: the sbp function failed: {text}")
        return ctx._finished()


# Query ------------------------------------------------------------------------------------------


def _shape(op: str, i: int, given: Any) -> tuple[int, ...]:
    shape = getattr(given, "shape", given)
    is_shape = isinstance(shape, tuple | list) and all(
        isinstance(extent, int | np.integer) and not isinstance(extent, bool) and extent >= 0
        for extent in shape
    )
    if not is_shape:
        raise MXNetError(
            f"{op}: invalid input {i}, {given!r}: expected an array or a shape, a tuple of int"
        )
    return tuple(map(int, shape))


def signatures(op: str, *inputs: Any, **attrs: Any) -> list[Signature]:
    """The valid signatures of an operator for inputs of these shapes.

    Parameters
    ----------
    op : str
        A user operator, or one of those of `rsnet.sbp_rules.RULES`.
    *inputs : tuple of int or NDArray
        Shapes, of type float32, or arrays.
    **attrs
        The operator's attributes.

    Returns
    -------
    list of Signature
        The last is always all broadcast.

    Raises
    ------
    MXNetError
        The operator has no rules here, or inputs and attributes do not fit it.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.sbp.signatures("relu", (4, 5))
    [data:S(0) out:S(0), data:S(1) out:S(1), data:B out:B]
    """
    from ._operators.registry import user_operators
    from .sbp_rules import RULES, by_table

    shapes = [_shape(op, i, x) for i, x in enumerate(inputs)]
    types = [np.dtype(getattr(x, "dtype", "float32")).name for x in inputs]
    d = user_operators.get(op)
    # OneFlow's own operators, which are hidden here, have no rules of their own.
    if d is None or (d.registered != op and op in RULES):
        if op not in RULES:
            raise MXNetError(
                f"invalid operator '{op}': expected a user operator, or one of {', '.join(RULES)}"
            )
        return by_table(op, shapes, attrs)
    values = {k: d.attrs[k].normal(op, k, v) if k in d.attrs else v for k, v in attrs.items()}
    counts = d.share_out(len(shapes)) if d.variable else {}
    conf = d.conf(counts, values)
    if len(conf.facts.inputs) != len(shapes):
        raise MXNetError(f"{op}: {len(shapes)} inputs given, expected {len(conf.facts.inputs)}")
    inference = d.inference
    if not isinstance(inference, CheckedInference):
        inference = CheckedInference(d, [], inference)
    in_types, out_shapes, out_types = inference.both(conf, shapes, types)
    return inference.signatures(conf, shapes, in_types, out_shapes, out_types)
