"""The record of an operator registered by attributes, and its translation for the core; see
``op.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core
from ._attribute_table import (
    HANDLERS,
    KERNELS,
    InputVariable,
    check_attribute,
    check_kernels,
    documented,
)
from ._door import (
    MOST_OPERANDS,
    TYPES,
    Definition,
    Facts,
    argument_name,
    check_exec_type,
    fail,
    free_name,
    name_list,
    resource_requests,
    shape_list,
    type_list,
)
from ._graph_rule import INPUT, OUT_GRAD, OUTPUT, Rule
from ._graph_rule import Entry as GradEntry
from .base import MXNetError
from .parameter import Parameter


class Attrs:
    """The parameters of one call: ``parsed`` (the struct), ``dict`` (texts), ``operator``."""

    __slots__ = ("operator", "parsed", "dict", "facts", "variable_attrs")

    def __init__(self, operator: str, parsed: Any, given: dict[str, str]) -> None:
        self.operator = operator
        self.parsed = parsed
        self.dict = given
        self.facts: Facts
        self.variable_attrs: list[tuple[str, str, str]] = []

    def get(self, key: str, default: Any = None) -> Any:
        return self.dict.get(key, default)

    def __getitem__(self, key: str) -> str:
        return self.dict[key]


class GradNode:
    """The node that a gradient function differentiates.

    Attributes
    ----------
    inputs, outputs : list of GradEntry
        Its inputs and outputs, as entries for arithmetic, :meth:`op` and :meth:`backward`.
    attrs : Attrs
        Its parameters.
    name : str
        Its name; "" for a recorded call.

    Examples
    --------
    >>> from rsnet import autograd, nd, op
    >>> def gradient(node, out_grads):
    ...     return [2 * node.inputs[0] * out_grads[0]]
    >>> _ = (op.register("doc_node_square").set_attr("FInferShape", op.ElemwiseShape(1, 1))
    ...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
    ...                op.assign(outputs[0], req[0], inputs[0] * inputs[0]))
    ...      .set_attr("FGradient", gradient))
    >>> x = nd.array([1, 2])
    >>> x.attach_grad()
    >>> with autograd.record():
    ...     y = nd.doc_node_square(x)
    >>> y.backward()
    >>> x.grad.asnumpy().tolist()
    [2.0, 4.0]
    """

    def __init__(self, rule: Rule, attrs: Attrs, name: str, n_out: int) -> None:
        self._rule = rule
        self.attrs = attrs
        self.name = name
        self.inputs = rule.entries(INPUT, len(attrs.facts.inputs))
        self.outputs = rule.entries(OUTPUT, n_out)

    def backward(self, op: str, inputs: Sequence[GradEntry]) -> list[GradEntry]:
        """Runs backward operator ``op``, which gets this node's parameters and state."""
        return self._rule.call(op, inputs, outputs=len(self.inputs), backward=True)

    def op(
        self, op: str, *inputs: GradEntry, name: str = "", outputs: int = 1, **params: Any
    ) -> Any:
        """Runs any operator; returns its result, or a list if there are several."""
        made = self._rule.call(op, inputs, params, name=name, outputs=outputs)
        return made[0] if outputs == 1 else made


def checked_views(operator: str, views: str) -> str:
    """``views`` if there are such views."""
    if views not in ("ndarray", "numpy"):
        raise ValueError(f"{operator}: views={views!r}, valid are 'ndarray' and 'numpy'")
    return views


#: nnvm's "any number of inputs", for ``set_num_inputs``.
kVarg = 2**32 - 1


