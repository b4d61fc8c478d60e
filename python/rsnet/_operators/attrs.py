"""What the functions of an operator's attributes get: ``Attrs`` and ``GradNode``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .definition import Facts
from .gradient import GradEntry, Rule, Source

#: nnvm's "any number of inputs", for ``set_num_inputs``.
kVarg = 2**32 - 1


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
