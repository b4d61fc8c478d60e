"""`StaticGraph`: the flat form of a symbol as data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._operators import registry
from .._warnings import warn
from ..base import MXNetError, shown

__all__ = ["GraphNode", "StaticGraph"]

NodeEntry = tuple[int, int]


class GraphNode(NamedTuple):
    """A node of a static graph.

    Attributes
    ----------
    op : str
        The operator; "null" for a variable.
    name : str
    inputs : list of (int, int)
        Entries, as (node, output).
    attrs : dict of str to str
        Parameters and attributes.
    backward_source : int or None
        The forward node that this backward node differentiates.
    mirror_source : int or None
        The node that this one computes again.
    addto : list of (int, (int, int))
        Pairs of an output and an entry: the output is added to the entry, in the entry's memory.
    control_deps : list of int
        Nodes that run before this one although it does not read them.
    """

    op: str
    name: str
    inputs: list[NodeEntry]
    attrs: dict[str, str]
    backward_source: int | None
    mirror_source: int | None
    addto: list[tuple[int, NodeEntry]]
    control_deps: list[int]

    @property
    def sources(self) -> list[int]:
        """The nodes to visit before this one: those of its inputs, then those that it adds to,
        control dependencies and at last its backward source.
        """
        nodes = [node for node, _ in self.inputs]
        nodes += [node for _, (node, _) in self.addto]
        nodes += self.control_deps
        return nodes if self.backward_source is None else [*nodes, self.backward_source]


class StaticGraph:
    """Nodes in execution order. `Symbol.graph()` makes one.

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

    def __init__(self, handle: _core.GraphHandle) -> None:
        self._handle = handle
        self.nodes = [GraphNode(*fields) for fields in handle.nodes()]
        self.heads: list[NodeEntry] = handle.heads()
        self.arg_nodes = [i for i, node in enumerate(self.nodes) if node.op == "null"]

    def _node_id(self, head: Any) -> int:
        """The node of a head given as a number or as a pair."""
        node = head
        if isinstance(head, tuple | list) and len(head) == 2:
            node = head[0]
        if not isinstance(node, int | np.integer) or isinstance(node, bool):
            raise TypeError(
                f"invalid head {head!r}: expected the number of a node or a pair (node, output)"
            )
        if not 0 <= node < len(self.nodes):
            raise MXNetError(
                f"invalid node {node}: expected 0 to {len(self.nodes) - 1}, the graph has "
                f"{len(self.nodes)} nodes"
            )
        return int(node)

    def post_dfs_order(self, heads: Iterable[int | NodeEntry]) -> list[int]:
        """The nodes that `heads` need, each after what it needs.

        The inputs of a node are visited in order, its backward source as the last of them.

        Parameters
        ----------
        heads : iterable of int or (int, int)
            Numbers of nodes, or entries.

        Raises
        ------
        TypeError
            A head is neither a number nor a pair.
        MXNetError
            The graph has no such node.

        Examples
        --------
        >>> import rsnet as mx
        >>> graph = mx.sym.exp(mx.sym.Variable("a") + mx.sym.Variable("b")).graph()
        >>> graph.post_dfs_order([2])
        [0, 1, 2]
        """
        order: list[int] = []
        seen: set[int] = set()
        for head in [self._node_id(head) for head in heads]:
            stack = [] if head in seen else [(head, iter(self.nodes[head].sources))]
            seen.add(head)
            while stack:
                node, sources = stack[-1]
                source = next((s for s in sources if s not in seen), None)
                if source is None:
                    order.append(node)
                    stack.pop()
                else:
                    seen.add(source)
                    stack.append((source, iter(self.nodes[source].sources)))
        return order

    def topo_sort(self) -> list[int]:
        """All nodes, depth first from those that no other node needs."""
        needed = {source for node in self.nodes for source in node.sources}
        return self.post_dfs_order(i for i in range(len(self.nodes)) if i not in needed)

    def make_backward_pass(
        self,
    ) -> tuple[StaticGraph, list[int | None], list[NodeEntry | None], dict[int, int]]:
        """The gradient of all heads with respect to all arguments.

        Where very many gradients of one entry meet (MXNET_EXEC_INPLACE_GRAD_SUM_CAP, 8), each is
        added onto the last in place, which `addto` of the nodes shows.

        Returns
        -------
        graph : StaticGraph
            The nodes of this graph, copies of those that are computed again, the variables of head
            gradients, and the backward nodes, in this order.
        head_grads : list of int or None
            The node of each head's gradient, None where no backward node reads it.
        arg_grads : list of (int, int) or None
            The entry of each argument's gradient.
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

    def to_json(self) -> str:
        """The graph as JSON: the format of `Symbol.tojson()`, with all nodes and the fields
        `backward_source_id`, `mirror_source_id` and `addto` on the nodes that have them.
        """
        return self._handle.to_json()

    @classmethod
    def from_json(cls, json_str: str) -> StaticGraph:
        """The graph from `to_json()`, or from a symbol file of any version of MXNet up to 1.9.

        A backward node of a file of version 0.8 has no operator of its own; it becomes what the
        gradient of its forward node is here.

        Raises
        ------
        MXNetError
            Text that is not such JSON, or an operator that does not exist.
        """
        if not isinstance(json_str, str):
            raise TypeError(f"invalid json_str {shown(json_str)}: expected a string")
        registry.define_named(json_str)
        return cls(_core.GraphHandle.from_json(json_str))

    def to_symbol(self) -> Any:
        """A symbol of the heads.

        Warns
        -----
        UserWarning
            Something has no place in a symbol: nodes that no head needs (backward nodes, for
            instance), links to mirrored nodes, and sums in place, which become additions.
        """
        from .symbol import Symbol

        dropped = self._dropped_by_symbol()
        if dropped:
            warn(f"to_symbol drops {'; '.join(dropped)}")
        return Symbol(self._handle.to_symbol())

    def _dropped_by_symbol(self) -> list[str]:
        kept = set(self.post_dfs_order(self.heads))
        dropped = []
        unneeded = [node.name for i, node in enumerate(self.nodes) if i not in kept]
        if unneeded:
            more = ", ..." if len(unneeded) > 5 else ""
            dropped.append(
                f"{len(unneeded)} nodes that no head needs ({', '.join(unneeded[:5])}{more})"
            )
        copies = [self.nodes[i].name for i in kept if self.nodes[i].mirror_source is not None]
        if copies:
            dropped.append(f"the mirror source of {len(copies)} nodes")
        sums = sum(len(self.nodes[i].addto) for i in kept)
        if sums:
            dropped.append(f"{sums} sums in place, which become additions")
        return dropped