@documented
class Entry:
    """The record of one operator. Every method returns the record, so calls can be chained."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._attributes: dict[str, tuple[int, Any]] = {}
        self._views: dict[str, str] = {}
        #: Views that kernels get unless they ask for others.
        self.views = "ndarray"
        self._param: Any = None
        self._num_inputs: Any = 1
        self._num_outputs: Any = 1
        self._arguments: list[tuple[str, str, str]] = []
        self._param_docs: dict[str, tuple[str, str]] = {}
        self._aliases: list[str] = []
        self._doc = ""
        self._key_var_num_args: str | None = None
        self._installed = False
        #: Did the decorator ``op.op`` make the record, and has another one taken its place?
        self._decorated = self._superseded = False

    def __repr__(self) -> str:
        return f"<operator {self.name}: {', '.join(sorted(self._attributes))}>"

    # Filling in --------------------------------------------------------------------------------

    def describe(self, doc: str) -> Entry:
        """Sets the documentation."""
        self._doc = doc
        return self._changed()

    def set_num_inputs(self, n: int | Callable[[Attrs], int]) -> Entry:
        """Number of inputs, a function of the parameters, or ``op.kVarg``: any number.

        How many there are in a call is then told by the parameter that `set_key_var_num_args`
        names, which callers need not give: it is the number of arrays of the call.

        >>> from rsnet import nd, op
        >>> _ = (op.register("doc_total").set_num_inputs(op.kVarg)
        ...      .set_key_var_num_args("num_args").set_attr_parser(dict)
        ...      .set_attr("FInferShape", op.ElemwiseShape(-1, 1))
        ...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
        ...                op.assign(outputs[0], req[0], sum(inputs))))
        >>> nd.doc_total(nd.array([1, 2]), nd.array([3, 4]), nd.array([5, 6])).asnumpy().tolist()
        [9.0, 12.0]
        """
        self._num_inputs = n if n == kVarg else self._checked_count("inputs", n, 0)
        return self._changed()

    def _checked_count(self, what: str, n: Any, least: int) -> Any:
        """``n`` if it is a function or a number of inputs or outputs."""
        return n if callable(n) else self._number(f"the number of {what}", n, least)

    def _number(self, what: str, n: Any, least: int) -> int:
        if isinstance(n, (int, np.integer)) and not isinstance(n, bool):
            if least <= n <= MOST_OPERANDS:
                return int(n)
            any_number = f"; any number of them is op.kVarg ({kVarg})" if "inputs" in what else ""
            raise fail(self.name, f"{what} is {n}, expected {least} to {MOST_OPERANDS}{any_number}")
        raise fail(
            self.name,
            f"{what} is {n!r}, expected an integer of {least} to {MOST_OPERANDS}, or a function of "
            "attrs that returns one",
        )

    def set_num_outputs(self, n: int | Callable[[Attrs], int]) -> Entry:
        """Number of outputs, at least one, or a function of the parameters."""
        self._num_outputs = self._checked_count("outputs", n, 1)
        return self._changed()

    def set_attr_parser(self, parser: Any) -> Entry:
        """A Parameter subclass, or a function of the dict of texts whose result is
        ``attrs.parsed``.
        """
        if not callable(parser):
            raise TypeError(f"{self.name}: set_attr_parser needs a Parameter class or a function")
        self._param = parser
        return self._changed()

    def set_attr(
        self, name: str, value: Any, plevel: int = 10, *, views: str | None = None
    ) -> Entry:
        """Sets an attribute.

        Names that start with ``F`` are those of functions that rsnet calls, in the table below; any
        other name may be used as a marker, to be read with :meth:`attr`. A higher ``plevel``
        overrides a lower one. ``views="numpy"`` hands NumPy views to an FCompute function instead of
        NDArrays.

        {attributes}

        Raises
        ------
        rsnet.MXNetError
            The name is unknown or not supported, or the attribute is set at the same level already.
        TypeError
            The attribute must be a function.
        """
        if name == "key_var_num_args":
            return self.set_key_var_num_args(value)
        check_attribute(self.name, name, value)
        known = self._attributes.get(name)
        if known is not None and known[0] == plevel:
            raise MXNetError(
                f"attribute {name} of operator {self.name} is already registered "
                f"with the same plevel={plevel}"
            )
        if known is None or known[0] < plevel:
            checked = checked_views(self.name, self.views if views is None else views)
            check_kernels(self.name, {**self._attributes, name: None})
            before = (self._attributes, self._views)
            self._attributes = {**self._attributes, name: (plevel, value)}
            self._views = {**self._views, name: checked}
            try:
                return self._changed()
            except Exception:
                self._attributes, self._views = before
                raise
        return self

    def _reset_attr(self, name: str, value: Any) -> Entry:
        """As ``set_attr``, in the place of an attribute that is set already."""
        before = self._attributes
        self._attributes = {k: v for k, v in before.items() if k != name}
        try:
            return self.set_attr(name, value)
        except Exception:
            self._attributes = before
            raise

    def set_key_var_num_args(self, name: str) -> Entry:
        """Names the parameter that counts the inputs of an operator with any number of them; see
        :meth:`set_num_inputs`.
        """
        self._key_var_num_args = argument_name(f"{self.name}: set_key_var_num_args", name)
        return self._changed()

    def add_argument(self, name: str, type: str, description: str) -> Entry:  # noqa: A002
        """Documents an input."""
        self._arguments.append((name, type, description))
        return self._changed()

    def add_arguments(self, fields: Sequence[tuple[str, str, str]]) -> Entry:
        """Documents parameters, as (name, type, description).

        Those of a :class:`rsnet.Parameter` are documented by the class itself, so that
        ``SomeParam.fields()`` adds nothing; those of a parser function are known from here only.
        """
        self._param_docs.update({name: (kind, doc) for name, kind, doc in fields})
        return self._changed()

    def add_alias(self, name: str) -> Entry:
        """Another name of the operator; an error if an operator has it, or it cannot be that of a
        function.
        """
        self._aliases.append(free_name(f"{self.name}: add_alias", name))
        try:
            return self._changed()
        except Exception:
            self._aliases.pop()
            raise

    def include(self, group: Entry | str) -> Entry:
        """Takes over the attributes of another record that this one does not set."""
        if isinstance(group, str):
            from .op import get

            group = get(group)
        for name, (level, value) in group._attributes.items():
            if name not in self._attributes:
                self._attributes[name] = (level, value)
                self._views[name] = group._views[name]
        if self._param is None:
            self._param = group._param
        check_kernels(self.name, self._attributes)
        return self._changed()

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        return self._attributes.get(name, (0, default))[1]

    # Translation -------------------------------------------------------------------------------

    def _changed(self) -> Entry:
        """Hands the operator to the core again, once it can be used."""
        if self._superseded:
            raise fail(self.name, "the operator was registered again: this record is an old one")
        if not any(name in KERNELS for name in self._attributes):
            return self
        self._definition().install(replace=self._installed)
        self._installed = True
        return self

    def _definition(self) -> Definition:
        param = self._param
        is_struct = isinstance(param, type) and issubclass(param, Parameter)
        open_schema = param is not None and not is_struct
        schema = param._schema if is_struct else _core.Schema([], open=open_schema)
        d = Definition(self.name, schema)
        d.aliases = list(self._aliases)
        d.doc = self._doc if is_struct else self._doc + self._parameter_docs()
        d.key_var_num_args = self._key_var_num_args
        d.input_docs = self._input_docs()
        d.make = self._make
        for name in self._attributes:
            handler = HANDLERS.get(name)
            if handler is not None:
                handler(self, name, d)
        # A backward operator is given the attrs of its forward node, whose facts are others.
        d.facts = self._facts if d.is_backward else lambda attrs: attrs.facts
        return d

    def _parameter_docs(self) -> str:
        if not self._param_docs:
            return ""
        fields = [f"{n} : {kind}\n    {doc}" for n, (kind, doc) in self._param_docs.items()]
        return "\n\nParameters read by the operator itself:\n\n" + "\n".join(fields)

    def _input_docs(self) -> list[tuple[str, str, str]]:
        inputs = [a for a in self._arguments if "NDArray" in a[1] or "Symbol" in a[1]]
        if inputs:
            return inputs
        kind = "NDArray-or-Symbol"
        if self._key_var_num_args or self._num_inputs == kVarg:
            return [("data", kind + "[]", "The inputs.")]
        count = self._num_inputs if isinstance(self._num_inputs, int) else 1
        names: Sequence[str] = ["data"] if count == 1 else [f"data{i}" for i in range(count)]
        if self.attr("FListInputNames") is not None:
            try:
                attrs = Attrs(self.name, None, {})
                names = name_list(self.name, "FListInputNames", self.attr("FListInputNames")(attrs))
            except Exception:  # the names depend on parameters: only the signature suffers
                pass
        return [(n, kind, "") for n in names]

    def _make(self, values: tuple[Any, ...], given: dict[str, Any]) -> Attrs:
        param = self._param
        texts = {k: str(v) for k, v in given.items()}
        attrs = Attrs(self.name, None, texts)
        if isinstance(param, type) and issubclass(param, Parameter):
            attrs.parsed = param.from_values(values)
        elif param is not None:
            attrs.parsed = param(attrs.dict)
        attrs.facts = self._facts(attrs)
        self._check_exec_type(attrs)
        if self.attr("FInplaceIdentity") is not None and self.attr("FInplaceOption") is None:
            raise fail(self.name, "FInplaceIdentity is about FInplaceOption, which is not there")
        if self.attr("FSetInputVarAttrOnCompose") is not None:
            attrs.variable_attrs = self._set_on_variables(attrs)
        # Mistakes in hints show at the call, not where a graph is planned.
        if not self.attr("TIsBackward", False):
            for attribute, check in (
                ("FInplaceOption", self._inplace),
                ("FResourceRequest", self._resources),
            ):
                if self.attr(attribute) is not None:
                    check(attrs)
        return attrs

    def _facts(self, attrs: Attrs) -> Facts:
        inputs = self._names(attrs, "FListInputNames", self._count(attrs, "inputs"), "data")
        outputs = self._names(attrs, "FListOutputNames", self._count(attrs, "outputs"), "output")
        visible = self.attr("FNumVisibleOutputs")
        mutated = self._indices(attrs, "FMutateInputs", len(inputs))
        ignored = self._indices(attrs, "FIgnoreInputs", len(inputs))
        n = len(outputs) if visible is None else visible(attrs)
        if not isinstance(n, int) or not 0 < n <= len(outputs):
            raise fail(
                self.name, f"FNumVisibleOutputs returned {n!r}, expected 1 to {len(outputs)}"
            )
        return Facts(inputs, outputs, n, mutated, ignored)

    def _check_exec_type(self, attrs: Attrs) -> None:
        function = self.attr("FExecType")
        if function is not None:
            check_exec_type(self.name, "FExecType", function(attrs))

    def _set_on_variables(self, attrs: Attrs) -> list[tuple[str, str, str]]:
        function, found = self.attr("FSetInputVarAttrOnCompose"), []
        for i, name in enumerate(attrs.facts.inputs):
            var = InputVariable(name)
            function(attrs, var, i)
            found += [(name, key, text) for key, text in var.dict.items()]
        return found

    def _variable_attrs(self, attrs: Attrs) -> list[tuple[str, str, str]]:
        return attrs.variable_attrs

    def _count(self, attrs: Attrs, which: str) -> int:
        count = getattr(self, "_num_" + which)
        if callable(count):
            what = f"what the function of set_num_{which} returned"
            return self._number(what, count(attrs), int(which == "outputs"))
        return self._counted(attrs) if count == kVarg else count

    def _counted(self, attrs: Attrs) -> int:
        """How many inputs a call has, by the parameter that counts them."""
        key = self._key_var_num_args
        if key is None:
            raise fail(
                self.name,
                "the number of inputs is op.kVarg (any number): name the parameter that counts "
                "them with set_key_var_num_args",
            )
        n = getattr(attrs.parsed, key, None)
        if n is None:
            try:
                n = int(attrs.dict[key])
            except (KeyError, ValueError):
                raise fail(
                    self.name, f"parameter '{key}' is to count the inputs and is not given"
                ) from None
        return self._number(f"parameter '{key}', which counts the inputs,", n, 0)

    def _names(self, attrs: Attrs, attribute: str, n: int, word: str) -> tuple[str, ...]:
        listed = self.attr(attribute)
        if listed is None:
            return (word,) if n == 1 else tuple(f"{word}{i}" for i in range(n))
        names = name_list(self.name, attribute, listed(attrs))
        if len(names) != n:
            raise fail(self.name, f"{attribute} returned {len(names)} names, expected {n}")
        return names

    def _indices(self, attrs: Attrs, attribute: str, n: int) -> tuple[int, ...]:
        function = self.attr(attribute)
        if function is None:
            return ()
        indices = function(attrs)
        if not isinstance(indices, (list, tuple)) or not all(
            isinstance(i, int) and 0 <= i < n for i in indices
        ):
            raise fail(
                self.name, f"{attribute} returned {indices!r}, expected numbers of the {n} inputs"
            )
        return tuple(indices)

    def _infer_shape(self, attrs: Attrs, ins: list[Any], outs: list[Any], exact: bool) -> Any:
        ins, outs = list(ins), list(outs)
        self.attr("FInferShape")(attrs, ins, outs)
        what = "FInferShape: "
        return (
            shape_list(self.name, what + "inputs", ins, attrs.facts.inputs),
            shape_list(self.name, what + "outputs", outs, attrs.facts.outputs),
            None,
        )

    def _infer_type(self, attrs: Attrs, ins: list[Any], outs: list[Any]) -> Any:
        in_types, out_types = [TYPES[t] for t in ins], [TYPES[t] for t in outs]
        self.attr("FInferType")(attrs, in_types, out_types)
        what = "FInferType: "
        return (
            type_list(self.name, what + "inputs", in_types, attrs.facts.inputs),
            type_list(self.name, what + "outputs", out_types, attrs.facts.outputs),
        )

    def _inplace(self, attrs: Attrs) -> list[tuple[int, int, bool]]:
        """The in-place pairs; those of a backward operator count its own inputs and outputs."""
        pairs = self.attr("FInplaceOption")(attrs)
        facts = self._facts(attrs)
        n_in, n_out = len(facts.inputs), len(facts.outputs)
        try:
            pairs = [(i.__index__(), o.__index__()) for i, o in pairs]
            fits = all(0 <= i < n_in and 0 <= o < n_out for i, o in pairs)
        except (TypeError, ValueError, AttributeError):
            fits = False
        if not fits:
            raise fail(
                self.name,
                f"FInplaceOption returned {pairs!r}, expected pairs of one of the {n_in} inputs "
                f"and one of the {n_out} outputs",
            )
        identity = self.attr("FInplaceIdentity")
        same = identity(attrs) if identity else [False] * len(pairs)
        if not isinstance(same, (list, tuple)) or len(same) != len(pairs):
            raise fail(self.name, f"FInplaceIdentity returned {same!r} for {len(pairs)} pairs")
        return [(i, o, bool(s)) for (i, o), s in zip(pairs, same)]

    def _resources(self, attrs: Attrs, *shapes: list[Any]) -> list[tuple[str, int]]:
        answer = self.attr("FResourceRequest")(attrs)
        return resource_requests(self.name, "FResourceRequest", answer)

    def _state(self, attrs: Attrs, ctx: Any, shapes: list[Any], types: list[Any]) -> Any:
        return self.attr("FCreateOpState")(attrs, ctx, shapes, [TYPES[t] for t in types])

    def _runner(self, name: str, stateful: bool) -> Callable[..., Any]:
        """The kernel of an attribute, whose function gets the attrs or the state."""
        function = self._attributes[name][1]
        requests = self.attr("FResourceRequest")
        stateless = stateful and self.attr("FCreateOpState") is None

        def run(attrs: Attrs, state: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> Any:
            if stateless and state is None:  # a backward operator has the state of its forward one
                raise fail(self.name, f"{name} needs a state: there is no FCreateOpState")
            if requests is not None:
                ctx.request(self._resources(attrs))
            return function(state if stateful else attrs, ctx, ins, req, outs)

        return run

    def _gradient(self) -> Any:
        function = self.attr("FGradient")
        if function is None:
            return None
        simple = getattr(function, "backward", None)
        if simple is not None:
            backward, inputs, outputs = simple

            def deps(attrs: Attrs, n_in: int, n_out: int) -> list[tuple[int, int]]:
                entries = [(0, i) for i in range(n_out)]
                if inputs:
                    entries += [(1, i) for i in range(n_in)]
                if outputs:
                    entries += [(2, i) for i in range(n_out)]
                return entries

            return ("backward", backward, deps)

        def rule(
            attrs: Attrs, name: str, needed: list[bool], present: list[bool], n_out: int
        ) -> Any:
            program = Rule()
            node = GradNode(program, attrs, name, n_out)
            grads = program.entries(OUT_GRAD, len(present))
            results = function(node, grads[: attrs.facts.visible])
            return program.program(self.name, results, len(needed))

        return ("rule", rule)
