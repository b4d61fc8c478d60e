"""The graph of a model on 8-bit integers, made from that of a symbol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ... import ndarray as nd
from ... import symbol as sym
from ...context import cpu

__all__ = ["Entry", "Range", "Rewriting"]

#: Layers whose products are computed on integers.
_LAYERS = {
    "Convolution": "_contrib_quantized_conv",
    "FullyConnected": "_contrib_quantized_fully_connected",
}
#: Operators that keep what is an integer already, with the parameters that they must have.
_KEEPERS: dict[str, tuple[str, Callable[[dict[str, str]], bool]]] = {
    "Activation": ("_contrib_quantized_act", lambda p: p.get("act_type") == "relu"),
    "Flatten": ("_contrib_quantized_flatten", lambda p: True),
    "Pooling": (
        "_contrib_quantized_pooling",
        lambda p: (
            p.get("pool_type", "max") in ("max", "avg")
            and p.get("layout", "None") in ("None", "NCHW")
        ),
    ),
}
#: An output of a node; the two ends of a range.
Entry = tuple[int, int]
Range = tuple[float, float]


class Rewriting:
    """Builds the nodes of the quantised graph from those of a symbol."""

    def __init__(
        self,
        symbol: sym.Symbol,
        params: Mapping[str, nd.NDArray],
        excluded: Callable[[dict[str, Any]], bool],
        dtype: str,
        ranges: Mapping[Entry, Range],
    ) -> None:
        self.graph = json.loads(symbol.tojson())
        self.old = self.graph["nodes"]
        self.params = params
        self.dtype = dtype
        self.ranges = ranges
        self.chosen = [_is_layer(node) and not excluded(node) for node in self.old]
        self.excluded = excluded
        self.outputs = [1] * len(self.old)
        read = [entry for node in self.old for entry in node["inputs"]]
        for at, index, *_ in read + self.graph["heads"]:
            self.outputs[at] = max(self.outputs[at], index + 1)
        self.nodes: list[dict[str, Any]] = []
        self.real: dict[Entry, Entry] = {}
        self.integer: dict[Entry, list[Entry]] = {}
        #: Layers in 32 bits: as real numbers they need no range.
        self.sums: dict[Entry, list[Entry]] = {}
        self.made: dict[str, nd.NDArray] = {}
        self.constants: dict[int, list[Entry]] = {}

    def add(self, op: str, name: str, inputs: Iterable[Entry], attrs: Mapping[str, Any]) -> int:
        node: dict[str, Any] = {"op": op, "name": name, "inputs": [[*entry, 0] for entry in inputs]}
        if attrs:
            node["attrs"] = {key: str(value) for key, value in attrs.items()}
        self.nodes.append(node)
        return len(self.nodes) - 1

    def run(self) -> sym.Symbol:
        """The quantised symbol."""
        for at, node in enumerate(self.old):
            inputs = [(entry[0], entry[1]) for entry in node["inputs"]]
            if self.chosen[at]:
                self._layer(at, node, inputs)
            elif node["op"] in _KEEPERS and self._keeps(node, inputs):
                self._keep(at, node, inputs)
            elif node["op"] == "null":
                continue  # made where it is read
            else:
                copy = {**node, "inputs": [[*self.number(entry), 0] for entry in inputs]}
                copy.pop("control_deps", None)
                self.nodes.append(copy)
                for index in range(self.outputs[at]):
                    self.real[at, index] = (len(self.nodes) - 1, index)
        heads = [[*self.number((head[0], head[1])), 0] for head in self.graph["heads"]]
        variables = [at for at, node in enumerate(self.nodes) if node["op"] == "null"]
        text = {"nodes": self.nodes, "arg_nodes": variables, "heads": heads}
        made: sym.Symbol = sym.load_json(json.dumps({**text, "attrs": self.graph.get("attrs", {})}))
        return made

    def observed(self) -> tuple[list[Entry], sym.Symbol]:
        """What the layers that were chosen read and give, and the symbol that computes it."""
        entries: dict[Entry, None] = {}
        for at, node in enumerate(self.old):
            if self.chosen[at]:
                entry = node["inputs"][0]
                entries |= {(entry[0], entry[1]): None, (at, 0): None}
        heads = [[*entry, 0] for entry in entries]
        return list(entries), sym.load_json(json.dumps({**self.graph, "heads": heads}))

    def number(self, entry: Entry) -> Entry:
        """An entry as real numbers."""
        if entry not in self.real:
            node = self.old[entry[0]]
            inputs = self.sums.get(entry) or self.integer.get(entry)
            if inputs is not None:
                at = self.add("_contrib_dequantize", f"{node['name']}_dequantize", inputs, {})
                self.real[entry] = (at, 0)
            else:
                self.nodes.append(dict(node))
                self.real[entry] = (len(self.nodes) - 1, 0)
        return self.real[entry]

    def whole(self, entry: Entry) -> list[Entry]:
        """An entry as integers, with the two ends of their range."""
        if entry not in self.integer:
            attrs: dict[str, Any] = {"out_type": self.dtype}
            known = self.ranges.get(entry)
            if known is not None:
                attrs |= dict(zip(("min_calib_range", "max_calib_range"), known, strict=True))
            if self.dtype == "uint8" and (known is None or known[0] < 0):
                attrs["out_type"] = "int8"
            if entry in self.sums:
                attrs["out_type"] = "int8"
                layer = self.old[entry[0]]["name"]
                at = self.add("_contrib_requantize", f"{layer}_requantize", self.sums[entry], attrs)
            else:
                name, real = _entry_name(self.old, entry), self.number(entry)
                at = self.add("_contrib_quantize_v2", f"{name}_quantize", [real], attrs)
            self.integer[entry] = _with_range(at)
        return self.integer[entry]

    def constant(self, entry: Entry) -> list[Entry]:
        """The entry as int8: parameters are quantised now, anything else by a node of the graph."""
        node = self.old[entry[0]]
        name = node["name"]
        if node["op"] != "null" or name not in self.params:
            at = self.add(
                "_contrib_quantize_v2",
                f"{name}_quantize",
                [self.number(entry)],
                {"out_type": "int8"},
            )
            return _with_range(at)
        if entry[0] not in self.constants:
            value = self.params[name].as_in_context(cpu()).astype("float32")
            found = nd.contrib.quantize_v2(value, out_type="int8")
            names = (f"{name}_quantize", f"{name}_quantize_min", f"{name}_quantize_max")
            self.made.update(zip(names, found, strict=True))
            self.constants[entry[0]] = [(self.add("null", name, [], {}), 0) for name in names]
        return self.constants[entry[0]]

    def _layer(self, at: int, node: dict[str, Any], inputs: list[Entry]) -> None:
        name, attrs = node["name"], dict(node.get("attrs", {}))
        groups = [self.whole(inputs[0]), *map(self.constant, inputs[1:])]
        operands = [group[0] for group in groups]
        operands += [end for group in groups for end in group[1:]]
        made = self.add(_LAYERS[node["op"]], f"quantized_{name}", operands, attrs)
        self.sums[at, 0] = _with_range(made)

    def _keeps(self, node: dict[str, Any], inputs: list[Entry]) -> bool:
        fits = _KEEPERS[node["op"]][1]
        known = inputs[0] in self.integer or inputs[0] in self.sums
        given = known and inputs[0] not in self.real
        return given and fits(node.get("attrs", {})) and not self.excluded(node)

    def _keep(self, at: int, node: dict[str, Any], inputs: list[Entry]) -> None:
        op, attrs = _KEEPERS[node["op"]][0], node.get("attrs", {})
        made = self.add(op, f"quantized_{node['name']}", self.whole(inputs[0]), attrs)
        self.integer[at, 0] = _with_range(made)


def _with_range(at: int) -> list[Entry]:
    """The outputs of a node that computes integers: these, and the two ends of their range."""
    return [(at, index) for index in range(3)]


def _is_layer(node: dict[str, Any]) -> bool:
    attrs = node.get("attrs", {})
    if node["op"] == "FullyConnected":
        return True
    layout = attrs.get("layout", "None")
    return node["op"] == "Convolution" and layout in ("None", "NCW", "NCHW", "NCDHW")


def _entry_name(nodes: list[dict[str, Any]], entry: Entry) -> str:
    node = nodes[entry[0]]
    if node["op"] == "null":
        return str(node["name"])
    return f"{node['name']}_output" + (str(entry[1]) if entry[1] else "")
