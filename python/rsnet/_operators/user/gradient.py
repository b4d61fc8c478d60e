"""Gradients of user operators: the context of a gradient function, and the rule made of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import registry
from ..checks import TYPES, fail, invalid
from ..gradient import GradEntry, Rule, Source
from .arguments import Conf
from .contexts import InputDesc, OperandDesc, _Context


class RuleContext(_Context):
    """What a gradient function sees, without the words that an interface may add."""

    def __init__(
        self, conf: Conf, rule: Rule, name: str, needed: list[bool], specs: Sequence[Any] = ()
    ) -> None:
        n_in, n_out = len(conf.facts.inputs), len(conf.facts.outputs)
        ins, outs = rule.entries(Source.INPUT, n_in), rule.entries(Source.OUTPUT, n_out)
        super().__init__(conf, ins, outs)
        self._grads = rule.entries(Source.OUT_GRAD, n_out)
        self.rule, self._needed, self._specs = rule, needed, specs
        self.op_name = name or conf.definition.name
        self.results: list[GradEntry | None] = [None] * len(needed)
        self.bound = [False] * len(needed)

    def __getattr__(self, name: str) -> Any:
        text = f"{type(self).__name__} has no attribute {name!r}"
        raise AttributeError(text + registry.nearest(name, dir(type(self))), name=name)

    def grad(self, arg: str, i: int = 0) -> GradEntry:
        """The gradient of an output; zeros if none arrives."""
        return self._grads[self.conf.output(arg, i)]

    def needs(self, arg: str, i: int = 0) -> bool:
        return self._needed[self.conf.input(arg, i)]

    def op(self, op_type: str, *inputs: GradEntry, outputs: int = 1, **params: Any) -> Any:
        """Runs any registered operator; returns its result, or a list if there are several."""
        return self.rule.run(op_type, inputs, params, outputs, "")

    def bind(self, where: tuple[str, int] | str, fn: Callable[[], GradEntry] | GradEntry) -> None:
        arg, i = (where, 0) if isinstance(where, str) else where
        at = self.conf.input(arg, i)
        rule, what = f"gradient of {self.op_name}", f"gradient of '{self.conf.facts.inputs[at]}'"
        if self.bound[at]:
            raise fail(rule, f"invalid second {what}: expected the sum of both")
        made = fn() if self._needed[at] and callable(fn) else fn
        if isinstance(made, GradEntry):
            self.results[at] = made if self._needed[at] else None
        elif self._needed[at] or not callable(fn):
            none = f"for no gradient: ctx.op('zeros_like', ctx.inp('{arg}', {i}))"
            raise invalid(rule, what, made, f"a GradEntry, or a function that returns one ({none})")
        self.bound[at] = True

    def desc(self, arg: str, i: int = 0) -> OperandDesc:
        """Shape and element type of an input or output, by ``shape`` and ``dtype``.

        Raises
        ------
        rsnet.MXNetError
            A graph is differentiated, whose shapes are inferred afterwards.
        """
        is_input = any(a.name == arg for a in self.conf.definition.inputs)
        at = self.conf.input(arg, i) if is_input else self.conf.output(arg, i)
        specs = self._specs[0 if is_input else 1] if self._specs else ()
        spec = specs[at] if at < len(specs) else None
        if spec is None:
            known = "not known while a graph is differentiated, only while a recorded call is"
            hint = "compose operators that take them from their inputs, such as reshape_like"
            what = f"shape and dtype of '{arg}' are {known}: {hint}"
            raise fail(f"gradient of {self.op_name}", what)
        return InputDesc(tuple(spec[0]), TYPES[spec[1]])


class Gradient(NamedTuple):
    """A gradient function, and the class of the contexts that it gets."""

    function: Callable[[Any], Any]
    context: type[RuleContext]


def gradient_rule(d: Any) -> Callable[..., Any]:
    """The core's gradient rule of a user operator."""

    def rule(
        conf: Conf, name: str, needed: list[bool], present: list[bool], n_out: int, specs: Any
    ) -> Any:
        where = f"{d.name} '{name}'" if name else d.name
        if d.grad is None:
            raise fail(where, f"has no gradient: expected one, by op.grad('{d.name}')")
        program = Rule()
        ctx = d.grad.context(conf, program, name, list(needed), specs)
        d.grad.function(ctx)
        for i, (bound, wanted) in enumerate(zip(ctx.bound, needed)):
            if wanted and not bound:
                none = f"expected a gradient of input '{conf.facts.inputs[i]}', got none"
                raise fail(where, f"{none}: a function of op.grad gives each input one by ctx.bind")
        return program.program(d.name, ctx.results, len(needed))

    return rule
