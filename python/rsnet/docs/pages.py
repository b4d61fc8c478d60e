"""Markdown pages: one per operator, and an index by namespace."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Sequence
from pathlib import Path

from .. import ndarray
from ..op import kernels
from .registry import call_of, facts, names_of, operators, place_of


def page(name: str) -> str:
    """The page of operator `name`."""
    info = facts(name)
    home, short = place_of(name)
    module = ndarray if home == "op" else getattr(ndarray, home)
    function = getattr(module, short, None) or getattr(ndarray.op, short)
    shown = str(inspect.signature(function)).replace("=_Null", "=...").replace(", **kwargs", "")
    lines = [f"# {short}", "", f"    {call_of(name)}{shown}", ""]
    lines += [f"As a symbol: `{call_of(name, 'sym')}`."]
    others = [f"`{other}`" for other in names_of(info["name"])[1:]]
    lines += [f"Other names: {', '.join(others)}."] if others else []
    lines += ["", _sections(info["doc"]), ""]
    if info["inputs"]:
        lines += ["## Inputs", "", *_table(["name", "kind", "meaning"], info["inputs"]), ""]
    if info["params"]:
        rows = [p[:3] for p in info["params"]]
        lines += ["## Parameters", "", *_table(["name", "type", "meaning"], rows), ""]
    rows = [(k, f"`{condition}`", str(priority)) for k, condition, priority in kernels(name)]
    lines += ["## Kernels", "", *_table(["name", "runs where", "priority"], rows), ""]
    return "\n".join(lines)


def _sections(doc: str) -> str:
    """NumPy's underlined headings as Markdown's, doctests as code blocks."""
    doc = re.sub(r"^(\w[\w ]*)\n-{3,}$", r"## \1", doc, flags=re.MULTILINE)
    blocks: list[str] = []
    for part in re.split(r"\n\n+", doc):
        heading, _, rest = part.partition("\n")
        if part.startswith(">>>"):
            part = f"```python\n{part}\n```"
        elif heading.startswith("## ") and rest.startswith(">>>"):
            part = f"{heading}\n\n```python\n{rest}\n```"
        elif heading.startswith("## ") and rest:
            part = f"{heading}\n\n{rest}"
        blocks.append(part)
    return "\n\n".join(blocks)


def _table(head: list[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    def line(cells: list[str] | tuple[str, ...]) -> str:
        escaped = [c.replace("|", "\\|").replace("\n", " ") for c in cells]
        return "| " + " | ".join(escaped) + " |"

    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def _summary(doc: str) -> str:
    """The first sentence."""
    first = " ".join(doc.split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s", first)[0]


def write_pages(folder: str | os.PathLike[str]) -> int:
    """Writes all pages and ``index.md``; returns the number of pages."""
    root = Path(folder)
    groups: dict[str, list[tuple[str, str]]] = {}
    count = 0
    for name in operators():
        home, short = place_of(name)
        target = root / home / f"{short}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(name), encoding="utf-8")
        link = f"[{short}]({home}/{short}.md)"
        groups.setdefault(home, []).append((link, _summary(facts(name)["doc"])))
        count += 1
    index = ["# Operators", ""]
    for home in sorted(groups, key=lambda h: (h != "op", h)):
        title = "nd" if home == "op" else f"nd.{home}"
        index += [f"## {title}", "", *_table(["operator", "summary"], groups[home]), ""]
    (root / "index.md").write_text("\n".join(index), encoding="utf-8")
    return count
