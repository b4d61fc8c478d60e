"""The translation of a record of attributes into a definition for the core."""

from __future__ import annotations

import contextlib
from typing import Any

from .. import _core
from ..parameter import Parameter
from .attribute_table import FIELDS, KERNELS, InputVariable, KernelKind
from .attrs import Attrs, GradNode, OperatorRecord, kVarg
from .checks import (
    TYPES,
    check_exec_type,
    fail,
    invalid,
    is_integer,
    is_struct,
    name_list,
    refuse_parameters,
    resource_requests,
    shape_list,
    type_list,
    wrong,
)
from .definition import ANY_INPUTS, Definition, Facts, KernelSpec, kernel_on, named_inputs, numbered
from .elementwise import OneBackward
from .gradient import Rule, Source


class Translation:
    """The functions of a definition, which call those of the record's attributes."""

    def __init__(self, record: OperatorRecord) -> None:
        self.record, self.name, self.attr = record, record.name, record.attr

    def definition(self) -> Definition:
        """The operator as the core takes it."""
        param, struct = self.record.param, self._struct()
        schema = struct._schema if struct else _core.Schema([], open=param is not None)
        d = Definition(self.name, schema)
        d.aliases = list(self.record.aliases)
        d.doc = self.record.doc if struct else self.record.doc + self._parameter_docs()
        d.key_var_num_args = self.record.key_var_num_args
        d.input_docs = self._input_docs()
        d.make = self._make
        for name in self.record.attributes:
            if name in FIELDS:
                field, value = FIELDS[name]
                setattr(d, field, value(self, name))
        d.kernels = [self._kernel(n, KERNELS[n]) for n in self.record.attributes if n in KERNELS]
        d.facts = self.facts
        return d

    def _struct(self) -> type[Parameter] | None:
        """The parameters' class; ``None`` if a function parses them, or there are none."""
        param = self.record.param
        return param if is_struct(param) else None

    def _parameter_docs(self) -> str:
        if not self.record.param_docs:
            return ""
        fields = [f"{n} : {kind}\n    {doc}" for n, (kind, doc) in self.record.param_docs.items()]
        return "\n\nParameters read by the operator itself:\n\n" + "\n".join(fields)

    def _input_docs(self) -> list[tuple[str, str, str]]:
        inputs = [a for a in self.record.arguments if "NDArray" in a[1] or "Symbol" in a[1]]
        if inputs:
            return inputs
        if self.record.key_var_num_args or self.record.num_inputs == kVarg:
            return ANY_INPUTS
        count = self.record.num_inputs if isinstance(self.record.num_inputs, int) else 1
        names, listed = numbered("data", count), self.attr("FListInputNames")
        if listed is not None:
            # Where the names depend on parameters, only the signature suffers.
            with contextlib.suppress(Exception):
                names = name_list(self.name, "FListInputNames", listed(Attrs(self.name, None, {})))
        return named_inputs(names, self.record.input_docs)

    def _make(self, values: tuple[Any, ...], given: dict[str, Any]) -> Attrs:
        param, struct = self.record.param, self._struct()
        if struct is not None or self.record.decorated:
            refuse_parameters(self.name, values, given)
        attrs = Attrs(self.name, None, {k: str(v) for k, v in given.items()})
        if struct is not None:
            attrs.parsed = struct.from_values(values)
        elif param is not None:
            attrs.parsed = param(attrs.dict)
        attrs.facts = self._facts(attrs)
        if self.attr("FExecType") is not None:
            check_exec_type(self.name, "FExecType", self.attr("FExecType")(attrs))
        if self.attr("FInplaceIdentity") is not None and self.attr("FInplaceOption") is None:
            raise fail(self.name, "expected FInplaceOption, which FInplaceIdentity is about")
        if self.attr("FSetInputVarAttrOnCompose") is not None:
            attrs.on_variables = self._set_on_variables(attrs)
        # Mistakes in hints show at the call, not where a graph is planned.
        if not self.attr("TIsBackward", False):
            if self.attr("FInplaceOption") is not None:
                self.inplace(attrs)
            if self.attr("FResourceRequest") is not None:
                self.resources(attrs)
        return attrs

    def facts(self, attrs: Attrs) -> Facts:
        """A backward operator is given the attrs of its forward node, whose facts are others."""
        return self._facts(attrs) if self.attr("TIsBackward", False) else attrs.facts

    def _facts(self, attrs: Attrs) -> Facts:
        inputs = self._names(attrs, "FListInputNames", self._count(attrs, "inputs"), "data")
        outputs = self._names(attrs, "FListOutputNames", self._count(attrs, "outputs"), "output")
        visible = self.attr("FNumVisibleOutputs")
        mutated = self._indices(attrs, "FMutateInputs", len(inputs))
        ignored = self._indices(attrs, "FIgnoreInputs", len(inputs))
        n = len(outputs) if visible is None else visible(attrs)
        if not is_integer(n, 1, len(outputs)):
            raise wrong(self.name, "FNumVisibleOutputs", n, f"1 to {len(outputs)}")
        return Facts(inputs, outputs, n, mutated, ignored)

    def _set_on_variables(self, attrs: Attrs) -> list[tuple[str, str, str]]:
        function, found = self.attr("FSetInputVarAttrOnCompose"), []
        for i, name in enumerate(attrs.facts.inputs):
            var = InputVariable(name)
            function(attrs, var, i)
            found += [(name, key, text) for key, text in var.dict.items()]
        return found

    def _count(self, attrs: Attrs, which: str) -> int:
        count = getattr(self.record, "num_" + which)
        if callable(count):
            what = f"result of the function of set_num_{which}"
            return self.record.number(what, count(attrs), int(which == "outputs"))
        return self._counted(attrs) if count == kVarg else count

    def _counted(self, attrs: Attrs) -> int:
        """How many inputs a call has, by the parameter that counts them."""
        key = self.record.key_var_num_args
        if key is None:
            parameter = "the name of the parameter that counts them, by set_key_var_num_args"
            raise fail(self.name, f"any number of inputs (op.kVarg): expected {parameter}")
        n = getattr(attrs.parsed, key, None)
        if n is None:
            n = attrs.dict.get(key)
            n = int(n) if n is not None and n.isdecimal() else n
        return self.record.number(f"number of inputs '{key}'", n, 0)

    def _names(self, attrs: Attrs, attribute: str, n: int, word: str) -> tuple[str, ...]:
        listed = self.attr(attribute)
        if listed is None:
            return numbered(word, n)
        names = name_list(self.name, attribute, listed(attrs))
        if len(names) != n:
            raise invalid(self.name, f"number of names from {attribute}", len(names), n)
        return names

    def _indices(self, attrs: Attrs, attribute: str, n: int) -> tuple[int, ...]:
        function = self.attr(attribute)
        if function is None:
            return ()
        indices = function(attrs)
        listed = isinstance(indices, (list, tuple))
        if not listed or not all(is_integer(i, 0, n - 1) for i in indices):
            raise wrong(self.name, attribute, indices, f"indices of the {n} inputs")
        return tuple(map(int, indices))

    def infer_shape(self, attrs: Attrs, ins: list[Any], outs: list[Any], exact: bool) -> Any:
        ins, outs = list(ins), list(outs)
        return (*self._inferred("FInferShape", attrs, ins, outs, shape_list), None)

    def infer_type(self, attrs: Attrs, ins: list[Any], outs: list[Any]) -> Any:
        ins, outs = [TYPES[t] for t in ins], [TYPES[t] for t in outs]
        return self._inferred("FInferType", attrs, ins, outs, type_list)

    def _inferred(
        self, attribute: str, attrs: Attrs, ins: list[Any], outs: list[Any], checked: Any
    ) -> tuple[list[Any], list[Any]]:
        """The lists as the function leaves them. (Its result says no more than they do.)"""
        self.attr(attribute)(attrs, ins, outs)
        return (
            checked(self.name, f"inputs of {attribute}", ins, attrs.facts.inputs),
            checked(self.name, f"outputs of {attribute}", outs, attrs.facts.outputs),
        )

    def inplace(self, attrs: Attrs) -> list[tuple[int, int, bool]]:
        """The in-place pairs; those of a backward operator count its own inputs and outputs."""
        pairs = self.attr("FInplaceOption")(attrs)
        facts = self.facts(attrs)
        n_in, n_out = len(facts.inputs), len(facts.outputs)
        try:
            pairs = list(pairs)
            fits = all(is_integer(i, 0, n_in - 1) and is_integer(o, 0, n_out - 1) for i, o in pairs)
        except (TypeError, ValueError):
            fits = False
        if not fits:
            expected = f"pairs of one of the {n_in} inputs and one of the {n_out} outputs"
            raise wrong(self.name, "FInplaceOption", pairs, expected)
        identity = self.attr("FInplaceIdentity")
        same = identity(attrs) if identity else [False] * len(pairs)
        if not isinstance(same, (list, tuple)) or len(same) != len(pairs):
            expected = f"one bool for each of {len(pairs)} pairs"
            raise wrong(self.name, "FInplaceIdentity", same, expected)
        return [(int(i), int(o), bool(s)) for (i, o), s in zip(pairs, same)]

    def resources(self, attrs: Attrs, *shapes: list[Any]) -> list[tuple[str, int]]:
        answer = self.attr("FResourceRequest")(attrs)
        return resource_requests(self.name, "FResourceRequest", answer)

    def state(self, attrs: Attrs, ctx: Any, shapes: list[Any], types: list[Any]) -> Any:
        return self.attr("FCreateOpState")(attrs, ctx, shapes, [TYPES[t] for t in types])

    def _kernel(self, name: str, kind: KernelKind) -> KernelSpec:
        """The kernel of an attribute, whose function gets the attrs or the state."""
        function, stateful = self.record.attributes[name][1], kind.stateful
        requests = self.attr("FResourceRequest")
        stateless = stateful and self.attr("FCreateOpState") is None

        def run(attrs: Attrs, state: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> Any:
            if stateless and state is None:  # a backward operator has the state of its forward one
                maker = f"FCreateOpState, which makes the state that {name} needs"
                raise fail(self.name, f"expected {maker}")
            if requests is not None:
                ctx.request(self.resources(attrs))
            return function(state if stateful else attrs, ctx, ins, req, outs)

        spec = KernelSpec(name, (), int(kind.extended), run)
        return kernel_on(kind.device, self.name, self.record.kernel_views[name], spec)

    def gradient(self) -> Any:
        function = self.attr("FGradient")
        if isinstance(function, OneBackward):
            return ("backward", function.backward, function.deps)

        def rule(
            attrs: Attrs, name: str, needed: list[bool], present: list[bool], n_out: int, specs: Any
        ) -> Any:
            program = Rule()
            node = GradNode(program, attrs, name, n_out)
            grads = program.entries(Source.OUT_GRAD, len(present))
            results = function(node, grads[: attrs.facts.visible])
            return program.program(self.name, results, len(needed))

        return ("rule", rule)
