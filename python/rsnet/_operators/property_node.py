"""The payload and definitions of subclassed operators: one property object per parsed call.

A :class:`Node` asks the user's property for its lists once, checks them, and translates
dependencies, in-place hints and inference between the user's methods and the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import MXNetError
from .checks import TYPES, add_note, fail, name_list, resource_requests, shape_list, type_list
from .definition import Definition, Facts, KernelSpec
from .gradient import Source
from .property import OperatorProperty


class Undeclared:
    """Stands for an array that backward did not declare to need: empty, and an error on any use."""

    __slots__ = ("_what",)
    shape: tuple[int, ...] = ()
    size = 0

    def __init__(self, what: str) -> None:
        self._what = what

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise MXNetError(f"{self._what} is not in the declared backward dependency")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self._what}: not in the declared backward dependency>"


#: What Python and NumPy call on an operand. Not ``__array__``: with it an NDArray on the left of an
#: operator would not leave the operation to the method here.
_USES = """
    add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor
    radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand ror rxor
    iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor
    neg pos abs invert round trunc floor ceil int float complex index
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
        "name", "prop", "args", "aux", "facts", "n_args", "n_out", "as_property",
        "forward_resources", "backward_resources", "_plan", "_blank", "_is_whole", "_types",
    )  # fmt: skip

    def __init__(self, name: str, prop: Any, *, property_style: bool) -> None:
        self.name = name
        self.prop = prop
        self.as_property = property_style

        def listed(method: str) -> tuple[str, ...]:
            # MXNet takes any text for a name of a CustomOpProp.
            return name_list(name, method, getattr(prop, method)(), any_text=not property_style)

        self.args, self.aux = listed("list_arguments"), listed("list_auxiliary_states")
        outputs = listed("list_outputs")
        if not outputs:
            raise fail(name, "list_outputs returned no output")
        visible = len(outputs)
        self.forward_resources = self.backward_resources = False
        self._plan: list[tuple[Source, int]] | None = None
        self._is_whole = False  # backward reads everything, in order
        self._blank: Any = None
        kind = type(prop)
        if property_style:
            visible = self._count("num_visible_outputs", prop.num_visible_outputs(), len(outputs))
            self._count("num_outputs", prop.num_outputs(), len(outputs))
            self.forward_resources = kind.forward_resource is not OperatorProperty.forward_resource
            self.backward_resources = (
                kind.backward_resource is not OperatorProperty.backward_resource
            )
        n = len(self.args)
        inputs = self.args + self.aux
        if len(set(inputs)) != len(inputs):
            raise fail(name, f"arguments and auxiliary states share a name: {list(inputs)}")
        self.n_args, self.n_out = n, len(outputs)
        self._types: dict[tuple[Any, ...], Any] = {}
        self.facts = Facts(inputs, outputs, visible, tuple(range(n, len(inputs))))
        if not (kind.declare_backward_dependency.__module__ or "").startswith("rsnet."):
            self.plan()  # a mistake there shows at the call, not in the backward pass
        if property_style:
            default = OperatorProperty
            if kind.forward_inplace_option is not default.forward_inplace_option:
                self.forward_inplace()
            if kind.backward_inplace_option is not default.backward_inplace_option:
                self.backward_inplace()

    def _count(self, method: str, value: Any, most: int) -> int:
        if not isinstance(value, int) or not 0 < value <= most:
            raise fail(self.name, f"{method} returned {value!r}, expected 1 to {most}")
        return value

    # Inference ---------------------------------------------------------------------------------

    def infer_shape(self, ins: list[Any], outs: list[Any]) -> Any:
        n = self.n_args
        given = ins[:n] if self.as_property else [list(s) for s in ins[:n]]
        answer = self._asked("infer_shape", given)
        parts = self._parts("infer_shape", answer)
        if parts is None:
            return None
        shapes = [
            shape_list(self.name, f"infer_shape: {what}", part, names)
            for what, part, names in zip(_PARTS, parts, self._names())
        ]
        return shapes[0] + shapes[2], shapes[1], None

    def infer_type(self, ins: list[Any], outs: list[Any]) -> Any:
        """Asks once for the same inputs: inference over a graph comes by several times."""
        given = tuple(ins[: self.n_args])
        if given not in self._types:
            self._types = {given: self._infer_type(given)}
        found = self._types[given]
        return found and tuple(list(types) for types in found)

    def _infer_type(self, given: Sequence[Any]) -> Any:
        answer = self._asked("infer_type", [TYPES[t] for t in given])
        parts = self._parts("infer_type", answer)
        if parts is None:
            return None
        types = [
            type_list(self.name, f"infer_type: {what}", part, names)
            for what, part, names in zip(_PARTS, parts, self._names())
        ]
        return types[0] + types[2], types[1]

    def _asked(self, method: str, given: list[Any]) -> Any:
        """What a method of the user's answers; an exception of its own says where it is from."""
        try:
            return getattr(self.prop, method)(given)
        except Exception as error:
            add_note(error, f"in {method} of '{self.name}'")
            raise

    def _names(self) -> tuple[Sequence[str], ...]:
        return self.args, self.facts.outputs, self.aux

    def _parts(self, method: str, answer: Any) -> Any:
        if answer is None or answer is False:
            return None
        if isinstance(answer, (tuple, list)) and len(answer) in (2, 3):
            return (*answer, []) if len(answer) == 2 else answer
        raise fail(
            self.name,
            f"{method} returned {answer!r}, expected (inputs, outputs, auxiliary states)",
        )

    # Backward ----------------------------------------------------------------------------------

    def _entries(self) -> tuple[list[int], list[int], list[int]]:
        """Opaque entries for the user's dependency methods: numbers without meaning."""
        visible, n = self.facts.visible, self.n_args
        first = visible + n
        return (
            list(range(visible)),
            list(range(visible, first)),
            list(range(first, first + self.n_out)),
        )

    def plan(self) -> list[tuple[Source, int]]:
        """The declared dependency as (kind, index)."""
        if self._plan is None:
            kinds = self._entries()
            of = {e: (k, i) for k, es in zip(_SOURCES, kinds) for i, e in enumerate(es)}
            answer = self.prop.declare_backward_dependency(*kinds)
            method = "declare_backward_dependency"
            if not isinstance(answer, (list, tuple)):
                raise fail(self.name, f"{method} returned {answer!r}, expected a list of entries")
            try:
                plan = [of[e] for e in answer]
            except (KeyError, TypeError):
                raise fail(
                    self.name, f"{method} returned {answer!r}: not all are entries it was given"
                ) from None
            if len(set(plan)) != len(plan):
                raise fail(self.name, f"{method} returned {answer!r}: an entry occurs twice")
            self._plan = plan
            self._is_whole = plan == list(of.values())
            self._blank = {
                k: [Undeclared(f"{_WORDS[k]}[{i}] of {self.name}") for i in range(len(es))]
                for k, es in zip(_SOURCES, kinds)
            }
        return self._plan

    def deps(self, n_in: int, n_out: int) -> list[tuple[Source, int]]:
        aux = [(Source.INPUT, i) for i in range(self.n_args, n_in)]
        return self.plan() + aux

    def scatter(self, inputs: list[Any]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """The inputs of the backward operator as out_grad, in_data, out_data and aux."""
        plan = self._plan
        if plan is None:
            plan = self.plan()
        if self._is_whole:  # as they come
            grads, first = self.facts.visible, self.facts.visible + self.n_args
            end = first + self.n_out
            return inputs[:grads], inputs[grads:first], inputs[first:end], inputs[end:]
        lists = {kind: blank[:] for kind, blank in self._blank.items()}
        for (kind, i), array in zip(plan, inputs):
            lists[kind][i] = array
        out_grad, in_data, out_data = lists.values()
        return out_grad, in_data, out_data, inputs[len(plan) :]

    # Hints and resources -----------------------------------------------------------------------

    def forward_inplace(self) -> list[tuple[int, int, bool]]:
        if not self.as_property:
            return []
        ins, outs = self._entries()[1:]
        method = "forward_inplace_option"
        return self._pairs(method, self.prop.forward_inplace_option(ins, outs), ins, outs)

    def backward_inplace(self) -> list[tuple[int, int, bool]]:
        if not self.as_property:
            return []
        entries = self._entries()
        first = entries[2][-1] + 1
        grads = list(range(first, first + self.n_args))
        by_source = dict(zip(_SOURCES, entries))
        declared = [by_source[kind][i] for kind, i in self.plan()]
        method = "backward_inplace_option"
        pairs = self.prop.backward_inplace_option(*entries, grads)
        return self._pairs(method, pairs, declared, grads)

    def _pairs(
        self, method: str, pairs: Any, sources: list[int], targets: list[int]
    ) -> list[tuple[int, int, bool]]:
        if not isinstance(pairs, (list, tuple)):
            raise fail(self.name, f"{method} returned {pairs!r}, expected a list of pairs")
        return [self._pair(method, p, sources, targets) for p in pairs]

    def _pair(
        self, method: str, pair: Any, sources: list[int], targets: list[int]
    ) -> tuple[int, int, bool]:
        try:
            source, target = pair
            return sources.index(source), targets.index(target), False
        except (TypeError, ValueError):
            hint = (
                ": not consistent with declare_backward_dependency"
                if method.startswith("backward")
                else ""
            )
            raise fail(
                self.name, f"{method} returned the pair {pair!r}, expected (input, output){hint}"
            ) from None

    def accumulates(self) -> bool:
        """Whether the user's functions handle the request ``add``."""
        given = getattr(self.prop, "accumulates", False)
        answer = given() if callable(given) else given
        if not isinstance(answer, bool):
            raise fail(self.name, f"accumulates returned {answer!r}, expected True or False")
        return answer

    def requests(self, which: str, shapes: list[Any]) -> list[tuple[str, int]]:
        method = which + "_resource"
        return resource_requests(self.name, method, getattr(self.prop, method)(shapes))


_PARTS = ("inputs", "outputs", "auxiliary states")


def node_definitions(
    name: str,
    schema: Any,
    make: Any,
    state: Any,
    forward_kernel: KernelSpec,
    backward_kernel: KernelSpec,
) -> tuple[Definition, Definition]:
    """The two operators of a subclassed one: itself and ``_backward_<name>``."""
    backward_name = f"_backward_{name}"
    forward, backward = Definition(name, schema), Definition(backward_name, schema)
    forward.make = make
    forward.facts = lambda node: node.facts
    forward.infer_shape = lambda node, ins, outs, exact: node.infer_shape(ins, outs)
    forward.infer_type = lambda node, ins, outs: node.infer_type(ins, outs)
    forward.inplace = Node.forward_inplace
    forward.resources = lambda node, ins, outs: (
        node.requests("forward", ins[: node.n_args]) if node.forward_resources else []
    )
    forward.accumulates = backward.accumulates = Node.accumulates
    forward.state = state
    forward.gradient = ("backward", backward_name, Node.deps)
    forward.kernels = [forward_kernel]

    backward.is_backward = True
    backward.make = make
    backward.facts = _backward_facts
    backward.inplace = Node.backward_inplace
    # The gradients have the shapes of the arguments.
    backward.resources = lambda node, ins, outs: (
        node.requests("backward", outs[: node.n_args]) if node.backward_resources else []
    )
    backward.kernels = [backward_kernel]
    return forward, backward


def _backward_facts(node: Node) -> Facts:
    """Inputs are the declared dependency and the auxiliary states, outputs one gradient per
    input.
    """
    inputs = tuple(f"{_WORDS[kind]}{i}" for kind, i in node.plan())
    first = len(inputs)
    mutated = tuple(range(first, first + len(node.aux)))
    return Facts(inputs + node.aux, node.facts.inputs, len(node.facts.inputs), mutated)


def checked_operator(name: str, method: str, made: Any) -> Any:
    """``made`` if it can compute."""
    if callable(getattr(made, "forward", None)) and callable(getattr(made, "backward", None)):
        return made
    raise fail(name, f"{method} returned {made!r}, expected an object with forward and backward")
