"""Graphs that cannot be planned: the shapes of some of their entries depend on numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import _core
from . import _contrib

NDArray = _core.NDArray

#: What computes the operators whose outputs have shapes that numbers decide.
_BY_NUMBERS: dict[str, Callable[..., Any]] = {
    "_contrib_boolean_mask": lambda inputs, attrs: _contrib.boolean_mask(
        inputs[0], inputs[1], axis=int(attrs.get("axis", 0))
    )
}


class StepwiseGraph:
    """A symbol that is called like an operator, as `_core.CachedGraph`, and runs operator by
    operator; while recording each call is a node of the tape.

    Raises
    ------
    NotImplementedError
        The symbol holds loops or conditions beside operators that need this.
    """

    def __init__(self, name: str, symbol: Any) -> None:
        graph = symbol.graph()
        self._name, self._heads, self._monitor = name, graph.heads, None
        self._inputs = {n: i for i, n in enumerate(symbol.list_inputs())}
        self._nodes = graph.nodes
        for node in graph.nodes:
            if node.op in ("_foreach", "_while_loop", "_cond"):
                raise NotImplementedError(
                    f"{node.op} '{node.name}': expected no loops or conditions in a graph with "
                    f"{', '.join(sorted(_BY_NUMBERS))}"
                )

    @staticmethod
    def is_needed(symbol: Any) -> bool:
        """Whether the symbol holds an operator whose output has a shape that numbers decide."""
        handle = symbol._handle
        return any(handle.holds(op) for op in _BY_NUMBERS)

    def __call__(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        if len(arrays) != len(self._inputs):
            raise ValueError(
                f"cached graph '{self._name}': got {len(arrays)} arrays, expected "
                f"{len(self._inputs)}: {', '.join(self._inputs)}"
            )
        found: list[list[NDArray]] = []
        for node in self._nodes:
            if node.op == "null":
                found.append([arrays[self._inputs[node.name]]])
                continue
            found.append(self._run(node, [found[at][i] for at, i, *_ in node.inputs]))
        return [found[at][i] for at, i, *_ in self._heads]

    def _run(self, node: Any, inputs: list[NDArray]) -> list[NDArray]:
        by_numbers = _BY_NUMBERS.get(node.op)
        if by_numbers is not None:
            made = by_numbers(inputs, node.attrs)
        else:
            params = [(k, v) for k, v in node.attrs.items() if not k.startswith("__")]
            made = _core.invoke(node.op, inputs, params)
        outputs = [made] if isinstance(made, NDArray) else list(made)
        if self._monitor is not None:
            for i, output in enumerate(outputs):
                suffix = "output" if len(outputs) == 1 else f"output{i}"
                self._monitor(f"{node.name}_{suffix}", output)
        return outputs

    def set_monitor(self, monitor: Any, monitor_all: bool) -> None:
        """Calls ``monitor(name, array)`` with the outputs of every operator; None removes it."""
        self._monitor = monitor
