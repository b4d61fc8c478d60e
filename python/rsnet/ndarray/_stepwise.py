"""Graphs that cannot be planned: the shapes of some of their arrays depend on numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import _core
from .._on_demand import import_on_demand
from ..context import Context
from ..util import is_np_shape
from ._by_numbers import FUNCTIONS

if TYPE_CHECKING:
    from ..symbol import Symbol
    from ..symbol.graph import GraphNode

NDArray = _core.NDArray

#: Operators that hold graphs. They cannot be called by name.
_LOOPS = ("_foreach", "_while_loop", "_cond")


class StepwiseGraph:
    """A symbol that is called like an operator, as `_core.CachedGraph`, and runs operator by
    operator; while recording, each of these calls is a node of the tape. A loop or condition is one
    operator, whose bodies are planned for each combination of shapes.
    """

    def __init__(self, name: str, symbol: Symbol) -> None:
        graph = symbol.graph()
        self._name, self._nodes, self._heads = name, graph.nodes, graph.heads
        self._inputs = {name: i for i, name in enumerate(symbol.list_inputs())}
        self._monitor: Callable[[str, NDArray], None] | None = None
        loops = [i for i, node in enumerate(graph.nodes) if node.op in _LOOPS]
        fields = _json().loads(graph.to_json())["nodes"] if loops else []
        self._loops = {i: _Loop(graph.nodes[i], fields[i]) for i in loops}

    @staticmethod
    def is_needed(symbol: Symbol) -> bool:
        """Whether the symbol holds an operator whose output has a shape that numbers decide."""
        return bool(symbol._handle.shaped_by_numbers())

    def __call__(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        if len(arrays) != len(self._inputs):
            raise ValueError(
                f"cached graph '{self._name}': got {len(arrays)} arrays, expected "
                f"{len(self._inputs)}: {', '.join(self._inputs)}"
            )
        outputs_of: list[list[NDArray]] = []
        for number, node in enumerate(self._nodes):
            if node.op == "null":
                outputs_of.append([arrays[self._inputs[node.name]]])
            else:
                inputs = [outputs_of[at][i] for at, i, *_ in node.inputs]
                outputs_of.append(self._run(number, node, inputs))
        return [outputs_of[at][i] for at, i, *_ in self._heads]

    def infer(self, arrays: Sequence[NDArray], ctx: Context) -> list[NDArray]:
        """The outputs in inference, unrecorded, on a device."""
        recording, training = _core.set_recording(False), _core.set_training(False)
        try:
            with ctx:
                return self(arrays)
        finally:
            _core.set_recording(recording)
            _core.set_training(training)

    def _run(self, number: int, node: GraphNode, inputs: list[NDArray]) -> list[NDArray]:
        """The outputs of a node, which are shown to the monitor."""
        made: Any
        if node.op in FUNCTIONS:
            function, names = FUNCTIONS[node.op]
            params = {k: ast.literal_eval(node.attrs[k]) for k in names if k in node.attrs}
            made = function(*inputs, **params)
        elif number in self._loops:
            made = self._loops[number](inputs)
        else:
            known = _parameters(node.op)
            made = _core.invoke(node.op, inputs, [p for p in node.attrs.items() if known(p[0])])
        outputs = [made] if isinstance(made, NDArray) else list(made)
        if self._monitor is not None:
            for i, output in enumerate(outputs):
                suffix = "output" if len(outputs) == 1 else f"output{i}"
                self._monitor(f"{node.name}_{suffix}", output)
        return outputs

    def set_monitor(
        self, monitor: Callable[[str, NDArray], None] | None, monitor_all: bool
    ) -> None:
        """Calls ``monitor(name, array)`` with the outputs of every operator; None removes it."""
        self._monitor = monitor


def _json() -> ModuleType:
    """Few programs need it, and it would make every import of the package slower."""
    return import_on_demand("json")


class _Loop:
    """A node that holds graphs, as a graph of its own."""

    def __init__(self, node: GraphNode, fields: dict[str, Any]) -> None:
        names = [f"input{i}" for i in range(len(node.inputs))]
        nodes: list[dict[str, Any]] = [{"op": "null", "name": n, "inputs": []} for n in names]
        nodes.append({**fields, "inputs": [[i, 0, 0] for i in range(len(names))]})
        heads = [[len(names), i, 0] for i in range(int(node.attrs["num_outputs"]))]
        graph = {"nodes": nodes, "arg_nodes": list(range(len(names))), "heads": heads}
        handle = _core.SymbolHandle.from_json(_json().dumps(graph), is_np_shape(), True)[0]
        self._order = [names.index(name) for name in handle.list_inputs()]
        self._graph = _core.CachedGraph(node.name, handle, [], None)

    def __call__(self, inputs: list[NDArray]) -> list[NDArray]:
        return self._graph([inputs[i] for i in self._order])


@cache
def _parameters(operator: str) -> Callable[[str], bool]:
    """Says of an attribute of a node whether it is a parameter of the operator."""
    if operator == "Custom":  # which has the parameters of any type
        return lambda name: not name.startswith("__")
    return {name for name, *_ in _core.operator_info(operator)["params"]}.__contains__
