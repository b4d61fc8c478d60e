"""Gradients of user operators: what a gradient function sees, and OneFlow's lazy operator
recipes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._graph_rule import INPUT, OUT_GRAD, OUTPUT, Entry, Rule
from ._user_op_def import Conf
from .base import MXNetError


class ForwardOp:
    """``ctx.FwOp()``: the operator that is differentiated."""

    def __init__(self, ctx: GradContext) -> None:
        self._ctx = ctx

    @property
    def name(self) -> str:
        return self._ctx.op_name

    def input(self, arg: str, i: int = 0) -> Entry:
        return self._ctx.inp(arg, i)

    def output(self, arg: str, i: int = 0) -> Entry:
        return self._ctx.out(arg, i)

    def output_grad(self, arg: str, i: int = 0) -> Entry:
        return self._ctx.grad(arg, i)

    def attr(self, name: str) -> Any:
        return self._ctx.attr(name)

    def NeedGenGradTensor4OpInput(self, arg: str, i: int = 0) -> bool:
        return self._ctx.needs(arg, i)

    def InputGradBind(self, where: tuple[str, int] | str, fn: Callable[[], Entry]) -> None:
        self._ctx.bind(where, fn)


class BuiltOp:
    """An operator of the backward graph: its results by name."""

    def __init__(self, conf: Conf, results: list[Entry], inputs: dict[str, list[Entry]]) -> None:
        self._conf, self._results, self._inputs = conf, results, inputs

    def output(self, arg: str, i: int = 0) -> Entry:
        return self._results[self._conf.position(arg, i, self._conf.definition.outputs)]

    def input(self, arg: str, i: int = 0) -> Entry:
        return self._inputs[arg][i]


class Builder:
    """``b`` in a recipe: OneFlow's chained description of one operator; inputs are appended."""

    def __init__(self, rule: Rule, name: str) -> None:
        self._rule, self._name = rule, name
        self._type = ""
        self._inputs: dict[str, list[Entry]] = {}
        self._outputs: dict[str, int] = {}
        self._attrs: dict[str, Any] = {}

    def OpTypeName(self, name: str) -> Builder:
        self._type = name
        return self

    Op = OpTypeName

    def InputBind(self, arg: str, entry: Entry) -> Builder:
        self._inputs.setdefault(arg, []).append(entry)
        return self

    Input = InputBind

    def Output(self, arg: str, n: int = 1) -> Builder:
        self._outputs[arg] = n
        return self

    def Attr(self, name: str, value: Any) -> Builder:
        self._attrs[name] = value
        return self

    def Build(self) -> BuiltOp:
        from ._user_op_builder import checked_conf, core_params
        from .user_op import definition

        d = definition(self._type)
        counts = {arg: len(entries) for arg, entries in self._inputs.items()}
        conf = checked_conf(d, counts, self._outputs, self._attrs)
        flat = [e for arg in d.inputs for e in self._inputs.get(arg.name, ())]
        results = self._rule.call(
            d.registered,
            flat,
            core_params(conf),
            name=self._name,
            outputs=len(conf.facts.outputs),
        )
        return BuiltOp(conf, results, self._inputs)


class GradContext:
    """What a gradient function sees.

    ``inp``, ``out`` and ``grad`` are entries for arithmetic; ``bind(input, function)`` calls the
    function at once, and only if that input needs a gradient. ``define(name, recipe)`` and
    ``get(name)`` build an operator the first time it is asked for.
    """

    def __init__(self, conf: Conf, rule: Rule, name: str, needed: list[bool]) -> None:
        self._conf, self._rule, self._needed = conf, rule, needed
        self.op_name = name or conf.definition.name
        self._inputs = rule.entries(INPUT, len(conf.facts.inputs))
        self._outputs = rule.entries(OUTPUT, len(conf.facts.outputs))
        self._grads = rule.entries(OUT_GRAD, len(conf.facts.outputs))
        self._recipes: dict[str, Callable[[Builder], BuiltOp]] = {}
        self._built: dict[str, BuiltOp] = {}
        self.results: list[Entry | None] = [None] * len(needed)
        self.bound = [False] * len(needed)

    def _input(self, arg: str, i: int) -> int:
        return self._conf.position(arg, i, self._conf.definition.inputs)

    def inp(self, arg: str, i: int = 0) -> Entry:
        return self._inputs[self._input(arg, i)]

    def out(self, arg: str, i: int = 0) -> Entry:
        return self._outputs[self._conf.position(arg, i, self._conf.definition.outputs)]

    def grad(self, arg: str, i: int = 0) -> Entry:
        """The gradient of an output; zeros if nobody differentiates it."""
        return self._grads[self._conf.position(arg, i, self._conf.definition.outputs)]

    def attr(self, name: str) -> Any:
        return self._conf.attr(name)

    def needs(self, arg: str, i: int = 0) -> bool:
        return self._needed[self._input(arg, i)]

    def op(self, op_type: str, *inputs: Entry, outputs: int = 1, **params: Any) -> Any:
        """Runs any registered operator; returns its result, or a list if there are several."""
        made = self._rule.call(op_type, inputs, params, outputs=outputs)
        return made[0] if outputs == 1 else made

    def bind(self, where: tuple[str, int] | str, fn: Callable[[], Entry] | Entry) -> None:
        arg, i = (where, 0) if isinstance(where, str) else where
        at = self._input(arg, i)
        what = f"gradient of {self.op_name}: bind to '{self._conf.facts.inputs[at]}'"
        if self.bound[at]:
            raise MXNetError(f"{what}: it has a gradient already, bind the sum of both")
        if not isinstance(fn, Entry) and not callable(fn):
            raise MXNetError(f"{what}: got {fn!r}, expected a function that returns an entry")
        if self._needed[at]:
            made = fn() if callable(fn) else fn
            if not isinstance(made, Entry):
                raise MXNetError(
                    f"{what}: the function returned {made!r}, expected an entry "
                    f"(for no gradient: ctx.op('zeros_like', ctx.inp('{arg}', {i})))"
                )
            self.results[at] = made
        self.bound[at] = True

    def define(self, name: str, recipe: Callable[[Builder], BuiltOp]) -> None:
        if name in self._recipes:
            raise MXNetError(f"gradient of {self.op_name}: operator '{name}' is defined twice")
        self._recipes[name] = recipe

    def get(self, name: str) -> BuiltOp:
        if name not in self._built:
            if name not in self._recipes:
                raise MXNetError(f"gradient of {self.op_name}: operator '{name}' is not defined")
            self._built[name] = self._recipes[name](Builder(self._rule, name))
        return self._built[name]

    DefineOp = define
    GetOp = get

    def FwOp(self) -> ForwardOp:
        return ForwardOp(self)


def gradient_rule(d: Any) -> Callable[..., Any]:
    """The core's gradient rule of a user operator."""

    def rule(conf: Conf, name: str, needed: list[bool], present: list[bool], n_out: int) -> Any:
        if d.grad is None:
            raise MXNetError(
                f"{d.name} '{name}': gradient function not found (attributes {conf.attrs})"
            )
        program = Rule()
        ctx = GradContext(conf, program, name, list(needed))
        d.grad(ctx)
        for i, (bound, wanted) in enumerate(zip(ctx.bound, needed)):
            if wanted and not bound:
                raise MXNetError(
                    f"{d.name} '{name}': the gradient function bound no gradient to input "
                    f"'{conf.facts.inputs[i]}'"
                )
        return program.program(d.name, ctx.results, len(needed))

    return rule
