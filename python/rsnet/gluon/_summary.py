"""The table of `Block.summary`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ndarray import NDArray
from ..symbol import Symbol
from .block import Block
from .hybrid_block import HybridBlock
from .nn.basic_layers import HybridSequential, Sequential

_ROW = "{:>20}  {:>42} {:>15}"
_RULE = "-" * 80


def _shape(args: Any) -> str:
    """Shapes of arrays, or of nested lists of them."""

    def of(x: Any) -> Any:
        if isinstance(x, NDArray):
            return x.shape
        return [of(one) for one in x] if isinstance(x, (list, tuple)) else None

    found = of(args)
    while isinstance(found, list) and len(found) == 1:
        found = found[0]
    return str(found)


class _Table:
    def __init__(self) -> None:
        self.rows: list[tuple[str, str, int]] = []
        self.total = self.trainable = self.shared = 0
        self.seen: set[int] = set()

    def note(self, block: Block, inputs: Any, outputs: Any) -> None:
        if isinstance(outputs, Symbol):  # a call that decides shapes
            return
        count = 0
        for param in block.params.values():
            size = int(np.prod(param.shape or ()))
            count += size
            self.total += size
            self.trainable += 0 if param.grad_req == "null" else size
            self.shared += size if id(param) in self.seen else 0
            self.seen.add(id(param))
        name = f"{type(block).__name__}-{len(self.rows)}"
        self.rows.append((name, _shape(outputs), count))

    def show(self) -> None:
        print(_RULE)
        print(_ROW.format("Layer (type)", "Output Shape", "Param #"))
        print("=" * 80)
        for row in self.rows:
            print(_ROW.format(*row))
        print("=" * 80)
        print("Parameters in forward computation graph, duplicate included")
        print(f"   Total params: {self.total}")
        print(f"   Trainable params: {self.trainable}")
        print(f"   Non-trainable params: {self.total - self.trainable}")
        print(f"Shared params in forward computation graph: {self.shared}")
        print(f"Unique parameters in model: {self.total - self.shared}")
        print(_RULE)


def print_summary(block: Block, inputs: tuple[Any, ...]) -> None:
    """Runs the block on the inputs and prints what each block but `Sequential` did."""
    table = _Table()
    table.rows.append(("Input", _shape(inputs), 0))
    hooks = []

    def watch(one: Block) -> None:
        if isinstance(one, HybridBlock) and one._active:
            raise AssertionError(
                f"summary: invalid block '{one.name}', which is hybridized: expected none that is "
                "(hybridize(False) undoes it)"
            )
        if not isinstance(one, (Sequential, HybridSequential)):
            hooks.append(one.register_forward_hook(table.note))

    try:
        block.apply(watch)
        block(*inputs)
        table.show()
    finally:
        for hook in hooks:
            hook.detach()
