"""The payload and definitions of subclassed operators: one property object per parsed call.

A :class:`Node` asks the user's property for its lists once, checks them, and translates
dependencies, in-place hints and inference between the user's methods and the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._exceptions import add_note
from ..base import MXNetError, Unusable
from .checks import TYPES, is_integer, name_list, resource_requests, shape_list, type_list, wrong
from .definition import Definition, Facts, KernelSpec, kernels_everywhere
from .gradient import Source
from .property import OperatorProperty


class Undeclared(Unusable):
    """Stands for an array that backward did not declare to need: empty, and an error on any use."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise MXNetError(f"{self._what} is not in the declared backward dependency")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{self._what}: not in the declared backward dependency>"


#: What Python and NumPy call on an operand. Not ``__array__``: with it an NDArray on the left of an
#: operator would not leave the operation to the method here.
_USES = """
    add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor
    radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand ror rxor
    iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor
    bool neg pos abs invert round trunc floor ceil int float complex index
    eq ne lt le gt ge getitem setitem delitem len iter next contains call enter exit
    str copy deepcopy reduce_ex array_ufunc array_function dlpack dlpack_device
""".split()
for _use in _USES:
    setattr(Undeclared, f"__{_use}__", Undeclared._refuse)
for _use in ("__array_interface__", "__array_struct__"):  # which ``numpy.asarray`` reads
    setattr(Undeclared, _use, property(Undeclared._refuse))
del _use


#: The sources in the order of the arguments of ``declare_backward_dependency``, and their names.
_WORDS = {Source.OUT_GRAD: "out_grad", Source.INPUT: "in_data", Source.OUTPUT: "out_data"}
_SOURCES = tuple(_WORDS)


