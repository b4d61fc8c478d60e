"""Pictures of memory plans: first shapes with coordinates, then written as SVG or as PNG pixels.

PNG has no text of its own and no library is asked for, so letters come from a small pixel font.
"""

from __future__ import annotations

import colorsys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..network_drawing import xml_text
from ..recordio import encode_image

if TYPE_CHECKING:
    from . import MemoryPlan, PlannedEntry

Colour = tuple[int, int, int]
BLACK, GREY, RED = (0, 0, 0), (150, 150, 150), (210, 0, 0)

_WIDTH, _HEIGHT = 1200, 660
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 80, 20, 40, 50, 30
# Width of one letter of the pixel font including its gap, and of one of SVG's text.
_LETTER_WIDTH, _LETTER_HEIGHT = 8, 10


class Box(NamedTuple):
    """A filled rectangle; `title` is shown where a picture can (SVG)."""

    left: float
    top: float
    width: float
    height: float
    fill: Colour
    title: str


class Line(NamedTuple):
    """A straight line along an axis, dashed or not."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: Colour
    dashed: bool


class Text(NamedTuple):
    """Text whose baseline begins (or with `end` ends) at a point."""

    x: float
    y: float
    text: str
    end: bool


class Picture(NamedTuple):
    """What is drawn, in this order."""

    boxes: list[Box]
    lines: list[Line]
    texts: list[Text]


def picture_of(plan: MemoryPlan) -> Picture:
    """The arenas of a plan, one above another."""
    picture = Picture([], [], [])
    internal = [e for e in plan.entries if e.internal and e.bytes]
    devices = sorted({e.ctx for e in internal})
    steps = max((e.last_use for e in plan.entries), default=0) + 1
    room = _HEIGHT - _TOP - _BOTTOM - _GAP * max(len(devices) - 1, 0)
    band = room / max(len(devices), 1)
    for i, ctx in enumerate(devices):
        own = [e for e in internal if e.ctx == ctx]
        bound = plan.lower_bound_bytes if len(devices) == 1 else None
        floor = _TOP + band * (i + 1) + _GAP * i
        _draw_arena(picture, own, plan.num_forward, steps, floor, band, bound)
        if len(devices) > 1:
            picture.texts.append(Text(_LEFT + 4, floor - band - 4, ctx, False))
    _draw_time(picture, plan.num_forward, steps)
    total = f"arena {_readable(plan.arena_bytes)}, lower bound {_readable(plan.lower_bound_bytes)}"
    again = f", {plan.recomputed_nodes} nodes computed again" if plan.recomputed_nodes else ""
    outputs = f", outputs {_readable(plan.output_bytes)}" if plan.output_bytes else ""
    rest = f", without sharing {_readable(plan.no_sharing_bytes)}{outputs}{again}"
    picture.texts.append(Text(_LEFT, _TOP - 22, total + rest, False))
    return picture


def _draw_arena(
    picture: Picture,
    entries: list[PlannedEntry],
    num_forward: int,
    steps: int,
    floor: float,
    band: float,
    bound: int | None,
) -> None:
    size = max((e.offset or 0) + e.bytes for e in entries)
    x_unit, y_unit = (_WIDTH - _LEFT - _RIGHT) / steps, band / size
    for i, e in enumerate(entries):
        offset = e.offset or 0
        box = Box(
            _LEFT + e.first_use * x_unit,
            floor - (offset + e.bytes) * y_unit,
            (e.last_use - e.first_use + 1) * x_unit,
            e.bytes * y_unit,
            _colour(i, e.first_use < num_forward),
            f"{e.name} {e.shape} {e.dtype}, {e.bytes} bytes at {offset}, "
            f"steps {e.first_use} to {e.last_use}",
        )
        picture.boxes.append(box)
        if box.height > _LETTER_HEIGHT + 6 and box.width > _LETTER_WIDTH * len(e.name) + 6:
            at = Text(box.left + 4, box.top + _LETTER_HEIGHT + 3, e.name, False)
            picture.texts.append(at)
    for value in _ticks(size):
        y = floor - value * y_unit
        picture.lines.append(Line(_LEFT - 5, y, _LEFT, y, BLACK, False))
        picture.texts.append(Text(_LEFT - 8, y + 4, _readable(value), True))
    right = _WIDTH - _RIGHT
    picture.lines.append(Line(_LEFT, floor, right, floor, BLACK, False))
    picture.lines.append(Line(_LEFT, floor - band, _LEFT, floor, BLACK, False))
    if bound is not None:
        y = floor - bound * y_unit
        picture.lines.append(Line(_LEFT, y, right, y, RED, True))


def _draw_time(picture: Picture, num_forward: int, steps: int) -> None:
    x_unit = (_WIDTH - _LEFT - _RIGHT) / steps
    floor = _HEIGHT - _BOTTOM
    for value in _ticks(steps):
        x = _LEFT + value * x_unit
        picture.lines.append(Line(x, floor, x, floor + 5, BLACK, False))
        picture.texts.append(Text(x - 4 * len(str(value)), floor + 18, str(value), False))
    if num_forward < steps:
        x = _LEFT + num_forward * x_unit
        picture.lines.append(Line(x, _TOP, x, floor, GREY, True))
        picture.texts.append(Text(x + 4, _TOP - 4, "backward", False))
    picture.texts.append(Text(_LEFT, floor + 36, "nodes in execution order", False))


def _colour(number: int, forward: bool) -> Colour:
    """Neighbours differ by the golden angle; cool colours are forward, warm ones backward."""
    hue = (number * 0.381966) % 1.0
    hue = 0.36 + 0.32 * hue if forward else 0.17 * hue
    red, green, blue = colorsys.hls_to_rgb(hue, 0.74, 0.6)
    return round(red * 255), round(green * 255), round(blue * 255)


def _ticks(end: int) -> list[int]:
    """Some five round values from 0 up to `end`."""
    step = 1
    while end // step > 5:
        digit = int(str(step)[0])
        step = step * 5 // 2 if digit == 2 else step * 2
    return list(range(0, end + 1, step))


def _readable(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def svg(picture: Picture) -> str:
    """The picture as SVG."""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="monospace" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for b in picture.boxes:
        out.append(
            f'<rect x="{b.left:.2f}" y="{b.top:.2f}" width="{b.width:.2f}" height="{b.height:.2f}" '
            f'fill="rgb{b.fill}" stroke="#444" stroke-width="0.4">'
            f"<title>{xml_text(b.title)}</title></rect>"
        )
    for n in picture.lines:
        dashes = ' stroke-dasharray="6 4"' if n.dashed else ""
        out.append(
            f'<line x1="{n.x1:.2f}" y1="{n.y1:.2f}" x2="{n.x2:.2f}" y2="{n.y2:.2f}" '
            f'stroke="rgb{n.colour}"{dashes}/>'
        )
    for t in picture.texts:
        anchor = ' text-anchor="end"' if t.end else ""
        out.append(f'<text x="{t.x:.2f}" y="{t.y:.2f}"{anchor}>{xml_text(t.text)}</text>')
    return "\n".join([*out, "</svg>\n"])


# Rows of three pixels, from the top, as octal digits.
_FONT = {
    item[0]: item[2:]
    for item in (
        "A=25755 B=65656 C=34443 D=65556 E=74647 F=74644 G=34553 H=55755 I=72227 J=11152 K=55655 "
        "L=44447 M=57755 N=65555 O=25552 P=65644 Q=25563 R=65655 S=34216 T=72222 U=55557 V=55552 "
        "W=55775 X=55255 Y=55222 Z=71247 0=75557 1=26227 2=61247 3=61216 4=55711 5=74616 6=34652 "
        "7=71222 8=25252 9=25316 .=00002 ,=00024 :=02020 -=00700 _=00007 /=11244 (=12221 )=42224 "
        "+=02720 ?=61202"
    ).split()
}
_ZOOM = 2


def png(picture: Picture) -> bytes:
    """The picture as PNG."""
    pixels = np.full((_HEIGHT, _WIDTH, 3), 255, dtype=np.uint8)
    for b in picture.boxes:
        top, left = int(b.top), int(b.left)
        bottom, right = max(int(b.top + b.height), top + 1), max(int(b.left + b.width), left + 1)
        pixels[top:bottom, left:right] = b.fill
        if bottom - top > 2 and right - left > 2:
            edge = tuple(c * 3 // 5 for c in b.fill)
            pixels[[top, bottom - 1], left:right] = edge
            pixels[top:bottom, [left, right - 1]] = edge
    for n in picture.lines:
        rows = slice(int(n.y1), int(n.y2) + 1)
        columns = slice(int(n.x1), int(n.x2) + 1)
        line = pixels[rows, columns].reshape(-1, 3)
        where = np.arange(len(line)) % 10 < (6 if n.dashed else 10)
        line[where] = n.colour
        pixels[rows, columns] = line.reshape(pixels[rows, columns].shape)
    for t in picture.texts:
        left = int(t.x) - (_LETTER_WIDTH * len(t.text) if t.end else 0)
        _write(pixels, left, int(t.y) - _LETTER_HEIGHT, t.text)
    return encode_image(pixels, ".png", quality=6)


def _write(pixels: np.ndarray, left: int, top: int, text: str) -> None:
    """Black letters, capital ones only, with their upper left corner at a point."""
    for letter in text.upper():
        rows = "00000" if letter == " " else _FONT.get(letter, _FONT["?"])
        for y, row in enumerate(rows):
            for x in range(3):
                if int(row, 8) & (4 >> x):
                    at_y, at_x = top + _ZOOM * y, left + _ZOOM * x
                    pixels[at_y : at_y + _ZOOM, max(at_x, 0) : max(at_x + _ZOOM, 0)] = BLACK
        left += _LETTER_WIDTH
