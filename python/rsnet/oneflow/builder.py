"""OneFlow's way of calling a user operator: ``user_op_builder``, on NDArrays and on symbols, and
what gradient functions in OneFlow's words use.

These describe operators of the backward graph by recipes: one is built when a gradient first asks
for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .. import ndarray, symbol
from .._operators.checks import fail, invalid, is_integer, lookup
from .._operators.gradient import GradEntry
from .._operators.registry import definition
from .._operators.user.arguments import Conf
from .._operators.user.gradient import RuleContext
from .job import running

B = TypeVar("B", bound="OperatorBuilder")


class OperatorBuilder:
    """Collects operator, inputs, outputs and attributes; subclasses build from them."""

    _operands: tuple[type, ...] = (object,)

    def __init__(self, name: str) -> None:
        self._name = name
        self._definition: Any = None
        self._inputs: dict[str, list[Any]] = {}
        self._outputs: dict[str, int] = {}
        self._attrs: dict[str, Any] = {}

    def Op(self: B, op_type_name: str) -> B:
        """Chooses the operator; comes before all others."""
        self._definition = definition(op_type_name)
        return self

    OpTypeName = Op

    def _chosen(self, call: str) -> Any:
        if self._definition is None:
            raise fail(f"user_op_builder('{self._name}')", f"expected a call of Op before {call}")
        return self._definition

    def Input(self: B, arg: str, blobs: Sequence[Any]) -> B:
        """Binds the arrays of an input argument; a second call replaces."""
        d = self._chosen("Input")
        if not isinstance(blobs, (list, tuple)):
            raise invalid(d.name, f"Input('{arg}')", blobs, "a list")
        for blob in blobs:
            if not isinstance(blob, self._operands):
                raise invalid(d.name, f"item of Input('{arg}')", blob, "an NDArray or a symbol")
        self._inputs[arg] = list(blobs)
        return self

    def InputBind(self: B, arg: str, blob: Any) -> B:
        """Appends an array to an input argument."""
        self._inputs.setdefault(arg, []).append(blob)
        return self

    def Output(self: B, arg: str, num: int = 1) -> B:
        """Declares an output argument of ``num`` arrays."""
        d = self._chosen("Output")
        if not is_integer(num, 1):
            raise invalid(d.name, f"num of Output('{arg}')", num, "at least 1")
        self._outputs[arg] = num
        return self

    def Attr(self: B, name: str, value: Any, kind: str | None = None) -> B:
        """Sets an attribute; its kind must be exact: an int is not a float. ``kind`` is ignored."""
        d = self._chosen("Attr")
        declared = lookup(d.name, "attribute", name, d.attrs)
        self._attrs[name] = declared.normal(d.name, name, value)
        return self

    def _checked(self) -> tuple[Conf, list[Any]]:
        """The complete conf, and all inputs in order."""
        d = self._chosen("Build")
        counts = {arg: len(blobs) for arg, blobs in self._inputs.items()}
        for given, args in ((counts, d.inputs), (self._outputs, d.outputs)):
            for arg in given:
                lookup(d.name, "argument", arg, {a.name: a for a in args})
        declared = self._outputs
        if declared:  # then an optional output is made only if it was declared as well
            declared = {a.name: 0 for a in d.outputs if a.optional} | declared
        conf = d.conf({**counts, **declared}, self._attrs)
        missing = [a.name for a in d.inputs if not a.optional and not self._inputs.get(a.name)]
        if missing:
            raise fail(d.name, f"expected arrays of the required input '{missing[0]}', got none")
        return conf, [b for arg in d.inputs for b in self._inputs.get(arg.name, ())]


class UserOp:
    """A built operator: ``conf`` is its description as plain data."""

    def __init__(
        self, name: str, conf: Conf, flat: list[Any], inputs: dict[str, list[Any]], outs: list[str]
    ) -> None:
        self.name, self._conf, self._flat = name, conf, flat
        self._inputs, self._order = inputs, outs
        self._blobs: dict[str, list[Any]] = {}

    @property
    def conf(self) -> dict[str, Any]:
        """op_type_name, input, output and attr; can be written as JSON."""
        conf = self._conf
        return {
            "name": self.name,
            "op_type_name": conf.definition.name,
            "input": {
                a: [getattr(b, "name", None) or f"{a}_{i}" for i, b in enumerate(blobs)]
                for a, blobs in self._inputs.items()
            },
            "output": {
                a.name: [f"{self.name}/{a.name}_{i}" for i in range(conf.counts[a.name])]
                for a in conf.definition.outputs
            },
            "attr": {k: list(v) if isinstance(v, tuple) else v for k, v in conf.attrs.items()},
        }

    def InferAndTryRun(self) -> UserOp:
        """Runs the operator on NDArrays, or composes it on symbols."""
        conf, flat, d = self._conf, self._flat, self._conf.definition
        params = d.call_params(conf)
        lazy = any(isinstance(b, symbol.Symbol) for b in flat)
        module = symbol if lazy else ndarray
        function = getattr(module, d.registered, None) or getattr(module._internal, d.registered)
        if lazy:
            params["name"] = self.name
        result = function(*flat, **params)
        results = iter(result if len(conf.facts.outputs) > 1 else [result])
        self._blobs = {
            arg.name: list(itertools.islice(results, conf.counts[arg.name])) for arg in d.outputs
        }
        return self

    def RemoteBlobDict(self) -> dict[str, list[Any]]:
        """The outputs by argument."""
        if not self._blobs:
            self.InferAndTryRun()
        return dict(self._blobs)

    def RemoteBlobList(self) -> tuple[Any, ...]:
        """The outputs in the order of the ``Output`` calls."""
        blobs = self.RemoteBlobDict()
        for arg in blobs:
            if blobs[arg] and arg not in self._order:
                missing = f"Output('{arg}'), which declares the output"
                raise ValueError(f"{self.name}: expected {missing}")
        return tuple(b for arg in self._order for b in blobs[arg])

    def SoleOutputBlob(self) -> Any:
        """The only output."""
        blobs = self.RemoteBlobList()
        if len(blobs) != 1:
            raise fail(self.name, f"SoleOutputBlob: expected one output, got {len(blobs)}")
        return blobs[0]


class UserOpBuilder(OperatorBuilder):
    """Describes the call of a user operator; within a job every name may be used once.

    ``user_op_builder("y").Op("myrelu").Input("in", [x]).Output("out").Build().InferAndTryRun()
    .SoleOutputBlob()``
    """

    _operands = (ndarray.NDArray, symbol.Symbol)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise invalid("user_op_builder", "name", name, "a string")
        super().__init__(name)

    def Build(self) -> UserOp:
        """Completes defaults and checks everything."""
        conf, flat = self._checked()
        job = running()
        if job is not None:
            job.take_name(self._name)
        return UserOp(self._name, conf, flat, self._inputs, list(self._outputs))


user_op_builder = UserOpBuilder


# Gradients in OneFlow's words ------------------------------------------------------------------


class BuiltOp:
    """An operator of the backward graph: its results by name."""

    def __init__(
        self, conf: Conf, results: list[GradEntry], inputs: dict[str, list[GradEntry]]
    ) -> None:
        self._conf, self._results, self._inputs = conf, results, inputs

    def output(self, arg: str, i: int = 0) -> GradEntry:
        return self._results[self._conf.output(arg, i)]

    def input(self, arg: str, i: int = 0) -> GradEntry:
        return self._inputs[arg][i]


class RecipeBuilder(OperatorBuilder):
    """The argument of a recipe: a chained description of one operator of the backward graph."""

    def __init__(self, ctx: RuleContext, name: str) -> None:
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

    def __init__(self, ctx: RuleContext) -> None:
        self.name = ctx.op_name
        self.input, self.output, self.output_grad = ctx.inp, ctx.out, ctx.grad
        self.attr, self.arg_tensor_desc = ctx.attr, ctx.desc
        self.NeedGenGradTensor4OpInput, self.InputGradBind = ctx.needs, ctx.bind

    def op_name(self) -> str:
        """The name of the node; that of the operator for a recorded call."""
        return self.name


class Recipes:
    """OneFlow's words of one gradient context."""

    def __init__(self, ctx: RuleContext) -> None:
        self._ctx, self._where = ctx, f"gradient of {ctx.op_name}"
        self._by_name: dict[str, Any] = {}

    def define(self, name: str, recipe: Callable[[RecipeBuilder], BuiltOp]) -> None:
        """Names a recipe."""
        if name in self._by_name:
            raise fail(self._where, f"invalid second operator '{name}': expected one")
        self._by_name[name] = recipe

    def get(self, name: str) -> Any:
        """The operator of a recipe, built the first time."""
        found = lookup(self._where, "operator", name, self._by_name)
        if not isinstance(found, BuiltOp):
            found = self._by_name[name] = found(RecipeBuilder(self._ctx, name))
        return found

    def FwOp(self) -> ForwardOp:
        """The operator that is differentiated."""
        return ForwardOp(self._ctx)

    DefineOp, GetOp = define, get
