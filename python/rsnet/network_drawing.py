"""Pictures of networks as SVG: layers from the inputs at the bottom to the outputs at the top.

A node's layer is the length of the longest path from an input. Long edges bend through invisible
nodes, one in each layer between. Within a layer nodes are ordered by the mean position of their
neighbours in a few sweeps up and down, which removes most crossings (Sugiyama, Tagawa and Toda
1981).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax import saxutils

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 130, 56, 24, 44, 16
_BEND_WIDTH = 16
_LETTER = 7.2
_SWEEPS = 4


class DrawnNode(NamedTuple):
    """A node to draw: an oval for a variable, a box for an operator."""

    name: str
    label: str
    fill: str
    is_variable: bool


class DrawnEdge(NamedTuple):
    """From a node to the one that reads it, by position among the shapes."""

    source: int
    target: int
    label: str


class Layout(NamedTuple):
    """Centres of the shapes, the points of each edge, and the extents of the picture."""

    centres: list[tuple[float, float]]
    paths: list[list[tuple[float, float]]]
    width: float
    height: float


#: What XML has no way to write.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str, entities: dict[str, str] | None = None) -> str:
    """Text for an XML file; characters that it cannot hold become U+FFFD."""
    return saxutils.escape(_UNPRINTABLE.sub("\ufffd", text), entities or {})


def layout(shapes: Sequence[DrawnNode], edges: Sequence[DrawnEdge]) -> Layout:
    """Places the shapes; edges lead from earlier shapes to later ones."""
    depth = _depths(len(shapes), edges)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=0) + 1)]
    for node, d in enumerate(depth):
        layers[d].append(node)
    below: dict[int, list[int]] = {}
    above: dict[int, list[int]] = {}
    chains = []
    count = len(shapes)
    for edge in edges:
        chain = [edge.source]
        for d in range(depth[edge.source] + 1, depth[edge.target]):
            layers[d].append(count)
            chain.append(count)
            count += 1
        chain.append(edge.target)
        chains.append(chain)
        for low, high in itertools.pairwise(chain):
            above.setdefault(low, []).append(high)
            below.setdefault(high, []).append(low)
    _untangle(layers, below, above)
    extents = [WIDTH if n < len(shapes) else _BEND_WIDTH for n in range(count)]
    lengths = [sum(extents[n] + GAP_X for n in layer) - GAP_X for layer in layers]
    width = max([*lengths, 0]) + 2 * MARGIN
    height = len(layers) * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN
    centre: dict[int, tuple[float, float]] = {}
    for d, (layer, length) in enumerate(zip(layers, lengths, strict=True)):
        x = (width - length) / 2
        y = height - MARGIN - HEIGHT / 2 - d * (HEIGHT + GAP_Y)
        for node in layer:
            centre[node] = (x + extents[node] / 2, y)
            x += extents[node] + GAP_X
    paths = [[centre[n] for n in chain] for chain in chains]
    return Layout([centre[n] for n in range(len(shapes))], paths, width, height)


def _depths(count: int, edges: Sequence[DrawnEdge]) -> list[int]:
    """Layers: operators as low as their inputs allow, inputs right below their first reader."""
    depth = [0] * count
    for edge in sorted(edges, key=lambda e: e.target):
        depth[edge.target] = max(depth[edge.target], depth[edge.source] + 1)
    has_inputs = {edge.target for edge in edges}
    first_reader: dict[int, int] = {}
    for edge in edges:
        reader = depth[edge.target]
        first_reader[edge.source] = min(first_reader.get(edge.source, reader), reader)
    for node, reader in first_reader.items():
        if node not in has_inputs:
            depth[node] = reader - 1
    return depth


def _untangle(
    layers: list[list[int]], below: dict[int, list[int]], above: dict[int, list[int]]
) -> None:
    """Orders each layer by the mean position of the neighbours in the layer before."""
    for sweep in range(_SWEEPS):
        up = sweep % 2 == 0
        ordered = layers if up else layers[::-1]
        neighbours = below if up else above
        for fixed, layer in itertools.pairwise(ordered):
            place = {node: (i + 0.5) / len(fixed) for i, node in enumerate(fixed)}
            own = {node: (i + 0.5) / len(layer) for i, node in enumerate(layer)}

            def mean(
                node: int, place: dict[int, float] = place, own: dict[int, float] = own
            ) -> float:
                near = [place[n] for n in neighbours.get(node, ()) if n in place]  # noqa: B023
                return sum(near) / len(near) if near else own[node]

            layer.sort(key=mean)


def svg(shapes: Sequence[DrawnNode], edges: Sequence[DrawnEdge], title: str = "") -> str:
    """The network as SVG; full names and labels are tooltips."""
    placed = layout(shapes, edges)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{placed.width:.0f}" '
        f'height="{placed.height:.0f}" viewBox="0 0 {placed.width:.0f} {placed.height:.0f}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">',
        f"<title>{xml_text(title)}</title>",
        f'<rect width="{placed.width:.0f}" height="{placed.height:.0f}" fill="white"/>',
    ]
    for edge, path in zip(edges, placed.paths, strict=True):
        out.append(_edge(edge, path))
    for shape, centre in zip(shapes, placed.centres, strict=True):
        out.append(_node(shape, *centre))
    return "\n".join([*out, "</svg>\n"])


def _edge(edge: DrawnEdge, path: list[tuple[float, float]]) -> str:
    """A line from the top of the source to an arrow head at the bottom of the target."""
    (x0, y0), *bends, (x1, y1) = path
    points = [(x0, y0 - HEIGHT / 2), *bends, (x1, y1 + HEIGHT / 2)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    out = (
        f'<polyline points="{line}" fill="none" stroke="#555"/>'
        f'<polygon points="{x:.1f},{y:.1f} {x - 4:.1f},{y + 8:.1f} {x + 4:.1f},{y + 8:.1f}" '
        'fill="#555"/>'
    )
    if edge.label:
        (ax, ay), (bx, by) = points[:2]
        out += (
            f'<text x="{(ax + bx) / 2:.1f}" y="{(ay + by) / 2 + 4:.1f}" fill="#333" '
            f'stroke="white" stroke-width="3" paint-order="stroke">{xml_text(edge.label)}</text>'
        )
    return out


def _node(shape: DrawnNode, x: float, y: float) -> str:
    fill = f'fill={_quoted(shape.fill)} stroke="#444"'
    if shape.is_variable:
        body = f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{WIDTH / 2}" ry="{HEIGHT / 2}" {fill}/>'
    else:
        left, top = x - WIDTH / 2, y - HEIGHT / 2
        body = (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{WIDTH}" height="{HEIGHT}" rx="4" {fill}/>'
        )
    lines = shape.label.split("\n")
    first = y + 4 - 7.5 * (len(lines) - 1)
    texts = "".join(
        f'<text x="{x:.1f}" y="{first + 15 * i:.1f}">{xml_text(_short(line))}</text>'
        for i, line in enumerate(lines)
    )
    label = shape.label.replace("\n", " ")
    return f"<g><title>{xml_text(f'{shape.name}: {label}')}</title>{body}{texts}</g>"


def _quoted(text: str) -> str:
    return '"' + xml_text(text, {'"': "&quot;"}) + '"'


def _short(line: str) -> str:
    most = int(WIDTH / _LETTER)
    return line if len(line) <= most else line[: most - 1] + "…"
