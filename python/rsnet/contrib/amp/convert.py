"""Graphs in mixed precision: casts put in front of the operators that the lists name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ... import symbol as sym
from ...base import numpy_dtype
from ...ndarray import NDArray
from . import lists

__all__ = ["Rules", "convert_hybrid_block", "convert_model", "convert_symbol"]

Conditions = Sequence[tuple[str, str, Sequence[str]]]

_HALF, _SINGLE = "float16", "float32"


@dataclass(frozen=True)
class Rules:
    """Which operators run in half precision, which in float32, and which nodes are left alone."""

    half: frozenset[str]
    single: frozenset[str]
    conditional: tuple[tuple[str, str, frozenset[str]], ...]
    widest: frozenset[str]
    excluded: frozenset[str] = frozenset()

    @staticmethod
    def of(
        target_dtype: Any,
        half: Iterable[str] | None = None,
        single: Iterable[str] | None = None,
        conditional: Conditions | None = None,
        excluded: Iterable[str] | None = None,
    ) -> Rules:
        """The rules of the given lists; those of `lists` where there is none.

        Raises
        ------
        TypeError
            It is no dtype.
        ValueError
            The dtype is another one than float16, or an operator is in two lists.
        """
        if numpy_dtype(target_dtype, "target_dtype").name != _HALF:
            raise ValueError(f"invalid target_dtype '{target_dtype}': expected 'float16'")
        if conditional is None:
            conditional = lists.CONDITIONAL_FP32_FUNCS
        rules = Rules(
            frozenset(lists.FP16_FUNCS if half is None else half),
            frozenset(lists.FP32_FUNCS if single is None else single),
            tuple((op, name, frozenset(values)) for op, name, values in conditional),
            frozenset(lists.WIDEST_TYPE_CASTS),
            frozenset(excluded or ()),
        )
        both = rules.half & (rules.single | {op for op, _, _ in rules.conditional})
        if both:
            raise ValueError(
                f"invalid lists of operators: '{min(both)}' is to run both in float16 and in "
                "float32, expected one of them"
            )
        return rules

    def dtype_of(self, node: dict[str, Any]) -> str | None:
        """The dtype that the inputs of a node have to have; "widest", or None if any will do."""
        op, attrs = node["op"], node.get("attrs", {})
        if op == "null" or node["name"] in self.excluded:
            return None
        for conditional, name, values in self.conditional:
            if op == conditional and attrs.get(name) in values:
                return _SINGLE
        if op in self.half:
            return _HALF
        if op in self.single:
            return _SINGLE
        return "widest" if op in self.widest and len(node["inputs"]) > 1 else None


class _Converter:
    """Copies the nodes of a graph with casts between them."""

    def __init__(self, graph: dict[str, Any], rules: Rules) -> None:
        self._old, self._rules = graph["nodes"], rules
        self.nodes: list[dict[str, Any]] = []
        # Where the nodes are now, and the casts that were made, by what they read.
        self.place: list[int] = []
        self._casts: dict[tuple[int, int, str], int] = {}
        for node in self._old:
            self._copy(node)

    def entry(self, entry: Sequence[int]) -> list[int]:
        """Where the output of a node is now."""
        return [self.place[entry[0]], *entry[1:]]

    def _copy(self, node: dict[str, Any]) -> None:
        inputs = [self.entry(entry) for entry in node["inputs"]]
        dtype = self._rules.dtype_of(node)
        if dtype == "widest":
            inputs = self._widest(node["name"], inputs)
        elif dtype is not None:
            inputs = [self._cast(entry, dtype) for entry in inputs]
        self.place.append(self._add({**node, "inputs": inputs}))

    def _add(self, node: dict[str, Any]) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _cast(self, entry: list[int], dtype: str) -> list[int]:
        key = (entry[0], entry[1], dtype)
        if key not in self._casts:
            source = self.nodes[entry[0]]
            number = str(entry[1]) if entry[1] else ""
            self._casts[key] = self._add({
                "op": "amp_cast",
                "name": f"{source['name']}{number}_amp_cast_{dtype}",
                "attrs": {"dtype": dtype},
                "inputs": [entry],
            })  # fmt: skip
        return [self._casts[key], 0, 0]

    def _widest(self, name: str, inputs: list[list[int]]) -> list[list[int]]:
        at = self._add({
            "op": "amp_multicast",
            "name": f"{name}_amp_multicast",
            "attrs": {"num_outputs": str(len(inputs))},
            "inputs": inputs,
        })  # fmt: skip
        return [[at, number, 0] for number in range(len(inputs))]


def _converted(symbol: sym.Symbol, rules: Rules) -> sym.Symbol:
    graph = json.loads(symbol.tojson(remove_amp_cast=False))
    converter = _Converter(graph, rules)
    found: sym.Symbol = sym.load_json(
        json.dumps({
            "nodes": converter.nodes,
            "arg_nodes": [i for i, node in enumerate(converter.nodes) if node["op"] == "null"],
            "heads": [converter.entry(head) for head in graph["heads"]],
            "attrs": graph.get("attrs", {}),
        })
    )  # fmt: skip
    return found


def convert_symbol(
    sym: sym.Symbol,
    target_dtype: Any = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Iterable[str] | None = None,
    data_names: Iterable[str] | None = None,
    cast_optional_params: bool = False,
) -> sym.Symbol:
    """The symbol in mixed precision: products of matrices in float16, sums in float32.

    Variables keep their names and are float32; `amp_cast` nodes convert them where they are used.

    Parameters
    ----------
    sym : Symbol
    target_dtype : dtype
        float16.
    target_dtype_ops, fp32_ops : list of str, optional
        Operators that run in float16, and those that run in float32, in place of the lists of
        `contrib.amp.lists`.
    conditional_fp32_ops : list of (str, str, list of str), optional
        Operators that run in float32 where a parameter has one of these values.
    excluded_sym_names : list of str, optional
        Nodes that are left alone.
    data_names : list of str, optional
        Inputs that are data: with `cast_optional_params` they stay float32.
    cast_optional_params : bool
        Make variables float16 that only operators in float16 use?

    Raises
    ------
    ValueError
        An operator is in two lists, or a name is not one of the symbol's nodes.

    Examples
    --------
    >>> import rsnet as mx
    >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    >>> half = mx.contrib.amp.convert_symbol(mx.sym.softmax(net))
    >>> half.get_internals().list_outputs()[1:3]
    ['data_amp_cast_float16_output', 'fc_weight']
    >>> exe = half.simple_bind(mx.cpu(), data=(1, 3))
    >>> exe.forward()[0].dtype.__name__
    'float32'
    """
    rules = Rules.of(
        target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names
    )
    known = {node["name"] for node in json.loads(sym.tojson(remove_amp_cast=False))["nodes"]}
    unknown = sorted(rules.excluded - known)
    if unknown:
        raise ValueError(
            f"invalid excluded_sym_names '{unknown[0]}': expected names of the symbol's nodes"
        )
    converted = _converted(sym, rules)
    if cast_optional_params:
        names = _only_half(converted) - set(["data"] if data_names is None else data_names)
        return _with_dtype(converted, names)
    return converted


def _only_half(symbol: sym.Symbol) -> set[str]:
    """The variables that are read through casts to float16 alone."""
    nodes = json.loads(symbol.tojson(remove_amp_cast=False))["nodes"]
    readers: dict[int, list[bool]] = {}
    for node in nodes:
        halves = node["op"] == "amp_cast" and node["attrs"]["dtype"] == _HALF
        for entry in node["inputs"]:
            readers.setdefault(entry[0], []).append(halves)
    return {
        node["name"]
        for at, node in enumerate(nodes)
        if node["op"] == "null" and at in readers and all(readers[at])
    }


def _with_dtype(symbol: sym.Symbol, names: set[str]) -> sym.Symbol:
    """The symbol with these variables declared as float16."""
    graph = json.loads(symbol.tojson(remove_amp_cast=False))
    for node in graph["nodes"]:
        if node["op"] == "null" and node["name"] in names:
            node["attrs"] = {**node.get("attrs", {}), "__dtype__": "2"}
    found: sym.Symbol = sym.load_json(json.dumps(graph))
    return found


def convert_model(
    sym: sym.Symbol,
    arg_params: dict[str, NDArray],
    aux_params: dict[str, NDArray],
    target_dtype: Any = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Iterable[str] | None = None,
    cast_optional_params: bool = False,
) -> tuple[sym.Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """Symbol and parameters of a checkpoint in mixed precision; see `convert_symbol`.

    With `cast_optional_params` the parameters that only operators in float16 use are converted.
    """
    inputs = [name for name in sym.list_inputs() if name not in {*arg_params, *aux_params}]
    converted = convert_symbol(
        sym, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names,
        inputs, cast_optional_params,
    )  # fmt: skip
    halved = _only_half(converted) if cast_optional_params else set()

    def cast(params: dict[str, NDArray]) -> dict[str, NDArray]:
        return {n: a.astype(_HALF) if n in halved else a.copy() for n, a in params.items()}

    return converted, cast(arg_params), cast(aux_params)


def convert_hybrid_block(
    block: Any,
    target_dtype: Any = "float16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    excluded_sym_names: Iterable[str] | None = None,
    ctx: Any = None,
    cast_optional_params: bool = False,
) -> Any:
    """A `SymbolBlock` of a block's graph in mixed precision, with copies of its parameters.

    Parameters
    ----------
    block : HybridBlock
        It was hybridized and called.
    ctx : Context or list of Context, optional
        Where the copies are; where the parameters are if None.

    For the others see `convert_symbol`.

    Raises
    ------
    RuntimeError
        The block has no graph yet.
    """
    from ...gluon import SymbolBlock

    if not block._cached_graph:
        raise RuntimeError(
            f"invalid block {type(block).__name__} '{block.name}' without a graph: expected one "
            "that was hybridized, and called after that"
        )
    inputs, symbol = block._cached_graph
    params = {name: p for name, p in block.collect_params().items() if p._data is not None}
    arrays = {name: param._reduce() for name, param in params.items()}
    converted, args, _ = convert_model(
        symbol, arrays, {}, target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops,
        excluded_sym_names, cast_optional_params,
    )  # fmt: skip
    made = SymbolBlock(converted, inputs)
    for name, param in made.collect_params().items():
        param.dtype = args[name].dtype
        param._load_init(args[name], ctx or params[name].list_ctx())
    made.hybridize()
    return made