class Node:
    """The user's property for one set of parameters, with its answers checked and kept."""

    __slots__ = (
        "name", "prop", "args", "aux", "facts", "n_args", "n_out", "as_property", "asks_for",
        "_plan", "_types",
    )  # fmt: skip

    def __init__(self, name: str, prop: Any, *, property_style: bool) -> None:
        self.name = name
        self.prop = prop
        self.as_property = property_style

        def listed(method: str) -> tuple[str, ...]:
            # MXNet takes any text for a name of a CustomOpProp.
            return name_list(name, method, getattr(prop, method)(), any_text=not property_style)

        self.args, self.aux = listed("list_arguments"), listed("list_auxiliary_states")
        inputs, outputs = self.args + self.aux, listed("list_outputs")
        if not outputs:
            raise wrong(self.name, "list_outputs", (), "at least one output")
        name_list(name, "list_arguments and list_auxiliary_states", inputs, any_text=True)
        self.n_args, self.n_out = len(self.args), len(outputs)
        visible = self.n_out
        if property_style:
            visible = self._count("num_visible_outputs", prop.num_visible_outputs())
            self._count("num_outputs", prop.num_outputs())
        self.facts = Facts(inputs, outputs, visible, tuple(range(self.n_args, len(inputs))))
        self._types: dict[tuple[Any, ...], Any] = {}
        self._plan: list[tuple[Source, int]] | None = None
        # Mistakes in what the user overrides show at the call, not in the backward pass.
        if not (type(prop).declare_backward_dependency.__module__ or "").startswith("rsnet."):
            self.plan()
        if property_style:
            self.asks_for = {w: self._overrides(f"{w}_resource") for w in ("forward", "backward")}
            if self._overrides("forward_inplace_option"):
                self.forward_inplace()
            if self._overrides("backward_inplace_option"):
                self.backward_inplace()

    def _overrides(self, method: str) -> bool:
        return getattr(type(self.prop), method) is not getattr(OperatorProperty, method)

    def _count(self, method: str, value: Any) -> int:
        if not is_integer(value, 1, self.n_out):
            raise wrong(self.name, method, value, f"1 to {self.n_out}")
        return int(value)

    # Inference ---------------------------------------------------------------------------------

    def infer_shape(self, ins: list[Any]) -> Any:
        n = self.n_args
        given = ins[:n] if self.as_property else [list(s) for s in ins[:n]]
        answer = self._answer("infer_shape", given, shape_list)
        return answer and (*answer, None)

    def infer_type(self, ins: list[Any]) -> Any:
        """Asks once for the same inputs: inference over a graph visits a node several times."""
        given = tuple(ins[: self.n_args])
        if given not in self._types:
            types = [TYPES[t] for t in given]
            self._types = {given: self._answer("infer_type", types, type_list)}
        found = self._types[given]
        return found and tuple(list(types) for types in found)

    def _answer(
        self, method: str, given: list[Any], checked: Callable[..., list[Any]]
    ) -> tuple[list[Any], list[Any]] | None:
        """The user's answer as (inputs, outputs); ``None`` if nothing is known.

        An exception of the user's method gets a note that names the method and the operator.
        """
        try:
            answer = getattr(self.prop, method)(given)
        except Exception as error:
            add_note(error, f"in {method} of '{self.name}'")
            raise
        if answer is None or answer is False:
            return None
        if not isinstance(answer, (tuple, list)) or len(answer) not in (2, 3):
            raise wrong(self.name, method, answer, "(inputs, outputs, auxiliary states)")
        names = (self.args, self.facts.outputs, self.aux)
        parts = [
            checked(self.name, f"{what} of {method}", part, listed)
            for what, part, listed in zip(_PARTS, (*answer, []), names)
        ]
        return parts[0] + parts[2], parts[1]

    # Backward ----------------------------------------------------------------------------------

    def _entries(self) -> tuple[list[int], list[int], list[int]]:
        """Opaque entries for the user's dependency methods: numbers without meaning."""
        visible, first = self.facts.visible, self.facts.visible + self.n_args
        entries = list(range(first + self.n_out))
        return entries[:visible], entries[visible:first], entries[first:]

    def plan(self) -> list[tuple[Source, int]]:
        """The declared dependency as (kind, index)."""
        if self._plan is None:
            kinds = self._entries()
            of = {e: (k, i) for k, es in zip(_SOURCES, kinds) for i, e in enumerate(es)}
            answer = self.prop.declare_backward_dependency(*kinds)
            try:
                plan = [of[e] for e in answer]
            except (KeyError, TypeError):
                plan = None
            if plan is None or len(set(plan)) != len(plan):
                expected = "a list of entries that it was given, each at most once"
                raise wrong(self.name, "declare_backward_dependency", answer, expected)
            self._plan = plan
        return self._plan

    def deps(self, n_in: int, n_out: int) -> list[tuple[Source, int]]:
        aux = [(Source.INPUT, i) for i in range(self.n_args, n_in)]
        return self.plan() + aux

    def forward_operands(self) -> tuple[list[list[int]], int]:
        """``in_data`` and ``aux``."""
        inputs = list(range(len(self.facts.inputs)))
        return [inputs[: self.n_args], inputs[self.n_args :]], self.n_out

    def backward_operands(self) -> tuple[list[list[Any]], int]:
        """``out_grad``, ``in_data``, ``out_data`` and ``aux``, of the dependency that is declared;
        of the gradients those of the arguments.
        """
        plan = self.plan()
        lists: dict[Source, list[Any]] = {
            k: [Undeclared(f"{_WORDS[k]}[{i}] of {self.name}") for i in range(len(entries))]
            for k, entries in zip(_SOURCES, self._entries())
        }
        for number, (kind, i) in enumerate(plan):
            lists[kind][i] = number
        first = len(plan)
        return [*lists.values(), list(range(first, first + len(self.aux)))], self.n_args

    # Hints and resources -----------------------------------------------------------------------

    def forward_inplace(self) -> list[tuple[int, int, bool]]:
        given = self._entries()[1:]
        return self._pairs("forward", given, *given)

    def backward_inplace(self) -> list[tuple[int, int, bool]]:
        entries = self._entries()
        first = entries[2][-1] + 1
        grads = list(range(first, first + self.n_args))
        by_source = dict(zip(_SOURCES, entries))
        declared = [by_source[kind][i] for kind, i in self.plan()]
        return self._pairs("backward", (*entries, grads), declared, grads)

    def _pairs(
        self, which: str, given: Sequence[list[int]], sources: list[int], targets: list[int]
    ) -> list[tuple[int, int, bool]]:
        method = f"{which}_inplace_option"
        pairs = getattr(self.prop, method)(*given)
        try:
            return [(sources.index(s), targets.index(t), False) for s, t in pairs]
        except (TypeError, ValueError):
            first = "input" if which == "forward" else "declared dependency"
            raise wrong(self.name, method, pairs, f"a list of pairs ({first}, output)") from None

    def accumulates(self) -> bool:
        """Whether the user's functions handle the request ``add``."""
        given = getattr(self.prop, "accumulates", False)
        answer = given() if callable(given) else given
        if not isinstance(answer, bool):
            raise wrong(self.name, "accumulates", answer, "True or False")
        return answer

    def requests(self, which: str, shapes: list[Any]) -> list[tuple[str, int]]:
        """The resources that forward or backward asks for; ``shapes`` begin with the arguments'."""
        if not self.asks_for[which]:
            return []
        method = which + "_resource"
        answer = getattr(self.prop, method)(shapes[: self.n_args])
        return resource_requests(self.name, method, answer)


