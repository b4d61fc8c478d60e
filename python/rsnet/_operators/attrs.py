"""What is known of an operator that is registered by attributes, and what the functions of its
attributes get: ``OperatorRecord``, to which ``Entry`` adds methods, ``Attrs`` and ``GradNode``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .checks import MOST_OPERANDS, invalid, is_integer
from .definition import Facts
from .gradient import GradEntry, Rule, Source

#: nnvm's "any number of inputs", for ``set_num_inputs``.
kVarg = 2**32 - 1


@dataclass(eq=False, repr=False)
class OperatorRecord:
    """The fields of one operator. Its definition in the core reads them when it is used."""

    name: str
    #: Views that kernels get unless they ask for others.
    views: str = field(init=False, default="ndarray")
    #: Level and value by the name of an attribute, and the kind of views of each kernel.
    attributes: dict[str, tuple[int, Any]] = field(init=False, default_factory=dict)
    kernel_views: dict[str, str] = field(init=False, default_factory=dict)
    #: A class of parameters, or a function of texts.
    param: Any = field(init=False, default=None)
    num_inputs: Any = field(init=False, default=1)
    num_outputs: Any = field(init=False, default=1)
    arguments: list[tuple[str, str, str]] = field(init=False, default_factory=list)
    input_docs: Mapping[str, str] = field(init=False, default_factory=dict)
    param_docs: dict[str, tuple[str, str]] = field(init=False, default_factory=dict)
    aliases: list[str] = field(init=False, default_factory=list)
    doc: str = field(init=False, default="")
    key_var_num_args: str | None = field(init=False, default=None)
    #: Whether the core has the operator.
    installed: bool = field(init=False, default=False)
    #: Whether the decorator ``op.op`` made the record, and whether it was replaced.
    decorated: bool = field(init=False, default=False)
    superseded: bool = field(init=False, default=False)

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        return self.attributes.get(name, (0, default))[1]

    def number(self, what: str, n: Any, least: int) -> int:
        """``n`` as an int, if an operator may have that many operands."""
        if is_integer(n, least):
            return int(n)
        any_number = f", or op.kVarg ({kVarg}) for any number" if "inputs" in what else ""
        expected = f"{least} to {MOST_OPERANDS}, or a function of attrs{any_number}"
        raise invalid(self.name, what, n, expected)


class Attrs:
    """The parameters of one call: ``parsed`` (the struct), ``dict`` (texts), ``operator``."""

    __slots__ = ("operator", "parsed", "dict", "facts", "on_variables")

    def __init__(self, operator: str, parsed: Any, given: dict[str, str]) -> None:
        self.operator = operator
        self.parsed = parsed
        self.dict = given
        self.facts: Facts
        self.on_variables: list[tuple[str, str, str]] = []

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
        self.inputs = rule.entries(Source.INPUT, len(attrs.facts.inputs))
        self.outputs = rule.entries(Source.OUTPUT, n_out)

    def backward(self, op: str, inputs: Sequence[GradEntry]) -> list[GradEntry]:
        """Runs backward operator ``op``, which gets this node's parameters and state."""
        return self._rule.call(op, inputs, outputs=len(self.inputs), backward=True)

    def op(
        self, op: str, *inputs: GradEntry, name: str = "", outputs: int = 1, **params: Any
    ) -> Any:
        """Runs any operator; returns its result, or a list if there are several."""
        return self._rule.run(op, inputs, params, outputs, name)
