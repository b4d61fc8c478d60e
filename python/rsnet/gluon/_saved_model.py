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
from typing import Any, NamedTuple

from .. import symbol as sym
from .._whole_files import replacing
from ..base import MXNetError, shown
from .block import Block
from .hybrid_block import HybridBlock

__all__ = ["load_model", "save_model"]

#: What describes a block itself; all other keys of its object are its children.
_OWN_KEYS = ("orig_name", "in_format", "out_format", "inputs", "symbol", "hybridized", "children")


def save_model(block: Block, prefix: str) -> None:
    """Writes ``<prefix>-model.json`` and ``<prefix>-model.params``."""
    numbers = itertools.count()
    described = json.dumps({_key(block, numbers): _described(block, numbers)})
    with replacing(f"{prefix}-model.json") as file:
        file.write(described.encode())
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
        The file is damaged, or the block has other children than it.
    """
    path = f"{prefix}-model.json"
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if not isinstance(document, dict) or len(document) != 1:
            raise ValueError(f"invalid document {shown(document)}: expected one block")
        (root,) = (_parsed(described) for described in document.values())
    except (ValueError, MXNetError, RecursionError) as error:
        raise ValueError(
            f"invalid file '{path}': expected the JSON that Block.save writes: {error}"
        ) from error
    _check(block, root, path)
    _take(block, root)
    block.load_parameters(f"{prefix}-model.params")


class _Described(NamedTuple):
    """What a file says of a block."""

    names: list[Any]
    children: list[_Described]
    #: Of one that was hybridized: inputs, symbol, and how arguments and results are nested.
    graph: tuple[list[sym.Symbol], sym.Symbol, Any, Any] | None


def _parsed(described: Any) -> _Described:
    """The object of a block.

    Raises
    ------
    ValueError
        It is not one.
    MXNetError
        Its graph is damaged.
    """
    names = described.get("children") if isinstance(described, dict) else None
    if not isinstance(names, dict):
        raise ValueError(f"invalid block {shown(described)}: expected a dict with children")
    inner = [_parsed(value) for key, value in described.items() if key not in _OWN_KEYS]
    graph = _graph(described) if described.get("hybridized") else None
    return _Described(list(names.values()), inner, graph)


def _graph(described: dict[str, Any]) -> tuple[list[sym.Symbol], sym.Symbol, Any, Any]:
    texts = described.get("inputs")
    if not isinstance(texts, list):
        raise ValueError(f"invalid inputs {shown(texts)}: expected a list of symbols")
    inputs = [_symbol(text) for text in texts]
    symbol = _symbol(described.get("symbol"))
    formats = described.get("in_format"), described.get("out_format")
    for found, count in zip(formats, (len(inputs), len(symbol.list_outputs())), strict=True):
        if _arrays(found) != count:
            raise ValueError(f"invalid format {shown(found)}: expected one of {count} arrays")
    return inputs, symbol, *formats


def _symbol(text: Any) -> sym.Symbol:
    symbol = sym.load_json(text) if isinstance(text, str) else None
    if not isinstance(symbol, sym.Symbol):
        raise ValueError(f"invalid symbol {shown(text)}: expected its JSON")
    return symbol


def _arrays(structure: Any) -> int:
    """How many arrays a structure, as `flatten` returns it, has."""
    if isinstance(structure, list):
        return sum(map(_arrays, structure))
    if not isinstance(structure, int) or structure < -1:
        raise ValueError(f"invalid format {shown(structure)}: expected nested lists of counts")
    return {0: 1, -1: 0}.get(structure, structure)


def _check(block: Block, described: _Described, path: str) -> None:
    expected = described.names
    if list(block._children) != expected or len(described.children) != len(expected):
        raise ValueError(
            f"'{path}' is of another network: {type(block).__name__} '{block.name}' has the "
            f"children {list(block._children)}, expected {expected}"
        )
    for child, inner in zip(block._children.values(), described.children, strict=True):
        _check(child, inner, path)


def _take(block: Block, described: _Described) -> None:
    """Hybridizes what was hybridized, with the graphs of the file."""
    for child, inner in zip(block._children.values(), described.children, strict=True):
        _take(child, inner)
    if described.graph is None or not isinstance(block, HybridBlock):
        return
    block._active = True
    names = {param.name for param in block.collect_params().values()}
    inputs, symbol, *formats = described.graph
    given = {one.name for one in inputs}
    if {name for name in symbol.list_inputs() if name not in given} <= names:
        block._set_graph(inputs, symbol, *formats)
