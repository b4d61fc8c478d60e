"""Gradients of user operators: the context of a gradient function, and recipes of operators that
are built when a gradient uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base import MXNetError
from ..checks import TYPES, fail, unknown
from ..gradient import GradEntry, Rule, Source
from .builder import OperatorBuilder
from .conf import Conf
from .contexts import InputDesc, TensorDesc, _Context


class ForwardOp:
    """``ctx.FwOp()``: the operator that is differentiated, in OneFlow's words."""

    def __init__(self, ctx: GradContext) -> None:
        self.name = ctx.op_name
        self.input, self.output, self.output_grad = ctx.inp, ctx.out, ctx.grad
        self.attr, self.arg_tensor_desc = ctx.attr, ctx.desc
        self.NeedGenGradTensor4OpInput, self.InputGradBind = ctx.needs, ctx.bind

    def op_name(self) -> str:
        """The name of the node; that of the operator for a recorded call."""
        return self.name


class BuiltOp:
    """An operator of the backward graph: its results by name."""

    def __init__(
        self, conf: Conf, results: list[GradEntry], inputs: dict[str, list[GradEntry]]
    ) -> None:
        self._conf, self._results, self._inputs = conf, results, inputs

    def output(self, arg: str, i: int = 0) -> GradEntry:
        return self._results[self._conf.position(arg, i, self._conf.definition.outputs)]

    def input(self, arg: str, i: int = 0) -> GradEntry:
        return self._inputs[arg][i]


class Builder(OperatorBuilder):
    """The argument of a recipe: a chained description of one operator of the backward graph."""

    def __init__(self, rule: Rule, name: str) -> None:
        super().__init__(name)
        self._rule = rule

    def Build(self) -> BuiltOp:
        """Checks the description and appends the operator to the gradient."""
        d, conf, flat, params = self._checked()
        results = self._rule.call(
            d.registered, flat, params, name=self._name, outputs=len(conf.facts.outputs)
        )
        return BuiltOp(conf, results, self._inputs)


class GradContext(_Context):
    """What a gradient function sees.

    ``inp``, ``out`` and ``grad`` are entries for arithmetic; ``bind(input, function)`` calls the
    function at once, and only if that input needs a gradient. ``define(name, recipe)`` and
    ``get(name)`` build an operator the first time it is asked for.
    """

    __slots__ = ("op_name", "results", "bound", "_rule", "_needed", "_grads", "_specs",
                 "_recipes", "_built")  # fmt: skip

    def __init__(
        self, conf: Conf, rule: Rule, name: str, needed: list[bool], specs: Sequence[Any] = ()
    ) -> None:
        n_out = len(conf.facts.outputs)
        super().__init__(
            conf,
            rule.entries(Source.INPUT, len(conf.facts.inputs)),
            rule.entries(Source.OUTPUT, n_out),
        )
        self._grads = rule.entries(Source.OUT_GRAD, n_out)
        self._rule, self._needed, self._specs = rule, needed, specs
        self.op_name = name or conf.definition.name
        self._recipes: dict[str, Callable[[Builder], BuiltOp]] = {}
        self._built: dict[str, BuiltOp] = {}
        self.results: list[GradEntry | None] = [None] * len(needed)
        self.bound = [False] * len(needed)

    def _fail(self, message: str) -> MXNetError:
        return fail(f"gradient of {self.op_name}", message)

    def _input(self, arg: str, i: int) -> int:
        return self.conf.position(arg, i, self.conf.definition.inputs)

    def grad(self, arg: str, i: int = 0) -> GradEntry:
        """The gradient of an output; zeros if none arrives."""
        return self._grads[self.conf.position(arg, i, self.conf.definition.outputs)]

    def needs(self, arg: str, i: int = 0) -> bool:
        return self._needed[self._input(arg, i)]

    def op(self, op_type: str, *inputs: GradEntry, outputs: int = 1, **params: Any) -> Any:
        """Runs any registered operator; returns its result, or a list if there are several."""
        return self._rule.run(op_type, inputs, params, outputs, "")

    def bind(self, where: tuple[str, int] | str, fn: Callable[[], GradEntry] | GradEntry) -> None:
        arg, i = (where, 0) if isinstance(where, str) else where
        at = self._input(arg, i)
        what = f"gradient of {self.op_name}: bind to '{self.conf.facts.inputs[at]}'"
        if self.bound[at]:
            raise fail(what, "it has a gradient already, bind the sum of both")
        if not isinstance(fn, GradEntry) and not callable(fn):
            raise fail(what, f"got {fn!r}, expected a function that returns an entry")
        if self._needed[at]:
            made = fn() if callable(fn) else fn
            if not isinstance(made, GradEntry):
                raise fail(
                    what,
                    f"the function returned {made!r}, expected an entry "
                    f"(for no gradient: ctx.op('zeros_like', ctx.inp('{arg}', {i})))",
                )
            self.results[at] = made
        self.bound[at] = True

    def desc(self, arg: str, i: int = 0) -> TensorDesc:
        """Shape and element type of an input or output, by ``shape`` and ``dtype``.

        Raises
        ------
        rsnet.MXNetError
            A graph is differentiated, whose shapes are inferred afterwards.
        """
        d = self.conf.definition
        is_input = any(a.name == arg for a in d.inputs)
        at = self.conf.position(arg, i, d.inputs if is_input else d.outputs)
        specs = self._specs[0 if is_input else 1] if self._specs else ()
        spec = specs[at] if at < len(specs) else None
        if spec is None:
            raise self._fail(
                f"shape and dtype of '{arg}' are not known while a graph is differentiated, only "
                "while a recorded call is: compose operators that take them from their inputs, "
                "such as reshape_like"
            )
        return InputDesc(tuple(spec[0]), TYPES[spec[1]])

    def define(self, name: str, recipe: Callable[[Builder], BuiltOp]) -> None:
        if name in self._recipes:
            raise self._fail(f"operator '{name}' is defined twice")
        self._recipes[name] = recipe

    def get(self, name: str) -> BuiltOp:
        if name not in self._built:
            if name not in self._recipes:
                raise unknown(f"gradient of {self.op_name}", "operator", name, self._recipes)
            self._built[name] = self._recipes[name](Builder(self._rule, name))
        return self._built[name]

    DefineOp = define
    GetOp = get

    def FwOp(self) -> ForwardOp:
        return ForwardOp(self)


def gradient_rule(d: Any) -> Callable[..., Any]:
    """The core's gradient rule of a user operator."""

    def rule(
        conf: Conf, name: str, needed: list[bool], present: list[bool], n_out: int, specs: Any
    ) -> Any:
        where = f"{d.name} '{name}'"
        if d.grad is None:
            raise fail(where, f"gradient function not found (attributes {conf.attrs})")
        program = Rule()
        ctx = GradContext(conf, program, name, list(needed), specs)
        d.grad(ctx)
        for i, (bound, wanted) in enumerate(zip(ctx.bound, needed)):
            if wanted and not bound:
                raise fail(
                    where,
                    f"the gradient function bound no gradient to input '{conf.facts.inputs[i]}'",
                )
        return program.program(d.name, ctx.results, len(needed))

    return rule
