"""Quantisation: models whose convolutions and fully connected layers compute on 8-bit integers.

`quantize_model` takes a symbol with its parameters, `quantize_net_v2` a Gluon block. Weights become
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

from ... import ndarray as nd
from ... import symbol as sym
from ..._mxnet_names import module_getattr
from ..._numbers import integer
from ..._trees import flat
from ...base import shown
from ...context import Context, cpu
from ...initializer import Zero
from ...symbol import Symbol
from ._calibration import batches_by_name, calibrated, collected
from ._rewriting import Entry, Range, Rewriting

__all__ = ["quantize_model", "quantize_model_mkldnn", "quantize_net", "quantize_net_v2"]

__getattr__ = module_getattr(__name__)


def _names(what: str, given: Any) -> set[str]:
    """Names in a list, checked."""
    given = () if given is None else given
    is_list = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    names = list(given) if is_list else []
    if not is_list or not all(isinstance(name, str) for name in names):
        raise TypeError(f"invalid {what} {shown(given)}: expected a list of names")
    return set(names)


def _expect_arrays(what: str, given: Any) -> None:
    if not isinstance(given, Mapping) or not all(
        isinstance(array, nd.NDArray) for array in given.values()
    ):
        raise TypeError(f"invalid {what} {shown(given)}: expected a dict of names and NDArrays")


def _excluder(names: Any, operators: Any) -> Callable[[dict[str, Any]], bool]:
    nodes = _names("excluded_sym_names", names)
    kinds = _names("excluded_op_names", operators)
    return lambda node: node["name"] in nodes or node["op"] in kinds


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
    quantized_dtype: str = "int8",
    quantize_mode: str = "smart",
    quantize_granularity: str = "tensor-wise",
    logger: Any = logging,
    calib_layer: Any = None,
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
    quantized_dtype : {'int8', 'uint8', 'auto'}
        The dtype of data; 'auto' and 'uint8' use uint8 where no number is negative, 'uint8' int8
        where the range is not known.
    quantize_mode : {'smart', 'full'}
        Accepted: both quantise what is listed above.
    quantize_granularity : {'tensor-wise'}
        One range for each tensor.
    logger : optional
        What reports the number of layers, by ``info``.
    calib_layer
        Accepted, without effect.

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
    _expect_one_of("calib_mode", calib_mode, ("none", "naive", "entropy"))
    return _quantized(
        sym, arg_params, aux_params, data_names, ctx, excluded_sym_names, excluded_op_names,
        calib_mode, calib_data, num_calib_examples, quantized_dtype, quantize_mode,
        quantize_granularity, logger,
    )  # fmt: skip


def _expect_one_of(what: str, got: Any, allowed: Sequence[str]) -> None:
    if got not in allowed:
        raise ValueError(f"invalid {what} {got!r}: expected one of {', '.join(allowed)}")


def _quantized(
    sym: Any,
    arg_params: Mapping[str, nd.NDArray],
    aux_params: Mapping[str, nd.NDArray],
    data_names: Sequence[str],
    ctx: Context | None,
    excluded_sym_names: Sequence[str] | None,
    excluded_op_names: Sequence[str] | None,
    calib_mode: str,
    calib_data: Any,
    num_calib_examples: int | None,
    quantized_dtype: str,
    quantize_mode: str,
    quantize_granularity: str,
    logger: Any,
    collector: Any = None,
) -> tuple[sym.Symbol, dict[str, nd.NDArray], Mapping[str, nd.NDArray]]:
    """What `quantize_model` returns; with 'customize' a collector finds the ranges."""
    for what, got, allowed in (
        ("quantized_dtype", quantized_dtype, ("int8", "uint8", "auto")),
        ("quantize_mode", quantize_mode, ("smart", "full")),
        ("quantize_granularity", quantize_granularity, ("tensor-wise",)),
    ):
        _expect_one_of(what, got, allowed)
    if not isinstance(sym, Symbol):
        raise TypeError(f"invalid sym {shown(sym)}: expected a Symbol")
    _expect_arrays("arg_params", arg_params)
    _expect_arrays("aux_params", aux_params)
    limit = None
    if num_calib_examples is not None:
        limit = integer("num_calib_examples", num_calib_examples)
    params = {**arg_params, **aux_params}
    excluded = _excluder(excluded_sym_names, excluded_op_names)
    ranges: dict[Entry, Range] = {}
    rewriting = Rewriting(sym, params, excluded, quantized_dtype, ranges)
    if calib_mode != "none":
        if calib_data is None:
            raise ValueError(
                f"invalid calib_data None: expected batches, as calib_mode is {calib_mode!r}"
            )
        where = ctx or cpu()
        batches = batches_by_name(calib_data, data_names, where)
        if calib_mode == "customize":
            ranges |= collected(rewriting, params, batches, limit, collector, where)
        else:
            ranges |= calibrated(rewriting, params, batches, limit, calib_mode == "entropy", where)
    made = rewriting.run()
    if logger is not None:
        logger.info("quantized %d layers", sum(rewriting.chosen))
    arguments = made.list_arguments()
    own = {**arg_params, **rewriting.made}
    return made, {name: own[name] for name in arguments if name in own}, aux_params


#: That of MXNet's oneDNN backend: here every graph is fused when it is bound.
quantize_model_mkldnn = quantize_model


def quantize_net_v2(
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
    LayerOutputCollector: Any = None,
    logger: Any = logging,
) -> Any:
    """`quantize_model` for a Gluon block: a `SymbolBlock` that computes on 8-bit integers.

    Parameters
    ----------
    network : HybridBlock
        Initialized.
    exclude_layers, exclude_operators : sequence of str, optional
        Nodes, and operators, that stay as they are.
    exclude_layers_match : sequence of str, optional
        Nodes whose names contain one of these stay as they are.
    calib_data : DataLoader, DataIter or iterable of arrays
        The examples; required unless `calib_mode` is 'none'. A batch may have labels behind the
        data.
    data_shapes : list, optional
        An entry for each input of `network`, as the ``provide_data`` of an iterator. Without it the
        inputs are those of a DataIter, or one.
    calib_mode : {'none', 'naive', 'entropy', 'customize'}
        As for `quantize_model`; 'customize': as `LayerOutputCollector` says.
    LayerOutputCollector : optional
        An object that finds ranges if `calib_mode` is 'customize': its ``collect(name, arr)`` gets
        what layers read and give on the examples, the name as bytes; its ``min_max_dict`` then has
        pairs of numbers by name. Ranges that are not there are found in every run.

    The other parameters are those of `quantize_model`.

    Examples
    --------
    >>> import rsnet as mx
    >>> net = mx.gluon.nn.Dense(2, in_units=3)
    >>> net.initialize(mx.init.One())
    >>> fast = mx.contrib.quantization.quantize_net_v2(net)
    >>> fast(mx.nd.array([[1, 2, 4]])).asnumpy().round().tolist()
    [[7.0, 7.0]]
    """
    _expect_one_of("calib_mode", calib_mode, ("none", "naive", "entropy", "customize"))
    if calib_mode == "customize" and not callable(getattr(LayerOutputCollector, "collect", None)):
        raise TypeError(
            f"invalid LayerOutputCollector {shown(LayerOutputCollector)}: expected an object with "
            "a method collect(name, arr), as calib_mode is 'customize'"
        )
    names = _inputs(data_shapes or getattr(calib_data, "provide_data", [None]))
    traced = network(*map(sym.Variable, names))
    if not isinstance(traced, sym.Symbol):
        traced = sym.Group(flat(traced, sym.Symbol, "output"))
    known = {name: param.data() for name, param in network.collect_params().items()}
    aux = set(traced.list_auxiliary_states())
    excluded = list(exclude_layers or ())
    matches = exclude_layers_match or ()
    nodes = json.loads(traced.tojson())["nodes"]
    excluded += [n["name"] for n in nodes if any(match in n["name"] for match in matches)]
    made, args, states = _quantized(
        traced,
        {name: value for name, value in known.items() if name not in aux},
        {name: value for name, value in known.items() if name in aux},
        data_names=names,
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
        collector=LayerOutputCollector,
    )
    return _block(made, names, {**args, **states}, ctx or cpu())


def _inputs(descriptions: Sequence[Any]) -> list[str]:
    """Names for as many inputs."""
    count = len(descriptions)
    return ["data"] if count == 1 else [f"data{i}" for i in range(count)]


def _block(made: sym.Symbol, inputs: list[str], values: dict[str, nd.NDArray], ctx: Context) -> Any:
    """The block of a symbol, whose parameters have these values and no gradients."""
    from ...gluon import SymbolBlock

    block = SymbolBlock(made, [sym.Variable(name) for name in inputs])
    for name, param in block.collect_params().items():
        value = values[name]
        param.dtype = value.dtype
        param.shape = value.shape
        param.grad_req = "null"
        param.initialize(init=Zero(), ctx=ctx, default_init=Zero())
        param.set_data(value)
    return block


def quantize_net(
    network: Any,
    quantized_dtype: str = "auto",
    quantize_mode: str = "full",
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
    """`quantize_net_v2` with fewer parameters, in MXNet's older order."""
    if calib_mode == "customize":
        raise ValueError(
            "invalid calib_mode 'customize': expected one of none, naive, entropy (quantize_net_v2 "
            "takes the LayerOutputCollector of 'customize')"
        )
    return quantize_net_v2(
        network,
        quantized_dtype=quantized_dtype,
        quantize_mode=quantize_mode,
        exclude_layers=exclude_layers,
        exclude_layers_match=exclude_layers_match,
        exclude_operators=exclude_operators,
        calib_data=calib_data,
        data_shapes=data_shapes,
        calib_mode=calib_mode,
        num_calib_examples=num_calib_examples,
        ctx=ctx,
        logger=logger,
    )
