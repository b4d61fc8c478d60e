"""`SymbolBlock`: a block made from a symbol."""

from __future__ import annotations

from os.path import commonprefix
from typing import Any

from .. import ndarray as nd
from .. import symbol as sym
from ..base import MXNetError
from ._structure import flatten, regroup
from .hybrid_block import HybridBlock
from .parameter_dict import ParameterDict, load_arrays

__all__ = ["SymbolBlock"]


class SymbolBlock(HybridBlock):
    """A block made from a symbol, such as one of a file.

    Parameters
    ----------
    outputs : Symbol or list of Symbol
        What to compute.
    inputs : Symbol or list of Symbol
        The variables that are inputs; all others become parameters.
    params : ParameterDict or dict of str to Parameter, optional
        Where to take parameters of these names from.

    Raises
    ------
    ValueError
        An input is not a variable of the outputs.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet import gluon
    >>> data = mx.sym.var("data")
    >>> block = gluon.SymbolBlock(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), data)
    >>> block.initialize()
    >>> block(mx.nd.ones((2, 4))).shape, list(block.collect_params())
    ((2, 3), ['fc_weight', 'fc_bias'])
    """

    @staticmethod
    def imports(
        symbol_file: str,
        input_names: str | list[str],
        param_file: str | None = None,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """A block from the files that `HybridBlock.export` or `model.save_checkpoint` wrote.

        Parameters
        ----------
        symbol_file : str
        input_names : str or list of str
            Names of the variables that are inputs.
        param_file : str, optional
            Without it the block has no values yet.
        ctx : Context or list of Context, optional
        allow_missing : bool
            May parameters be missing in the file?
        ignore_extra : bool
            May the file have others?

        Raises
        ------
        ValueError
            The symbol has no input of a name.
        AssertionError
            A parameter is missing in the file, or has another shape there.
        """
        symbol = sym.load(symbol_file)
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        known = symbol.list_inputs()
        for name in names:
            if name not in known:
                raise ValueError(
                    f"invalid input name '{name}': expected one of {known}, as '{symbol_file}' has "
                    "them"
                )
        found = symbol.get_internals()
        block = SymbolBlock(symbol, [found[name] if len(found) > 1 else found for name in names])
        if param_file is not None:
            arrays = load_arrays(param_file)
            for name, param in block.params.items():
                if name in arrays:
                    param.dtype = arrays[name].dtype
            block.collect_params().load_dict(
                arrays, ctx, allow_missing, ignore_extra, filename=param_file
            )
        elif ctx is not None:
            block.collect_params().initialize(ctx=ctx)
        return block

    def __init__(self, outputs: Any, inputs: Any, params: Any = None) -> None:
        super().__init__(prefix=None, params=None)
        self._prefix = ""
        self._name = ""
        self._params = ParameterDict("", params if isinstance(params, ParameterDict) else None)
        if isinstance(params, dict):
            self._params._shared = shared = ParameterDict("")
            shared._params.update(params)
        if isinstance(inputs, sym.Symbol) and len(inputs.list_outputs()) == 1:
            inputs = [inputs]
        flat_inputs, self._in_structure = flatten(list(inputs), "input")
        flat_outputs, self._out_structure = flatten(outputs, "output")
        if isinstance(self._out_structure, list) and len(self._out_structure) == 1:
            self._out_structure = self._out_structure[0]
        out = flat_outputs[0] if len(flat_outputs) == 1 else sym.Group(flat_outputs)
        given = self._check_inputs(flat_inputs)
        self._none_outputs = [False] * len(out.list_outputs())
        self._make_params(out, given)
        self._graph = (flat_inputs, out)
        self._cached_graph = self._graph

    @staticmethod
    def _check_inputs(inputs: list[Any]) -> set[str]:
        names = set()
        for one in inputs:
            if len(one.get_internals().list_outputs()) != 1:
                raise ValueError(
                    f"SymbolBlock: invalid input '{one.name}', an output of operators: expected a "
                    "variable"
                )
            names.add(one.name)
        return names

    def _make_params(self, out: sym.Symbol, given: set[str]) -> None:
        """A parameter for every variable of the symbol that is not an input. Their initializers
        are those of `initialize`: an attribute `__init__` may be an operator's, which all of its
        variables have. Files name them without what all names begin with, as MXNet's do.
        """
        arguments = out.list_arguments()
        types: dict[str, Any] = {}
        try:
            arg_types, _, aux_types = out.infer_type_partial()
            types = dict(zip(arguments + out.list_auxiliary_states(), arg_types + aux_types))
        except MXNetError:
            pass  # the dtypes of the inputs decide
        for name in arguments + out.list_auxiliary_states():
            if name in given:
                continue
            more: dict[str, Any] = {}
            if name not in arguments:
                more["grad_req"] = "null"
            if types.get(name) is not None:
                more["dtype"] = types[name]
            if self._params._shared is not None and name in self._params._shared:
                more = {}
            self.params.get(name, allow_deferred_init=True, **more)
        common = len(commonprefix(list(self.params)))  # noqa: RUF071 - by characters, as MXNet
        self._reg_params = {name[common:]: param for name, param in self.params.items()}
        self._whole_names = {name: name[common:] for name in self.params}

    def __repr__(self) -> str:
        inputs, out = self._graph
        return f"SymbolBlock(\n{out!r} : {len(inputs)} -> {len(out.list_outputs())}\n)"

    def _clear_cached_op(self) -> None:
        graph = self.__dict__.get("_graph", ())
        super()._clear_cached_op()
        self._cached_graph = graph

    def forward(self, x: Any, *args: Any) -> Any:
        """Runs the symbol's planned graph; with symbols, composes it."""
        if isinstance(x, nd.NDArray):
            return self._call_cached_op(x, *args)
        flat = flatten((x, *args), "input")[0]
        inputs, out = self._graph
        composed = out.__copy__()
        composed._compose(**{i.name: given for i, given in zip(inputs, flat, strict=True)})
        return regroup(list(composed), self._out_structure)[0]

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "a SymbolBlock does not define hybrid_forward: its symbol is what it computes"
        )
