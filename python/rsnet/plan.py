"""`MemoryPlan`: where every entry of a graph lives, and when; as a table or a picture."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["MemoryPlan", "PlannedEntry"]


class PlannedEntry(NamedTuple):
    """One output of one node. Uses are positions in execution order."""

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


class MemoryPlan:
    """A memory plan as data.

    Attributes
    ----------
    arena_bytes : int
        Bytes of all arenas together.
    lower_bound_bytes : int
        The most bytes alive at once.
    no_sharing_bytes : int
        What separate arrays would need.
    recomputed_nodes : int
        Nodes that run a second time in the backward pass.

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
        self.lower_bound_bytes: int = handle.lower_bound_bytes
        self.no_sharing_bytes: int = handle.no_sharing_bytes
        self.recomputed_nodes: int = handle.recomputed_nodes
        self._entries: list[PlannedEntry] | None = None

    @property
    def entries(self) -> list[PlannedEntry]:
        """Every entry in execution order."""
        if self._entries is None:
            self._entries = [PlannedEntry(**fields) for fields in self._handle.entries()]
        return self._entries

    def __repr__(self) -> str:
        return (
            f"<MemoryPlan of {len(self.entries)} entries in {self.arena_bytes} bytes "
            f"(bound {self.lower_bound_bytes})>"
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
            f"without sharing {self.no_sharing_bytes}, {self.recomputed_nodes} nodes recomputed"
        )
        return "\n".join(lines)

    def draw(self, path: str) -> None:
        """Draws the arena: time (execution order) to the right, offset upwards.

        Parameters
        ----------
        path : str
            File to write; its ending says how: `.svg` or `.png`.

        Raises
        ------
        ValueError
            Another ending.
        """
        boxes = [e for e in self.entries if e.internal and e.bytes and e.offset is not None]
        kind = Path(path).suffix.lower()
        if kind == ".svg":
            Path(path).write_text(_svg(self, boxes), encoding="utf-8")
        elif kind == ".png":
            Path(path).write_bytes(_png(self, boxes))
        else:
            raise ValueError(f"draw: '{path}' ends with '{kind}', expected '.svg' or '.png'")


_WIDTH, _HEIGHT, _MARGIN = 1200, 600, 40


def _scale(plan: MemoryPlan, boxes: list[PlannedEntry]) -> tuple[float, float]:
    end = max((b.last_use for b in boxes), default=0) + 1
    return (_WIDTH - 2 * _MARGIN) / end, (_HEIGHT - 2 * _MARGIN) / max(plan.arena_bytes, 1)


def _colour(name: str) -> tuple[int, int, int]:
    """A light colour that depends on the name alone."""
    digest = zlib.crc32(name.encode())
    return tuple(120 + (digest >> shift) % 120 for shift in (0, 8, 16))  # type: ignore[return-value]


def _rectangle(
    plan: MemoryPlan, box: PlannedEntry, x_unit: float, y_unit: float
) -> tuple[float, float, float, float]:
    """Left, top, width, height in the picture."""
    left = _MARGIN + box.first_use * x_unit
    width = (box.last_use - box.first_use + 1) * x_unit
    height = box.bytes * y_unit
    assert box.offset is not None
    top = _HEIGHT - _MARGIN - (box.offset + box.bytes) * y_unit
    return left, top, width, height


def _svg(plan: MemoryPlan, boxes: list[PlannedEntry]) -> str:
    from xml.sax.saxutils import escape

    units = _scale(plan, boxes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for box in boxes:
        left, top, width, height = _rectangle(plan, box, *units)
        red, green, blue = _colour(box.name)
        title = escape(f"{box.name} {box.shape} {box.dtype}, {box.bytes} bytes at {box.offset}")
        lines.append(
            f'<rect x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" height="{height:.2f}" '
            f'fill="rgb({red},{green},{blue})" stroke="black" stroke-width="0.3">'
            f"<title>{title}</title></rect>"
        )
        if height > 12 and width > 7 * len(box.name):
            at = f'x="{left + 3:.2f}" y="{top + 11:.2f}"'
            lines.append(f"<text {at}>{escape(box.name)}</text>")
    lines.append(
        f'<text x="{_MARGIN}" y="{_MARGIN - 15}">arena {plan.arena_bytes:,} bytes, lower bound '
        f"{plan.lower_bound_bytes:,}; time to the right, offset upwards</text>"
    )
    bound = _HEIGHT - _MARGIN - plan.lower_bound_bytes * units[1]
    lines.append(
        f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{bound:.2f}" y2="{bound:.2f}" '
        'stroke="red" stroke-dasharray="4"/>'
    )
    return "\n".join([*lines, "</svg>"])


def _png(plan: MemoryPlan, boxes: list[PlannedEntry]) -> bytes:
    import numpy as np

    units = _scale(plan, boxes)
    pixels = np.full((_HEIGHT, _WIDTH, 3), 255, dtype=np.uint8)
    for box in boxes:
        left, top, width, height = _rectangle(plan, box, *units)
        rows = slice(int(top), max(int(top + height), int(top) + 1))
        columns = slice(int(left), max(int(left + width), int(left) + 1))
        pixels[rows, columns] = _colour(box.name)
        pixels[rows.start, columns] = pixels[rows.stop - 1, columns] = 0
        pixels[rows, columns.start] = pixels[rows, columns.stop - 1] = 0
    bound = int(_HEIGHT - _MARGIN - plan.lower_bound_bytes * units[1])
    pixels[bound, _MARGIN : _WIDTH - _MARGIN : 4] = (255, 0, 0)
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
