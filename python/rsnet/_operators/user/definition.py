"""A user operator in the registry, and its definition for the core."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ... import _core
from ... import ndarray as nd
from ...parameter import schema_field
from ..checks import MOST_OPERANDS, checked_bytes, fail, invalid, lookup, refuse_parameters
from ..definition import ANY_INPUTS, Definition, KernelSpec, named_inputs
from .arguments import Arg, Attr, Conf, Defaults, NotGiven, refuse
from .condition import Condition
from .contexts import ComputeContext
from .gradient import Gradient, gradient_rule
from .inference import Found, Inference
from .signatures import Signatures


class Kernel(NamedTuple):
    """One way to compute a user operator."""

    name: str
    where: Condition
    priority: int
    compute: Callable[[Any], Any]
    #: Makes the state or kernel object of one operator instance.
    create: Callable[[Any], Any] | None
    tmp: Any
    inplace: tuple[tuple[str, str], ...]
    always_compute: bool
    accumulates: bool = False


class UserOpDefinition:
    """A user operator in the registry; ``sbp`` holds its distribution rules as given."""

    def __init__(
        self, name: str, inputs: tuple[Arg, ...], outputs: tuple[Arg, ...], attrs: dict[str, Attr]
    ) -> None:
        self.name = name
        #: The operator's name in ``nd`` and ``sym``.
        self.registered = name
        self.inputs, self.outputs, self.attrs = inputs, outputs, attrs
        #: Inputs of any number of arrays, or of none, and whether there are such outputs.
        self.variable = [a for a in self.inputs if not a.fixed]
        #: The parameter that counts the inputs where their number varies.
        self.counted_by = "num_args"
        self._has_fixed_outputs = all(a.fixed for a in self.outputs)
        self.check: Callable[[Any], Any] | None = None
        self.inference: Inference
        self.sbp: Any = None
        self.signatures: Signatures | None = None
        self.doc = ""
        self.docs: Mapping[str, str] = {}
        self.kernels: list[Kernel] = []
        self.grad: Gradient | None = None

    def __repr__(self) -> str:
        ins = ", ".join(a.name for a in self.inputs)
        outs = ", ".join(a.name for a in self.outputs)
        return f"<user operator {self.name}: {ins} -> {outs}>"

    # Confs -------------------------------------------------------------------------------------

    def conf(self, counts: dict[str, int], attrs: dict[str, Any]) -> Conf:
        """A complete, checked conf; ``attrs`` in normal form."""
        for arg in (*self.inputs, *self.outputs):
            n = counts.setdefault(arg.name, 0 if arg.optional else arg.count)
            arg.check(self.name, n)
        if not any(counts[arg.name] for arg in self.outputs):
            raise invalid(self.name, "number of outputs", 0, "at least 1")
        for key in attrs:
            lookup(self.name, "attribute", key, self.attrs)
        full = {}
        for key, declared in self.attrs.items():
            if declared.required and key not in attrs:
                attribute = f"the attribute '{key}' of kind {declared.kind}"
                raise fail(self.name, f"expected {attribute}, got none")
            full[key] = attrs.get(key, declared.default)
            declared.verify(self.name, key, full[key])
        conf = Conf(self, counts, full)
        self._refuse(conf)
        return conf

    def _refuse(self, conf: Conf) -> None:
        """Runs the check function of all attributes."""
        if self.check is not None:
            accepted = "attributes that the check of op.define accepts"
            refuse(self.name, "attributes", conf.attrs, self.check(conf), accepted)

    def check_defaults(self) -> None:
        """Runs all checks on the defaults, as far as there are defaults."""
        counts = {a.name: a.count for a in (*self.inputs, *self.outputs)}
        defaults = Defaults((k, a.default) for k, a in self.attrs.items() if not a.required)
        for key, value in defaults.items():
            self.attrs[key].verify(self.name, key, value)
        with contextlib.suppress(NotGiven):
            self._refuse(Conf(self, counts, defaults))

    # The core's side ---------------------------------------------------------------------------

    def _specs(self) -> list[dict[str, Any]]:
        """The schema: the attributes, and the parameters that count arrays."""
        specs = [declared.spec(key) for key, declared in self.attrs.items()]
        if self.variable:
            specs.append(schema_field("num_args", "int32", -1, doc="Number of input arrays."))
            doc = "Number of arrays of each input argument."
            specs.append(schema_field("arg_counts", "shape", (), doc=doc))
        if not self._has_fixed_outputs:
            doc = "Number of arrays of each output argument; by default the least there can be."
            specs.append(schema_field("out_counts", "shape", (), doc=doc))
        return specs

    def call_params(self, conf: Conf) -> dict[str, Any]:
        """A conf as parameters of a call of the registered operator."""
        params = dict(conf.attrs)
        if self.variable:
            counts = tuple(conf.counts[a.name] for a in self.inputs)
            params[self.counted_by], params["arg_counts"] = sum(counts), counts
        if not self._has_fixed_outputs:
            params["out_counts"] = tuple(conf.counts[a.name] for a in self.outputs)
        return params

    def install(self, *, replace: bool) -> None:
        d = Definition(self.registered, _core.Schema(self._specs(), name=self.name))
        d.doc = self.doc
        docs = {a.tensor(i): self.docs.get(a.name, "") for a in self.inputs for i in range(a.count)}
        if self.variable:
            d.key_var_num_args, d.input_docs = "num_args", ANY_INPUTS
            d.arguments = [(a.name, a.count, a.at_least, a.optional) for a in self.inputs]
        else:
            d.input_docs = named_inputs(docs, docs)
        d.make = self._make
        d.facts = lambda conf: conf.facts
        d.infer_shape, d.infer_type = self.inference.shapes, self.inference.types
        d.infer_both = self._infer_both
        d.inplace = self._inplace
        d.gradient = ("rule", gradient_rule(self))
        if any(k.create for k in self.kernels):
            d.state = lambda conf, ctx, shapes, types: {}
        outs, ins = {a.name for a in self.outputs}, {a.name for a in self.inputs}
        for k in self.kernels:
            for o, i in k.inplace:
                if o not in outs or i not in ins:
                    pairs = f"pairs of one of {sorted(outs)} and one of {sorted(ins)}"
                    raise invalid(self.name, f"inplace of kernel {k.name}", (o, i), pairs)
            where, run = k.where.resolved(self._tensor, self._compared), self._run(k)
            d.kernels.append(KernelSpec(k.name, where, k.priority, run, accumulates=k.accumulates))
        d.install(replace=replace)

    def _tensor(self, arg: str, i: int) -> str:
        known = {a.name: a for a in (*self.inputs, *self.outputs)}
        found: Arg = lookup(f"{self.name}: kernel condition", "argument", arg, known)
        return found.tensor(i)

    def _compared(self, attribute: str, how: str, value: Any) -> str:
        declared = lookup(f"{self.name}: kernel condition", "attribute", attribute, self.attrs)
        return str(declared.compared(self.name, attribute, how, value))

    def _make(self, values: tuple[Any, ...], given: dict[str, Any]) -> Conf:
        refuse_parameters(self.name, values, given)
        attrs = dict(zip(self.attrs, values))
        more = iter(values[len(self.attrs) :])
        counts: dict[str, int] = {}
        if self.variable:
            total, listed = next(more), next(more)
            if listed:
                counts = self._listed("arg_counts", listed, self.inputs)
            elif total >= 0:
                counts = self.share_out(total)
        if not self._has_fixed_outputs:
            listed = next(more)
            least = [0 if a.optional else a.count for a in self.outputs]
            counts |= self._listed("out_counts", listed or least, self.outputs)
        return self.conf(counts, attrs)

    def _listed(self, key: str, counts: Sequence[int], args: Sequence[Arg]) -> dict[str, int]:
        if len(counts) != len(args):
            names = ", ".join(a.name for a in args)
            raise invalid(self.name, f"{key}", counts, f"{len(args)} numbers, for {names}")
        if sum(counts) > MOST_OPERANDS:
            raise invalid(self.name, f"sum of {key}", sum(counts), f"at most {MOST_OPERANDS}")
        return {a.name: n for a, n in zip(args, counts)}

    def share_out(self, total: int) -> dict[str, int]:
        """Counts from the number of all inputs: it decides them if one argument is variable, or if
        optional ones are filled in order. It is ambiguous if several take any number.
        """
        counts = {a.name: (0 if a.optional else a.count) for a in self.inputs}
        rest = total - sum(counts.values())
        open_ended = [a.name for a in self.inputs if a.at_least and not a.optional]
        if len(open_ended) > 1 and rest > 0:
            several, names = " and ".join(open_ended), ", ".join(a.name for a in self.inputs)
            why = f"{several} take any number each: pass arg_counts, one number each for {names}"
            ways = f"{total} inputs can be shared out in several ways"
            raise fail(self.name, f"{ways}, because {why}")
        if rest < 0:
            each = ", ".join(f"{a.count} of '{a.name}'" for a in self.inputs if not a.optional)
            raise invalid(self.name, "number of inputs", total, f"at least {total - rest}, {each}")
        for arg in self.inputs:
            if arg.optional and rest >= arg.count:
                counts[arg.name] = arg.count
                rest -= arg.count
            if arg.at_least and counts[arg.name] and rest > 0:
                counts[arg.name] += rest
                rest = 0
        if rest != 0:
            counts[self.variable[-1].name] += rest
        return counts

    def infer(self, conf: Conf, shapes: list[Any], types: list[Any]) -> Found:
        """Types of inputs, of which some may be unknown; shapes and types of outputs."""
        return self.inference.both(conf, shapes, types)

    def _infer_both(self, conf: Conf, shapes: list[Any], types: list[Any]) -> Any:
        found = self.infer(conf, shapes, types)
        if self.signatures is not None:
            self.signatures(conf, shapes, *found)
        if not self.kernels:  # a call, or a graph that is bound
            raise fail(self.name, f"has no kernel: expected one, by op.kernel('{self.name}')")
        return found

    def _inplace(self, conf: Conf) -> list[tuple[int, int, bool]]:
        proposed = [set(k.inplace) for k in self.kernels]
        common = sorted(set.intersection(*proposed)) if proposed else []
        return [(conf.input(i), conf.output(o), False) for o, i in common]

    def _run(self, k: Kernel) -> Callable[..., Any]:
        compute, create = k.compute, k.create

        def run(conf: Conf, state: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> Any:
            if not k.always_compute and outs and not any(o.size for o in outs):
                return None
            context = ComputeContext(conf, ctx, ins, req, outs)
            if k.tmp:
                given = k.tmp(context) if callable(k.tmp) else k.tmp
                n = checked_bytes(f"{self.name}: kernel {k.name}", "tmp", given)
                context.tmp = nd.empty((n,), dtype="uint8") if n else None
            if create is None:
                return compute(context)
            if k.name not in state:
                state[k.name] = create(context)
            context.state = state[k.name]
            return compute(context)

        return run
