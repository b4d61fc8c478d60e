"""`MemoryPlan`: where every entry of a graph lives, and when; as a table or a picture."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["MemoryPlan", "PlannedEntry"]


class PlannedEntry(NamedTuple):
    """One output of one node. Uses are positions in execution order. `output` is the position of
    the output in whose array it lies: it is the output, was taken over by it, or ends before it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    offset: int | None
    first_use: int
    last_use: int
    inplace_of: str | None
    req: str
    internal: bool
    output: int | None
    ctx: str


class MemoryPlan:
    """A memory plan as data.

    Attributes
    ----------
    arena_bytes : int
        Bytes of all arenas together: what `memory_limit` bounds and an executor allocates for its
        internal entries. Each begins at a multiple of 64 bytes there, for which the bounds below
        do not account.
    output_bytes : int
        Bytes that an executor allocates for outputs, which have arrays of their own beside the
        arenas. What an output took over in place lies in its array too, and so do entries that end
        before it is written, where that makes the total smaller.
    temp_bytes : int
        Bytes of the temporary space that operators ask for while they run. Operators that cannot
        run side by side share it; what an operator asks for without a size is not counted.
    lower_bound_bytes : int
        The most bytes alive at once in the arenas.
    no_sharing_bytes : int
        What separate arrays for all internal entries would need.
    recomputed_nodes : int
        Nodes that run a second time in the backward pass.
    num_forward : int
        Number of positions, from the first in execution order, that form the forward pass.

    Examples
    --------
    >>> import rsnet as mx
    >>> plan = mx.sym.exp(mx.sym.exp(mx.sym.Variable("x"))).memory_plan(x=(2, 3))
    >>> plan.arena_bytes >= plan.lower_bound_bytes
    True
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.arena_bytes: int = handle.arena_bytes
        self.output_bytes: int = handle.output_bytes
        self.temp_bytes: int = handle.temp_bytes
        self.lower_bound_bytes: int = handle.lower_bound_bytes
        self.no_sharing_bytes: int = handle.no_sharing_bytes
        self.recomputed_nodes: int = handle.recomputed_nodes
        self.num_forward: int = handle.num_forward

    @cached_property
    def entries(self) -> list[PlannedEntry]:
        """Every entry in execution order."""
        return [PlannedEntry(**fields) for fields in self._handle.entries()]

    def __repr__(self) -> str:
        return (
            f"<MemoryPlan of {len(self.entries)} entries in {self.arena_bytes} bytes "
            f"(bound {self.lower_bound_bytes}) and {self.output_bytes} of outputs>"
        )

    def __str__(self) -> str:
        rows = [("name", "shape", "dtype", "bytes", "offset", "uses", "req", "in place of")]
        for e in self.entries:
            place = "-" if e.offset is None else str(e.offset)
            uses = f"{e.first_use}-{e.last_use}"
            row = (e.name, str(e.shape), e.dtype, str(e.bytes), place, uses, e.req)
            rows.append((*row, e.inplace_of or ""))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines.append(
            f"arena {self.arena_bytes} bytes, lower bound {self.lower_bound_bytes}, "
            f"without sharing {self.no_sharing_bytes}, {self.recomputed_nodes} nodes recomputed, "
            f"outputs {self.output_bytes} bytes, temporary space {self.temp_bytes} bytes"
        )
        return "\n".join(lines)

    def _repr_svg_(self) -> str:
        """The picture of `draw`, which notebooks show."""
        from . import drawing

        return drawing.svg(drawing.picture_of(self))

    def draw(self, path: str) -> None:
        """Draws the arena of every device: time (execution order) to the right, offset upwards.
        Each box is an entry over its life, blue to green in the forward pass, red to yellow in the
        backward pass; the dashed red line is the lower bound.

        Parameters
        ----------
        path : str
            File to write; its ending says how: `.svg` (names of entries as tooltips) or `.png`.

        Raises
        ------
        ValueError
            Another ending.
        """
        kind = Path(path).suffix.lower()
        if kind not in (".svg", ".png"):
            ending = "a name that ends with '.svg' or '.png'"
            raise ValueError(f"draw: invalid path '{path}': expected {ending}")
        from . import drawing  # brings in much of the standard library

        picture = drawing.picture_of(self)
        if kind == ".svg":
            Path(path).write_text(drawing.svg(picture), encoding="utf-8")
        else:
            Path(path).write_bytes(drawing.png(picture))
