"""Pictures and tables of symbols: `print_summary` and `plot_network`."""

from __future__ import annotations

import json
from typing import Any

from .symbol import Symbol

__all__ = ["plot_network", "print_summary"]


def _shapes(symbol: Symbol, shape: dict[str, tuple[int, ...]] | None) -> dict[str, tuple[int, ...]]:
    """Shapes of all entries by output name."""
    if shape is None:
        return {}
    internals = symbol.get_internals()
    _, outputs, _ = internals.infer_shape(**shape)
    if outputs is None:
        raise ValueError("Input shape is incomplete")
    return dict(zip(internals.list_outputs(), outputs, strict=True))


def print_summary(
    symbol: Symbol,
    shape: dict[str, tuple[int, ...]] | None = None,
    line_length: int = 120,
    positions: tuple[float, ...] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Prints a table of layers: name and type, output shape, number of parameters, inputs.

    Parameters
    ----------
    symbol : Symbol
        The network.
    shape : dict of str to tuple, optional
        Shapes of its inputs; without them shapes and counts are left out.
    line_length : int
        Characters of a line.
    positions : tuple of float
        Ends of the columns as parts of the line.

    Raises
    ------
    TypeError
        Not a symbol.
    ValueError
        The shapes given do not determine the others.
    """
    if not isinstance(symbol, Symbol):
        raise TypeError("symbol must be Symbol")
    shapes = _shapes(symbol, shape)
    nodes = json.loads(symbol.tojson())["nodes"]
    ends = [int(line_length * p) for p in positions]

    def row(cells: list[str]) -> None:
        line = ""
        for cell, end in zip(cells, ends, strict=True):
            line = (line + cell)[:end].ljust(end)
        print(line.rstrip())

    print("_" * line_length)
    row(["Layer (type)", "Output Shape", "Param #", "Previous Layer"])
    print("=" * line_length)
    arguments = set(symbol.list_arguments())
    total = 0
    for node in nodes:
        if node["op"] == "null":
            continue
        sources = [nodes[entry[0]] for entry in node["inputs"]]
        own = [s["name"] for s in sources if _is_parameter(s, node, arguments)]
        count = sum(_size(shapes.get(name, ())) for name in own)
        total += count
        output = shapes.get(f"{node['name']}_output", shapes.get(f"{node['name']}_output0", ""))
        before = [s["name"] for s in sources if s["name"] not in own]
        row([f"{node['name']} ({node['op']})", str(output), str(count), ", ".join(before)])
        print("_" * line_length)
    print(f"Total params: {total}")
    print("_" * line_length)


def _is_parameter(source: dict[str, Any], node: dict[str, Any], arguments: set[str]) -> bool:
    own = source["name"].startswith(node["name"] + "_") and not source["name"].endswith("label")
    return source["op"] == "null" and own and source["name"] in arguments


def _size(shape: tuple[int, ...]) -> int:
    size = 1 if shape else 0
    for extent in shape:
        size *= extent
    return size


_COLOURS = {
    "Convolution": "#fb8072",
    "Deconvolution": "#fb8072",
    "FullyConnected": "#fb8072",
    "BatchNorm": "#bebada",
    "Activation": "#ffffb3",
    "LeakyReLU": "#ffffb3",
    "Pooling": "#80b1d3",
    "Concat": "#fdb462",
    "Flatten": "#fdb462",
    "Reshape": "#fdb462",
    "Softmax": "#fccde5",
}


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: dict[str, tuple[int, ...]] | None = None,
    dtype: dict[str, Any] | None = None,
    node_attrs: dict[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """The network as a `graphviz.Digraph`.

    Parameters
    ----------
    symbol : Symbol
        The network.
    title, save_format : str
        Name and format of what the Digraph renders.
    shape : dict of str to tuple, optional
        Shapes of inputs, to label edges.
    node_attrs : dict of str to str, optional
        Attributes of all nodes.
    hide_weights : bool
        Leave variables out that only one operator reads as a parameter?

    Raises
    ------
    ImportError
        The package graphviz is not installed.
    """
    if not isinstance(symbol, Symbol):
        raise TypeError("symbol must be a Symbol")
    try:
        from graphviz import Digraph
    except ImportError as error:
        raise ImportError("plot_network requires the package graphviz") from error
    shapes = _shapes(symbol, shape)
    nodes = json.loads(symbol.tojson())["nodes"]
    style = {"shape": "box", "fixedsize": "false", "style": "filled"} | (node_attrs or {})
    dot = Digraph(name=title, format=save_format)
    suffixes = ("_weight", "_bias", "_beta", "_gamma", "_moving_var", "_moving_mean", "_label")
    hidden = {
        n["name"]
        for n in nodes
        if hide_weights and n["op"] == "null" and n["name"].endswith(suffixes)
    }
    for node in nodes:
        if node["name"] in hidden:
            continue
        attrs = node.get("attrs", {})
        colour = "#8dd3c7" if node["op"] == "null" else _COLOURS.get(node["op"], "#fccde5")
        parts = [attrs[k] for k in ("kernel", "stride", "num_filter", "num_hidden") if k in attrs]
        label = "\n".join([node["name"], *([node["op"]] if node["op"] != "null" else []), *parts])
        dot.node(name=node["name"], label=label, fillcolor=colour, **style)
    for node in nodes:
        for entry in node["inputs"]:
            source = nodes[entry[0]]
            if source["name"] in hidden:
                continue
            key = source["name"] + ("" if source["op"] == "null" else "_output")
            label = "x".join(str(d) for d in shapes.get(key, ())[1:])
            edge = {"dir": "back", "arrowtail": "open"} | ({"label": label} if label else {})
            dot.edge(tail_name=node["name"], head_name=source["name"], **edge)
    return dot
