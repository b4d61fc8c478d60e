"""Graphs that cannot be planned: the shapes of some of their arrays depend on numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from ._by_numbers import FUNCTIONS

if TYPE_CHECKING:
    from ..symbol import Symbol
    from ..symbol.graph import GraphNode

NDArray = _core.NDArray

#: Operators that hold graphs. They cannot be called by name.
_LOOPS = ("_foreach", "_while_loop", "_cond")


class StepwiseGraph:
    """A symbol that is called like an operator, as `_core.CachedGraph`, and runs operator by
    operator; while recording, each of these calls is a node of the tape.

    Raises
    ------
    NotImplementedError
        The symbol holds a loop or a condition beside an operator that needs this.
    """

    def __init__(self, name: str, symbol: Symbol) -> None:
        graph = symbol.graph()
        self._name, self._nodes, self._heads = name, graph.nodes, graph.heads
        self._inputs = {name: i for i, name in enumerate(symbol.list_inputs())}
        self._monitor: Callable[[str, NDArray], None] | None = None
        for node in graph.nodes:
            if node.op in _LOOPS:
                raise NotImplementedError(
                    f"{node.op} '{node.name}': invalid symbol: expected no loop or condition in a "
                    f"symbol with {', '.join(sorted(symbol._handle.shaped_by_numbers()))}, which runs "
                    "operator by operator: put each into a symbol or block of its own"
                )

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
        for node in self._nodes:
            if node.op == "null":
                outputs_of.append([arrays[self._inputs[node.name]]])
            else:
                outputs_of.append(self._run(node, [outputs_of[at][i] for at, i, *_ in node.inputs]))
        return [outputs_of[at][i] for at, i, *_ in self._heads]

    def _run(self, node: GraphNode, inputs: list[NDArray]) -> list[NDArray]:
        """The outputs of a node, which are shown to the monitor."""
        params = {k: v for k, v in node.attrs.items() if not k.startswith("__")}
        made: Any
        if node.op in FUNCTIONS:
            typed = {k: ast.literal_eval(v) for k, v in params.items()}
            made = FUNCTIONS[node.op](*inputs, **typed)
        else:
            made = _core.invoke(node.op, inputs, list(params.items()))
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
