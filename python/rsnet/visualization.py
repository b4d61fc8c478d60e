"""Pictures and tables of symbols: `print_summary` and `plot_network`."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

from ._warnings import warn
from .base import shown
from .network_drawing import DrawnEdge, DrawnNode
from .symbol import Symbol

__all__ = ["Network", "plot_network", "print_summary"]


def _shapes(symbol: Symbol, shape: dict[str, tuple[int, ...]] | None) -> dict[str, tuple[int, ...]]:
    """Shapes of all entries by output name; without `shape` those that the operators determine."""
    internals = symbol.get_internals()
    if shape is None:
        found = internals.infer_shape_partial()[1]
        named = zip(internals.list_outputs(), found, strict=True)
        return {name: extents for name, extents in named if extents}
    if not isinstance(shape, dict):
        raise TypeError(f"invalid shape {shown(shape)}: expected a dict of str to tuple")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, outputs, _ = internals.infer_shape(**shape)
    if outputs is None:
        raise ValueError(
            f"invalid shapes {shape}: expected those that determine the shape of every output"
        )
    return dict(zip(internals.list_outputs(), outputs, strict=True))


def print_summary(
    symbol: Symbol,
    shape: dict[str, tuple[int, ...]] | None = None,
    line_length: int = 120,
    positions: tuple[float, ...] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Prints a table of layers: name and type, output shape, number of parameters, inputs.

    Shapes are without their first axis. Every element of a weight counts, auxiliary states do not.

    Parameters
    ----------
    symbol : Symbol
        The network.
    shape : dict of str to tuple, optional
        Shapes of its inputs; without them weights whose shapes depend on them count as 0.
    line_length : int
        Characters per line.
    positions : tuple of float
        Ends of the columns as fractions of the line.

    Raises
    ------
    TypeError
        `symbol` is not a Symbol.
    ValueError
        The given shapes do not determine the others.

    Examples
    --------
    >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc")
    >>> mx.viz.print_summary(net, {"data": (1, 20)}, line_length=72)
    ________________________________________________________________________
    Layer (type)                   Output Shape   Param  Previous Layer
    ========================================================================
    data(null)                     20             0
    ________________________________________________________________________
    fc(FullyConnected)             10             210    data
    ========================================================================
    Total params: 210
    ________________________________________________________________________
    """
    if not isinstance(symbol, Symbol):
        raise TypeError(f"invalid symbol {symbol!r}: expected a Symbol")
    shapes = _shapes(symbol, shape)
    nodes = json.loads(symbol.tojson())["nodes"]
    ends = [int(line_length * p) for p in positions]

    def row(*cells: str) -> None:
        line = ""
        for cell, end in zip(cells, ends, strict=True):
            line = (line + cell)[: end - 1].ljust(end)
        print(line.rstrip())

    print("_" * line_length)
    row("Layer (type)", "Output Shape", "Param #", "Previous Layer")
    print("=" * line_length)
    arguments = set(symbol.list_arguments())
    shown = [node for i, node in enumerate(nodes) if i == 0 or node["op"] != "null"]
    total = 0
    for node in shown:
        sources = [nodes[entry[0]] for entry in node["inputs"]]
        weights = [s["name"] for s in sources if _is_parameter(s, node, arguments)]
        count = sum(_size(shapes.get(name, ())) for name in weights)
        total += count
        before = [s["name"] for s in sources if s["op"] != "null" or s is nodes[0]]
        first, *more = before or [""]
        row(f"{node['name']}({node['op']})", _extents(shapes, node), str(count), first)
        for name in more:
            row("", "", "", name)
        print(("=" if node is shown[-1] else "_") * line_length)
    print(f"Total params: {total}")
    print("_" * line_length)


def _extents(shapes: dict[str, tuple[int, ...]], node: dict[str, Any]) -> str:
    """The first output of a node, without its first axis, such as ``8x3x3``."""
    endings = ("",) if node["op"] == "null" else ("_output", "_output0")
    known = [shapes[node["name"] + e] for e in endings if node["name"] + e in shapes]
    return "x".join(str(extent) for extent in known[0][1:]) if known and all(known[0]) else ""


def _is_parameter(source: dict[str, Any], node: dict[str, Any], arguments: set[str]) -> bool:
    own = source["name"].startswith(node["name"] + "_") and not source["name"].endswith("label")
    return source["op"] == "null" and own and source["name"] in arguments


def _size(shape: tuple[int, ...]) -> int:
    size = 1 if shape else 0
    for extent in shape:
        size *= extent
    return size


_COLOURS = {
    "null": "#8dd3c7",
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
    "Softmax": "#b3de69",
    "SoftmaxOutput": "#b3de69",
    "softmax": "#b3de69",
}
_HIDDEN = tuple(
    "_weight _bias _beta _gamma _moving_var _moving_mean _running_var _running_mean".split()
)


def _times(text: str) -> str:
    """A tuple in an attribute as ``3x3``."""
    return "x".join(part.strip() for part in text.strip("()[]").split(",") if part.strip())


def _label(node: dict[str, Any]) -> str:
    """The label of a node: its operator and its main parameters, or a variable's name."""
    op, attrs = node["op"], node.get("attrs", {})
    if op == "null":
        return str(node["name"])
    window = _times(attrs.get("kernel", ""))
    if window:
        window += "/" + (_times(attrs.get("stride", "")) or "1")
    details = {
        "Convolution": [window, attrs.get("num_filter")],
        "Deconvolution": [window, attrs.get("num_filter")],
        "Pooling": [attrs.get("pool_type", "max"), window],
        "FullyConnected": [attrs.get("num_hidden")],
        "Activation": [attrs.get("act_type")],
        "LeakyReLU": [attrs.get("act_type", "leaky")],
    }.get(op)
    if details is None:
        return str(node["name"])
    return f"{op}\n" + ", ".join(d for d in details if d)


