"""The files of `Block.save`: parameters, and the structure of blocks as JSON.

Every block is an object of the class' name and a number: its name, whether it has a graph, its
children (name, and the attribute or number under which the block has it), and the children's
objects, in the order of `children`. A block with a graph also has its symbol, its inputs as
symbols, and how its arguments and results are nested. MXNet reads and writes the same files.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from .. import symbol as sym
from .block import Block
from .hybrid_block import HybridBlock

__all__ = ["load_model", "save_model"]

#: What describes a block itself; all other keys of its object are its children.
_OWN_KEYS = ("orig_name", "in_format", "out_format", "inputs", "symbol", "hybridized", "children")


def save_model(block: Block, prefix: str) -> None:
    """Writes ``<prefix>-model.json`` and ``<prefix>-model.params``."""
    numbers = itertools.count()
    with open(f"{prefix}-model.json", "w", encoding="utf-8") as file:
        json.dump({_key(block, numbers): _described(block, numbers)}, file)
    block.save_parameters(f"{prefix}-model.params")


def _key(block: Block, numbers: Iterator[int]) -> str:
    return f"{type(block).__name__.lower()}{next(numbers)}"


def _described(block: Block, numbers: Iterator[int]) -> dict[str, Any]:
    """What the file says of a block and its children."""
    found: dict[str, Any] = {"orig_name": block.name}
    hybridized = isinstance(block, HybridBlock) and bool(block._cached_graph)
    if isinstance(block, HybridBlock) and hybridized:
        inputs, symbol = block._cached_graph
        found["in_format"] = block._in_structure
        found["out_format"] = block._out_structure
        found["inputs"] = [one.tojson() for one in inputs]
        found["symbol"] = symbol.tojson()
    found["hybridized"] = hybridized
    found["children"] = {child.name: name for name, child in block._children.items()}
    for child in block._children.values():
        key = _key(child, numbers)  # counts before the children of the child
        found[key] = _described(child, numbers)
    return found


def load_model(block: Block, prefix: str) -> None:
    """Reads what `save_model` wrote into a block of the same structure.

    Raises
    ------
    ValueError
        The block has other children than the file.
    """
    path = f"{prefix}-model.json"
    with open(path, encoding="utf-8") as file:
        (root,) = json.load(file).values()
    _check(block, root, path)
    _take(block, root)
    block.load_parameters(f"{prefix}-model.params")


def _children(described: dict[str, Any]) -> list[dict[str, Any]]:
    return [value for key, value in described.items() if key not in _OWN_KEYS]


def _check(block: Block, described: dict[str, Any], path: str) -> None:
    expected = list(described["children"].values())
    if list(block._children) != expected or len(_children(described)) != len(expected):
        raise ValueError(
            f"'{path}' is of another network: {type(block).__name__} '{block.name}' has the "
            f"children {list(block._children)}, expected {expected}"
        )
    for child, inner in zip(block._children.values(), _children(described), strict=True):
        _check(child, inner, path)


def _take(block: Block, described: dict[str, Any]) -> None:
    """Hybridizes what was hybridized, with the graphs of the file."""
    for child, inner in zip(block._children.values(), _children(described), strict=True):
        _take(child, inner)
    if not described["hybridized"] or not isinstance(block, HybridBlock):
        return
    block._active = True
    names = {param.name for param in block.collect_params().values()}
    symbol = sym.load_json(described["symbol"])
    inputs = [sym.load_json(one) for one in described["inputs"]]
    given = {one.name for one in inputs}
    if {name for name in symbol.list_inputs() if name not in given} <= names:
        block._set_graph(inputs, symbol, described["in_format"], described["out_format"])
