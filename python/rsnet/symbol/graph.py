"""`StaticGraph`: the flat form of a symbol as data."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["GraphNode", "StaticGraph"]


class GraphNode(NamedTuple):
    """A node: `op` is "null" for a variable; inputs are (node, output) pairs; `addto` lists
    (output, (node, output)) pairs: the output is added to that entry in its own memory."""

    op: str
    name: str
    inputs: list[tuple[int, int]]
    attrs: dict[str, str]
    backward_source: int | None
    mirror_source: int | None
    addto: list[tuple[int, tuple[int, int]]]


class StaticGraph:
    """Nodes in execution order.

    Attributes
    ----------
    nodes : list of GraphNode
    arg_nodes : list of int
        Nodes that are variables.
    heads : list of (int, int)
        The outputs, as (node, output).

    Examples
    --------
    >>> import rsnet as mx
    >>> graph = (mx.sym.Variable("a") * mx.sym.Variable("b")).graph()
    >>> [node.op for node in graph.nodes]
    ['null', 'null', 'elemwise_mul']
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.nodes = [GraphNode(*fields) for fields in handle.nodes()]
        self.heads: list[tuple[int, int]] = handle.heads()
        self.arg_nodes = [i for i, node in enumerate(self.nodes) if node.op == "null"]

    def post_dfs_order(self, heads: list[tuple[int, int]]) -> list[int]:
        """Nodes that the entries `heads` need, each after its inputs."""
        order: list[int] = []
        seen: set[int] = set()
        for head, _ in heads:
            stack = [(head, 0)]
            while stack:
                node, at = stack.pop()
                if at == 0:
                    if node in seen:
                        continue
                    seen.add(node)
                inputs = self.nodes[node].inputs
                if at == len(inputs):
                    order.append(node)
                    continue
                stack.append((node, at + 1))
                if inputs[at][0] not in seen:
                    stack.append((inputs[at][0], 0))
        return order

    def topo_sort(self) -> list[int]:
        """All nodes in depth-first order of those that nobody reads."""
        read = {source for node in self.nodes for source, _ in node.inputs}
        sinks = [(i, 0) for i in range(len(self.nodes)) if i not in read]
        return self.post_dfs_order(sinks)

    def make_backward_pass(
        self,
    ) -> tuple[StaticGraph, list[int | None], list[tuple[int, int] | None], dict[int, int]]:
        """The gradient of all heads with respect to all arguments.

        Returns
        -------
        graph : StaticGraph
            This graph followed by its backward nodes.
        head_grads : list of int or None
            The node of every head's gradient, None where it is not asked for.
        arg_grads : list of (int, int) or None
            The entry of every argument's gradient.
        mirror : dict of int to int
            Nodes that are computed again, with their copies.
        """
        handle, head_grads, arg_grads = self._handle.make_backward_pass()
        graph = StaticGraph(handle)
        mirror = {
            node.mirror_source: i
            for i, node in enumerate(graph.nodes)
            if node.mirror_source is not None
        }
        return graph, head_grads, arg_grads, mirror

    def to_symbol(self) -> Any:
        """A symbol of the same graph."""
        from .symbol import Symbol

        return Symbol(self._handle.to_symbol())