class Network:
    """A drawn network: notebooks show it, `save` writes it, `digraph()` is for graphviz.

    What it does not have itself is looked up in `digraph()`: `format`, `node_attr`, `attr`.

    Attributes
    ----------
    title : str
    shapes : list of DrawnNode
    edges : list of DrawnEdge
    """

    def __init__(
        self,
        title: str,
        save_format: str,
        shapes: list[DrawnNode],
        edges: list[DrawnEdge],
        node_attrs: dict[str, str],
    ) -> None:
        self.title, self._format = title, save_format
        self.shapes, self.edges = shapes, edges
        self._node_attrs = node_attrs
        self._digraph: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"Network has no attribute '{name}'")
        return getattr(self.digraph(), name)

    def __repr__(self) -> str:
        return f"<Network {self.title!r}: {len(self.shapes)} nodes, {len(self.edges)} edges>"

    def _repr_svg_(self) -> str:
        from . import network_drawing

        return network_drawing.svg(self.shapes, self.edges, self.title)

    def save(self, path: str) -> None:
        """Writes the picture as an SVG file."""
        if not str(path).lower().endswith(".svg"):
            raise ValueError(f"invalid path '{path}': expected a name that ends with '.svg'")
        with open(path, "w", encoding="utf-8") as out:
            out.write(self._repr_svg_())

    @property
    def format(self) -> str:
        """The format of what `render` writes, such as 'pdf' or 'png'."""
        return self._format

    @format.setter
    def format(self, value: str) -> None:
        self._format = value
        if self._digraph is not None:
            self._digraph.format = value

    def digraph(self) -> Any:
        """The network as a `graphviz.Digraph`, laid out by the program `dot`.

        It is made once, so that changes to it show in `render`, `view` and `source`.

        Raises
        ------
        ImportError
            The package graphviz is not installed.
        """
        if self._digraph is None:
            self._digraph = self._to_digraph()
        return self._digraph

    def _to_digraph(self) -> Any:
        try:
            from graphviz import Digraph
        except ImportError as error:
            raise ImportError(
                "digraph: expected the package graphviz: pip install graphviz"
            ) from error
        style = {
            "shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034",
            "style": "filled",
        } | self._node_attrs  # fmt: skip
        dot = Digraph(name=self.title, format=self._format)
        for shape in self.shapes:
            own = {"shape": "oval"} if shape.is_variable else {}
            dot.node(name=shape.name, label=shape.label, fillcolor=shape.fill, **(style | own))
        for edge in self.edges:
            attrs = {"dir": "back", "arrowtail": "open", "label": edge.label}
            source, target = self.shapes[edge.source].name, self.shapes[edge.target].name
            dot.edge(tail_name=target, head_name=source, **attrs)
        return dot

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """`graphviz.Digraph.render` of `digraph()`."""
        return self.digraph().render(*args, **kwargs)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        """`graphviz.Digraph.view` of `digraph()`."""
        return self.digraph().view(*args, **kwargs)

    @property
    def source(self) -> str:
        """The network in graphviz's language."""
        return str(self.digraph().source)


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: dict[str, tuple[int, ...]] | None = None,
    dtype: dict[str, Any] | None = None,
    node_attrs: dict[str, str] | None = None,
    hide_weights: bool = True,
) -> Network:
    """Draws the network: inputs at the bottom, outputs at the top.

    A notebook shows the result without any other program. `render` and `view` are those of the
    package graphviz, if that is installed.

    Parameters
    ----------
    symbol : Symbol
        The network.
    title, save_format : str
        Name and format of what `render` writes.
    shape : dict of str to tuple, optional
        Shapes of inputs, to label edges.
    node_attrs : dict of str to str, optional
        Attributes of all nodes for graphviz.
    hide_weights : bool
        Whether to leave out weights, biases and statistics.

    Warns
    -----
    RuntimeWarning
        Several nodes have one name.

    Examples
    --------
    >>> import rsnet as mx
    >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc")
    >>> picture = mx.viz.plot_network(net, shape={"data": (1, 20)})
    >>> picture
    <Network 'plot': 2 nodes, 1 edges>
    >>> picture.save("network.svg")  # doctest: +SKIP
    """
    if not isinstance(symbol, Symbol):
        raise TypeError(f"invalid symbol {symbol!r}: expected a Symbol")
    shapes = {} if shape is None else _shapes(symbol, shape)
    nodes = json.loads(symbol.tojson())["nodes"]
    times = Counter(node["name"] for node in nodes)
    for name in sorted(name for name in times if times[name] > 1):
        text = f"several nodes are named '{name}': graphviz draws them as one"
        warn(text, RuntimeWarning)

    def is_shown(node: dict[str, Any]) -> bool:
        is_weight = node["op"] == "null" and node["name"].endswith(_HIDDEN)
        return not (hide_weights and is_weight)

    drawn: list[DrawnNode] = []
    place: dict[int, int] = {}
    edges: list[DrawnEdge] = []
    for i, node in enumerate(nodes):
        if not is_shown(node):
            continue
        colour = _COLOURS.get(node["op"], "#fccde5")
        place[i] = len(drawn)
        drawn.append(DrawnNode(node["name"], _label(node), colour, node["op"] == "null"))
        for entry in node["inputs"]:
            source = entry[0]
            if source in place:
                label = _extents(shapes, nodes[source])
                edges.append(DrawnEdge(place[source], place[i], label))
    return Network(title, save_format, drawn, edges, node_attrs or {})
