"""Quantisation: models whose convolutions and fully connected layers compute on 8-bit integers.

`quantize_model` takes a symbol with its parameters, `quantize_net` a Gluon block. Weights become
int8 once and for all. The range of the data of a layer is found in every run
(``calib_mode="none"``) or beforehand on examples: ``"naive"`` takes the least and the greatest
number, ``"entropy"`` the range that loses the least of the distribution
(:func:`rsnet.nd.contrib.calibrate_entropy`), though no more than one number in a thousand.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from .. import symbol as sym
from ..context import Context, cpu
from ..initializer import Zero
from ..io import DataIter

__all__ = ["quantize_model", "quantize_net"]

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
#: Bins of a histogram, and the largest share of numbers that a range may leave out.
_BINS = 8001
_CLIPPED = 0.001

Entry = tuple[int, int]
Range = tuple[float, float]


class _Rewriting:
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
            name = _entry_name(self.old, entry)
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
                self.integer[entry] = [(at, index) for index in range(3)]
                return self.integer[entry]
            at = self.add("_contrib_quantize_v2", f"{name}_quantize", [self.number(entry)], attrs)
            self.integer[entry] = [(at, index) for index in range(3)]
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
            return [(at, index) for index in range(3)]
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
        self.sums[at, 0] = [(made, index) for index in range(3)]

    def _keeps(self, node: dict[str, Any], inputs: list[Entry]) -> bool:
        fits = _KEEPERS[node["op"]][1]
        known = inputs[0] in self.integer or inputs[0] in self.sums
        given = known and inputs[0] not in self.real
        return given and fits(node.get("attrs", {})) and not self.excluded(node)

    def _keep(self, at: int, node: dict[str, Any], inputs: list[Entry]) -> None:
        op, attrs = _KEEPERS[node["op"]][0], node.get("attrs", {})
        made = self.add(op, f"quantized_{node['name']}", self.whole(inputs[0]), attrs)
        self.integer[at, 0] = [(made, index) for index in range(3)]


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


def _excluder(
    names: Sequence[str] | None, operators: Sequence[str] | None
) -> Callable[[dict[str, Any]], bool]:
    nodes, kinds = set(names or ()), set(operators or ())
    return lambda node: node["name"] in nodes or node["op"] in kinds


def _batches(data: Any, names: Sequence[str], ctx: Context) -> Iterable[dict[str, nd.NDArray]]:
    """Batches of examples as arrays by name."""
    if isinstance(data, DataIter):
        data.reset()
    for batch in data:
        arrays = getattr(batch, "data", batch)
        arrays = arrays if isinstance(arrays, (list, tuple)) else [arrays]
        if len(arrays) < len(names):
            raise ValueError(
                f"invalid calib_data: a batch has {len(arrays)} arrays, expected {len(names)}: "
                f"{', '.join(names)}"
            )
        given = [array if isinstance(array, nd.NDArray) else nd.array(array) for array in arrays]
        yield {n: a.as_in_context(ctx) for n, a in zip(names, given, strict=False)}


class _Observer:
    """Range, and for the entropy a histogram, of what one entry was on the examples."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.counts = np.zeros(_BINS)
        self.most = 0.0

    def see(self, values: np.ndarray[Any, Any], with_counts: bool) -> None:
        self.low, self.high = min(self.low, values.min()), max(self.high, values.max())
        if not with_counts:
            return
        most = max(abs(self.low), abs(self.high), 1e-20)
        if self.most == 0.0:
            self.most = most
        while self.most < most:  # two bins become one, around the bin in the middle
            half = self.counts[_BINS // 2 + 1 :].reshape(-1, 2).sum(axis=1)
            low = self.counts[: _BINS // 2].reshape(-1, 2).sum(axis=1)
            pad = np.zeros(_BINS // 2 - len(half))
            middle = self.counts[_BINS // 2 : _BINS // 2 + 1]
            self.counts = np.concatenate([pad, low, middle, half, pad])
            self.most *= 2
        self.counts += np.histogram(values, _BINS, (-self.most, self.most))[0]

    def threshold(self) -> float:
        """The range that loses the least, but not less than what holds all but a few numbers:
        peaks, such as the background of images, would make it far too narrow.
        """
        edges = np.linspace(-self.most, self.most, _BINS + 1)
        found = nd.contrib.calibrate_entropy(nd.array(self.counts), nd.array(edges))
        middle = _BINS // 2
        sizes = self.counts[middle:].copy()
        sizes[1:] += self.counts[:middle][::-1]
        held = np.searchsorted(sizes.cumsum(), (1 - _CLIPPED) * sizes.sum())
        return max(float(found[0].asscalar()), float(edges[middle + 1 + min(held, middle)]))

    def range(self, entropy: bool) -> Range:
        if not entropy:
            return float(self.low), float(self.high)
        threshold = self.threshold()
        return (0.0 if self.low >= 0 else -threshold), threshold


def _calibrated(
    rewriting: _Rewriting,
    params: Mapping[str, nd.NDArray],
    batches: Iterable[dict[str, nd.NDArray]],
    limit: int | None,
    entropy: bool,
    ctx: Context,
) -> dict[Entry, Range]:
    """The ranges of what the layers that were chosen read and give."""
    if not any(rewriting.chosen):
        return {}
    entries, group = rewriting.observed()
    observers = {entry: _Observer() for entry in entries}
    executor, seen = None, 0
    for batch in batches:
        if executor is None:
            inputs = group.list_inputs()
            shapes: dict[str, Any] = {
                name: array.shape for name, array in batch.items() if name in inputs
            }
            executor = group.simple_bind(ctx, grad_req="null", **shapes)
            executor.copy_params_from(
                {n: a for n, a in params.items() if n in executor.arg_dict},
                {n: a for n, a in params.items() if n in executor.aux_dict},
            )
        outputs = executor.forward(
            is_train=False, **{n: a for n, a in batch.items() if n in executor.arg_dict}
        )
        for observer, output in zip(observers.values(), outputs, strict=True):
            observer.see(output.asnumpy(), entropy)
        seen += next(iter(batch.values())).shape[0]
        if limit is not None and seen >= limit:
            break
    if not seen:
        raise ValueError("invalid calib_data without batches: expected one batch at least")
    return {entry: observer.range(entropy) for entry, observer in observers.items()}


def quantize_model(
    sym: sym.Symbol,
    arg_params: Mapping[str, nd.NDArray],
    aux_params: Mapping[str, nd.NDArray],
    data_names: Sequence[str] = ("data",),
    label_names: Sequence[str] | None = ("softmax_label",),
    ctx: Context | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    excluded_op_names: Sequence[str] | None = None,
    calib_mode: str = "entropy",
    calib_data: Any = None,
    num_calib_examples: int | None = None,
    calib_layer: Any = None,
    quantized_dtype: str = "int8",
    quantize_mode: str = "smart",
    quantize_granularity: str = "tensor-wise",
    logger: Any = logging,
) -> tuple[sym.Symbol, dict[str, nd.NDArray], Mapping[str, nd.NDArray]]:
    """A model whose convolutions and fully connected layers compute on 8-bit integers.

    Activations, pooling and flattening between such layers stay integers; everything else is
    computed in float32. Weights and biases become int8 parameters ``<name>_quantize``, with the
    ends of their range ``<name>_quantize_min`` and ``<name>_quantize_max``.

    Parameters
    ----------
    sym : Symbol
    arg_params, aux_params : dict of str to NDArray
    data_names : sequence of str
        The inputs, in the order of the arrays of a batch.
    label_names : sequence of str, optional
        Accepted, without effect.
    ctx : Context, optional
        Where examples are computed; the CPU by default.
    excluded_sym_names, excluded_op_names : sequence of str, optional
        Nodes, and operators, that stay as they are.
    calib_mode : {'none', 'naive', 'entropy'}
        How ranges are found: in every run, or on examples as the least and greatest number, or as
        the range that loses the least.
    calib_data : DataIter or iterable of arrays
        The examples; required unless `calib_mode` is 'none'.
    num_calib_examples : int, optional
        How many examples to use; all by default.
    calib_layer
        Accepted, without effect.
    quantized_dtype : {'int8', 'uint8', 'auto'}
        The dtype of data; 'auto' and 'uint8' use uint8 where no number is negative, 'uint8' int8
        where the range is not known.
    quantize_mode : {'smart', 'full'}
        Accepted: both quantise what is listed above.
    quantize_granularity : {'tensor-wise'}
        One range for each tensor.
    logger
        What reports the number of layers, by ``info``.

    Returns
    -------
    tuple
        The symbol, its arguments and its auxiliary states.

    Raises
    ------
    ValueError
        A mode is unknown, or examples are missing.

    Examples
    --------
    >>> import rsnet as mx
    >>> net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    >>> args = {"fc_weight": mx.nd.array([[1, 2], [3, 4]]), "fc_bias": mx.nd.array([0, 1])}
    >>> made, params, _ = mx.contrib.quantization.quantize_model(net, args, {}, calib_mode="none")
    >>> sorted(params)[3:]
    ['fc_weight_quantize', 'fc_weight_quantize_max', 'fc_weight_quantize_min']
    >>> made.eval(data=mx.nd.array([[1, 1]]), **params)[0].asnumpy().round().tolist()
    [[3.0, 8.0]]
    """
    for what, got, allowed in (
        ("calib_mode", calib_mode, ("none", "naive", "entropy")),
        ("quantized_dtype", quantized_dtype, ("int8", "uint8", "auto")),
        ("quantize_mode", quantize_mode, ("smart", "full")),
        ("quantize_granularity", quantize_granularity, ("tensor-wise",)),
    ):
        if got not in allowed:
            raise ValueError(f"invalid {what} {got!r}: expected one of {', '.join(allowed)}")
    params = {**arg_params, **aux_params}
    excluded = _excluder(excluded_sym_names, excluded_op_names)
    ranges: dict[Entry, Range] = {}
    rewriting = _Rewriting(sym, params, excluded, quantized_dtype, ranges)
    if calib_mode != "none":
        if calib_data is None:
            raise ValueError(
                f"invalid calib_data None: expected batches, as calib_mode is {calib_mode!r}"
            )
        where = ctx or cpu()
        batches = _batches(calib_data, data_names, where)
        entropy = calib_mode == "entropy"
        limit = num_calib_examples
        ranges |= _calibrated(rewriting, params, batches, limit, entropy, where)
    made = rewriting.run()
    logger.info("quantized %d layers", sum(rewriting.chosen))
    arguments = made.list_arguments()
    own = {**arg_params, **rewriting.made}
    return made, {name: own[name] for name in arguments if name in own}, aux_params


def quantize_net(
    network: Any,
    quantized_dtype: str = "auto",
    quantize_mode: str = "full",
    quantize_granularity: str = "tensor-wise",
    exclude_layers: Sequence[str] | None = None,
    exclude_layers_match: Sequence[str] | None = None,
    exclude_operators: Sequence[str] | None = None,
    calib_data: Any = None,
    data_shapes: Any = None,
    calib_mode: str = "none",
    num_calib_examples: int | None = None,
    ctx: Context | None = None,
    logger: Any = logging,
) -> Any:
    """`quantize_model` for a Gluon block: a `SymbolBlock` that computes on 8-bit integers.

    Parameters
    ----------
    network : HybridBlock
        With one input, initialized.
    exclude_layers, exclude_operators : sequence of str, optional
        Nodes, and operators, that stay as they are.
    exclude_layers_match : sequence of str, optional
        Nodes whose names contain one of these stay as they are.
    calib_data : DataLoader, DataIter or iterable of arrays
        The examples; required unless `calib_mode` is 'none'. A batch may have labels behind the
        data.
    data_shapes
        Accepted, without effect.

    The other parameters are those of `quantize_model`.

    Examples
    --------
    >>> import rsnet as mx
    >>> net = mx.gluon.nn.Dense(2, in_units=3)
    >>> net.initialize(mx.init.One())
    >>> fast = mx.contrib.quantization.quantize_net(net)
    >>> fast(mx.nd.array([[1, 2, 4]])).asnumpy().round().tolist()
    [[7.0, 7.0]]
    """
    from ..gluon import SymbolBlock

    data = sym.Variable("data")
    traced = network(data)
    known = {name: param.data() for name, param in network.collect_params().items()}
    aux = set(traced.list_auxiliary_states())
    excluded = list(exclude_layers or ())
    matches = exclude_layers_match or ()
    nodes = json.loads(traced.tojson())["nodes"]
    excluded += [n["name"] for n in nodes if any(match in n["name"] for match in matches)]
    made, args, states = quantize_model(
        traced,
        {name: value for name, value in known.items() if name not in aux},
        {name: value for name, value in known.items() if name in aux},
        ctx=ctx,
        excluded_sym_names=excluded,
        excluded_op_names=exclude_operators,
        calib_mode=calib_mode,
        calib_data=calib_data,
        num_calib_examples=num_calib_examples,
        quantized_dtype=quantized_dtype,
        quantize_mode=quantize_mode,
        quantize_granularity=quantize_granularity,
        logger=logger,
    )
    block = SymbolBlock(made, [sym.Variable("data")])
    for name, param in block.collect_params().items():
        value = args[name] if name in args else states[name]
        param.dtype = value.dtype
        param.shape = value.shape
        param.grad_req = "null"
        param.initialize(init=Zero(), ctx=ctx or cpu(), default_init=Zero())
        param.set_data(value)
    return block