_PARTS = ("inputs", "outputs", "auxiliary states")


def node_definitions(
    name: str,
    schema: Any,
    make: Callable[..., Node],
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *,
    state: Callable[..., Any] | None = None,
    hints: bool = False,
    views: str = "ndarray",
    assign: str = "self.assign",
    takes_ctx: bool = True,
) -> tuple[Definition, Definition]:
    """The two operators of a subclassed one: itself and ``_backward_<name>``.

    ``forward(node, state, ctx, in_data, aux, req, out_data)`` and ``backward(node, state, ctx,
    out_grad, in_data, out_data, aux, req, in_grad)`` compute, on arrays of the kind ``views``; of
    ``ctx`` they get only whether this is training unless it ``takes_ctx``. With ``hints`` nodes
    have in-place options and ask for resources.
    """

    def asking(which: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(node: Node, state: Any, ctx: Any, *operands: Any) -> Any:
            if node.asks_for[which]:
                # The gradients, which come last, have the arguments' shapes.
                arguments = operands[0 if which == "forward" else -1]
                ctx.request(node.requests(which, [x.shape for x in arguments]))
            return function(node, state, ctx, *operands)

        return run

    if hints:
        forward, backward = asking("forward", forward), asking("backward", backward)
    first, second = Definition(name, schema), Definition(f"_backward_{name}", schema)
    for definition, kernel, run, results in (
        (first, "forward", forward, "out_data"),
        (second, "backward", backward, "in_grad"),
    ):
        definition.make = make
        definition.accumulates = lambda node: node.accumulates()
        spec = KernelSpec(
            kernel, ("always",), 0, run, results=results, assign=assign, takes_ctx=takes_ctx
        )
        definition.kernels = kernels_everywhere(name, views, spec)
    first.facts = lambda node: node.facts
    first.infer_shape = lambda node, ins, outs, exact: node.infer_shape(ins)
    first.infer_type = lambda node, ins, outs: node.infer_type(ins)
    first.operands, second.operands = Node.forward_operands, Node.backward_operands
    first.state = state
    first.gradient = ("backward", second.name, Node.deps)
    second.is_backward = True
    second.facts = _backward_facts
    if hints:
        first.inplace, second.inplace = Node.forward_inplace, Node.backward_inplace
        first.resources = lambda node, ins, outs: node.requests("forward", ins)
        second.resources = lambda node, ins, outs: node.requests("backward", outs)
    return first, second


def _backward_facts(node: Node) -> Facts:
    """Inputs are the declared dependency and the auxiliary states, outputs one gradient per
    input.
    """
    inputs = tuple(f"{_WORDS[kind]}{i}" for kind, i in node.plan())
    first = len(inputs)
    mutated = tuple(range(first, first + len(node.aux)))
    return Facts(inputs + node.aux, node.facts.inputs, len(node.facts.inputs), mutated)


def checked_operator(name: str, made: Any) -> Any:
    """``made``, the result of ``create_operator``, if it can compute."""
    methods = (getattr(made, method, None) for method in ("forward", "backward"))
    if all(callable(method) for method in methods) and not isinstance(made, type):
        return made
    raise wrong(name, "create_operator", made, "an object with forward and backward")
