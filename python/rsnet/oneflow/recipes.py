"""What gradient functions in OneFlow's words use: recipes, and the operator that is differentiated.

A recipe describes one operator of the backward graph, which is built when a gradient first asks for
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._operators.checks import fail, unknown
from .._operators.gradient import GradEntry
from .._operators.user.arguments import Conf
from .._operators.user.gradient import GradContext
from .builder import OperatorBuilder


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


class RecipeBuilder(OperatorBuilder):
    """The argument of a recipe: a chained description of one operator of the backward graph."""

    def __init__(self, ctx: GradContext, name: str) -> None:
        super().__init__(name)
        self._rule = ctx.rule

    def Build(self) -> BuiltOp:
        """Checks the description and appends the operator to the gradient."""
        conf, flat = self._checked()
        d, n_out = conf.definition, len(conf.facts.outputs)
        params = d.call_params(conf)
        results = self._rule.call(d.registered, flat, params, name=self._name, outputs=n_out)
        return BuiltOp(conf, results, self._inputs)


class ForwardOp:
    """``ctx.FwOp()``: the operator that is differentiated."""

    def __init__(self, ctx: GradContext) -> None:
        self.name = ctx.op_name
        self.input, self.output, self.output_grad = ctx.inp, ctx.out, ctx.grad
        self.attr, self.arg_tensor_desc = ctx.attr, ctx.desc
        self.NeedGenGradTensor4OpInput, self.InputGradBind = ctx.needs, ctx.bind

    def op_name(self) -> str:
        """The name of the node; that of the operator for a recorded call."""
        return self.name


class Recipes:
    """OneFlow's words of one gradient context."""

    def __init__(self, ctx: GradContext) -> None:
        self._ctx, self._where = ctx, f"gradient of {ctx.op_name}"
        self._by_name: dict[str, Any] = {}

    def define(self, name: str, recipe: Callable[[RecipeBuilder], BuiltOp]) -> None:
        """Names a recipe."""
        if name in self._by_name:
            raise fail(self._where, f"invalid second operator '{name}': expected one")
        self._by_name[name] = recipe

    def get(self, name: str) -> Any:
        """The operator of a recipe, built the first time."""
        recipes = self._by_name
        if name not in recipes:
            raise unknown(self._where, "operator", name, recipes)
        if not isinstance(recipes[name], BuiltOp):
            recipes[name] = recipes[name](RecipeBuilder(self._ctx, name))
        return recipes[name]

    def FwOp(self) -> ForwardOp:
        """The operator that is differentiated."""
        return ForwardOp(self._ctx)

    DefineOp, GetOp = define, get
