"""`HybridBlock`: written once for arrays and symbols, it can run as one planned graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .. import ndarray as nd
from .. import symbol as sym
from .._warnings import warn
from ..base import MXNetError, MXTypeError, NotImplementedForSymbol, limit_bytes
from ..ndarray._cached_op import CachedOp
from ._errors import is_about_values, needs_values, note_dtypes, within
from ._exported import export_graph
from ._structure import (
    context_of,
    flat_formats,
    flatten,
    holds_symbol,
    regroup,
    without_trailing_none,
)
from .block import Block
from .parameter import DeferredInitializationError, Parameter
from .parameter_dict import ParameterDict

__all__ = ["HybridBlock"]


#: MXNet's switches of `hybridize`: accepted, without effect.
_SWITCHES = (
    "static_alloc", "static_shape", "inline_limit", "forward_bulk_size", "backward_bulk_size",
)  # fmt: skip

# What is made of the symbol of every block that is hybridized, if anything.
_change_graph: Callable[[sym.Symbol], sym.Symbol] | None = None


def change_graphs(change: Callable[[sym.Symbol], sym.Symbol] | None) -> None:
    """Lets `change` make another symbol of each that a hybridized block composes from now on."""
    global _change_graph
    _change_graph = change


class HybridBlock(Block):
    """Base of layers and networks that can run operator by operator or as one planned graph.

    A subclass defines ``hybrid_forward(self, F, x, ..., **params)``, where `F` is `rsnet.nd` or
    `rsnet.sym`, and `params` are the parameters that are attributes of the block. After `hybridize`
    the first call composes the block's symbol; it is planned once for each combination of input
    shapes, with memory for forward and backward passes, and further calls run that plan.

    Parameters
    ----------
    prefix : str, optional
    params : ParameterDict, optional

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet.gluon import HybridBlock
    >>> class Scaled(HybridBlock):
    ...     def __init__(self, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.scale = self.params.get("scale", shape=(1,), init="ones")
    ...     def hybrid_forward(self, F, x, scale):
    ...         return F.broadcast_mul(F.exp(x), scale)
    >>> block = Scaled()
    >>> block.initialize()
    >>> block.hybridize()
    >>> block(mx.nd.zeros((2,))).asnumpy().tolist()
    [1.0, 1.0]
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._active = False
        self._flags: dict[str, Any] = {}
        self._cached_graph: tuple[Any, ...] = ()
        self._cached_op: CachedOp | None = None
        self._memory_limit: int | None = None
        self._op_hook: tuple[Any, bool] | None = None
        self._in_structure: Any = None
        self._out_structure: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, (HybridBlock, Parameter)):
            self._clear_cached_op()

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Adds a child, which must be a `HybridBlock` too.

        Raises
        ------
        ValueError
            It is another kind of block.
        """
        if not isinstance(block, HybridBlock):
            raise ValueError(
                f"invalid child {block} of {type(self).__name__}: expected a HybridBlock "
                f"(HybridSequential instead of Sequential), got {type(block).__name__}"
            )
        super().register_child(block, name)
        self._clear_cached_op()

    def hybridize(
        self, active: bool = True, backend: str | None = None, clear: bool = True,
        memory_limit: int | str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Runs the block as one planned graph from now on, or operator by operator again.

        Parameters
        ----------
        active : bool
        backend : str, optional
            None: rsnet has one backend.
        clear : bool
            Accepted for compatibility: the graph is composed again at the next call in any case.
        memory_limit : int or str, optional
            The most bytes for intermediate results of the block's graph, for each combination of
            input shapes: values are computed again in the backward pass, as far as the limit
            requires; see docs/memory.md. A limit that cannot be met is an error of the first call.
        **kwargs
            MXNet's switches ``static_alloc``, ``static_shape``, ``inline_limit``,
            ``forward_bulk_size``, ``backward_bulk_size``: accepted; memory is always planned.

        Raises
        ------
        TypeError
            Another switch.
        ValueError
            An invalid limit.
        NotImplementedError
            Another backend.
        """
        if backend is not None:
            raise NotImplementedError(
                f"{type(self).__name__}.hybridize: invalid backend '{backend}': rsnet has one "
                "backend, expected None"
            )
        for key in kwargs:
            if key not in _SWITCHES:
                raise TypeError(
                    f"{type(self).__name__}.hybridize: invalid switch '{key}': expected one of: "
                    f"memory_limit, {', '.join(_SWITCHES)}"
                )
        self._memory_limit = limit_bytes(memory_limit)
        self._active = active
        self._flags = kwargs
        self._clear_cached_op()
        limit: dict[str, Any] = {} if memory_limit is None else {"memory_limit": memory_limit}
        super().hybridize(active, **limit, **kwargs)

    def cast(self, dtype: Any) -> None:
        self._clear_cached_op()
        super().cast(dtype)

    def _clear_cached_op(self) -> None:
        self._cached_graph = ()
        self._cached_op = None

    # ---- the graph -----------------------------------------------------------------------------

    def _get_graph(self, *args: Any) -> Any:
        """The inputs' variables and the block's symbol, made on first use."""
        if self._cached_graph:
            return self._cached_graph
        flat, self._in_structure = flatten(args, "input")
        count = sum(arg is not None for arg in flat)
        names = ["data" if count == 1 else f"data{i}" for i in range(len(flat))]
        inputs = [None if a is None else sym.var(n) for a, n in zip(flat, names, strict=True)]
        grouped, _ = regroup(inputs, self._in_structure)
        try:
            out = self._compose(*grouped)
        except NotImplementedForSymbol as error:
            raise needs_values(self, str(error)) from error
        outputs, self._out_structure = flatten(out, "output")
        self._none_outputs = [o is None for o in outputs]
        outputs = [o for o in outputs if o is not None]
        symbol = outputs[0] if len(outputs) == 1 else sym.Group(outputs)
        if _change_graph is not None:
            symbol = _change_graph(symbol)
        self._cached_graph = ([i for i in inputs if i is not None], symbol)
        return self._cached_graph

    def _set_graph(self, inputs: list[Any], symbol: Any, in_format: Any, out_format: Any) -> None:
        """Takes the graph of a file in place of the one that a call would compose."""
        self._clear_cached_op()
        self._in_structure, self._out_structure = in_format, out_format
        flat = flat_formats(out_format)
        self._none_outputs = [one == -1 for one in flat]
        self._cached_graph = (inputs, symbol)

    def _compose(self, *inputs: Any) -> Any:
        """What the block computes from symbols."""
        params = {name: param.var() for name, param in self._reg_params.items()}
        with self.name_scope():
            return self.hybrid_forward(sym, *inputs, **params)

    def infer_shape(self, *args: Any) -> None:
        """Decides the unknown extents of parameters from the inputs."""
        self._infer("infer_shape", "shape", *args)

    def infer_type(self, *args: Any) -> None:
        """Decides the dtypes of parameters from the inputs."""
        self._infer("infer_type", "dtype", *args)

    def _infer(self, function: str, attribute: str, *args: Any) -> None:
        inputs, out = self._get_graph(*args)
        flat = [arg for arg in flatten(args, "input")[0] if arg is not None]
        known = {i.name: getattr(arg, attribute) for i, arg in zip(inputs, flat, strict=True)}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                arg_attrs, _, aux_attrs = getattr(out, function)(**known)
            except UserWarning as unknown:
                raise ValueError(str(unknown)) from None
        found = dict(zip(out.list_arguments(), arg_attrs, strict=True))
        found |= dict(zip(out.list_auxiliary_states(), aux_attrs, strict=True))
        for name, param in self.collect_params().items():
            if name in found:
                setattr(param, attribute, found[name])

    def _finish_deferred(self, *args: Any) -> None:
        """Gives values to parameters whose shape the inputs decide."""
        try:
            self.infer_shape(*args)
        except MXNetError as error:
            if isinstance(error, DeferredInitializationError) or is_about_values(error):
                raise
            raise ValueError(self._no_shape(error)) from error
        except ValueError as error:
            raise ValueError(self._no_shape(error)) from error
        for name, param in self.collect_params().items():
            if param._deferred_init and not param._shape_is_known():
                raise ValueError(self._no_shape(f"'{name}' is not used by the block"))
            param._finish_deferred_init()

    def _no_shape(self, why: Any) -> str:
        return (
            f"{type(self).__name__} '{self.name}': the shapes of its parameters cannot be inferred "
            f"from these inputs: {why}"
        )

    # ---- calls ---------------------------------------------------------------------------------

    def _build_cache(self, *args: Any) -> None:
        inputs, out = self._get_graph(*args)
        params = self.collect_params()
        by_name = {i.name: at for at, i in enumerate(inputs)}
        names = out.list_inputs()
        used = set(names)
        unused = [str(at) for name, at in by_name.items() if name not in used]
        if unused:
            warn(
                f"HybridBlock '{self.name}' does not use its inputs {', '.join(unused)} (counted "
                "from 0)"
            )
        for name in params:
            if name not in used:
                warn(f"HybridBlock '{self.name}' does not use its parameter '{name}'")
        try:
            for name in names:
                if name not in by_name:
                    params[name].data()
        except DeferredInitializationError:
            self._finish_deferred(*args)
        except KeyError:
            raise ValueError(
                f"HybridBlock '{self.name}': unknown input '{name}': expected a parameter "
                "of the block or its children"
            ) from None
        except RuntimeError:
            pass  # on other devices than the current one, or not at all: the call says which
        self._cached_inputs: list[tuple[bool, Any]] = [
            (True, by_name[name]) if name in by_name else (False, params[name]) for name in names
        ]
        parameters = [name for name in out.list_arguments() if name not in by_name]
        limit = self._memory_limit
        self._cached_op = CachedOp(out, parameters=parameters, name=self.name, memory_limit=limit)
        if self._op_hook is not None:
            self._cached_op._register_op_hook(*self._op_hook)

    def _call_cached_op(self, *args: Any) -> Any:
        if self._cached_op is None:
            self._build_cache(*args)
        flat, structure = flatten(args, "input")
        if structure != self._in_structure:
            structure = without_trailing_none(structure)
            if structure != without_trailing_none(self._in_structure):
                raise ValueError(
                    f"invalid nesting of the arguments of HybridBlock '{self.name}': expected "
                    f"{self._in_structure} as in its first call, got {structure}"
                )
        flat = [arg for arg in flat if arg is not None]
        ctx = flat[0].context
        try:
            arrays = [
                flat[what] if is_input else what.data(ctx) for is_input, what in self._cached_inputs
            ]
        except DeferredInitializationError:
            self._finish_deferred(*args)
            return self._call_cached_op(*args)
        try:
            outputs = self._cached_op(*arrays, listed=True)  # type: ignore[misc]
        except MXTypeError as error:
            names = self._cached_graph[1].list_inputs()
            note_dtypes(error, dict(zip(names, arrays, strict=True)))
            raise
        if self._out_structure == 0:
            return outputs[0]
        if any(self._none_outputs):
            rest = iter(outputs)
            outputs = [None if none else next(rest) for none in self._none_outputs]
        return regroup(outputs, self._out_structure)[0]

    def forward(self, x: Any, *args: Any) -> Any:
        """Runs `hybrid_forward` on arrays or symbols, or the planned graph if hybridized.

        Raises
        ------
        rsnet.gluon.parameter.DeferredInitializationError
            The shape of a parameter cannot be decided.
        RuntimeError
            A parameter has no values, or none on the inputs' device.
        """
        ctx = context_of(x) or next(filter(None, map(context_of, args)), None)
        if ctx is None:
            if holds_symbol((x, *args)):
                return self._compose(x, *args)
            raise ValueError(
                f"{type(self).__name__} '{self.name}': invalid arguments: expected an NDArray or "
                f"a Symbol among them, got {', '.join(type(a).__name__ for a in (x, *args))}"
            )
        if self._active:
            return self._call_cached_op(x, *args)
        try:
            params = {name: param.data(ctx) for name, param in self._reg_params.items()}
        except DeferredInitializationError:
            self._finish_deferred(x, *args)
            params = {name: param.data(ctx) for name, param in self._reg_params.items()}
        try:
            return self.hybrid_forward(nd, x, *args, **params)
        except MXNetError as error:
            note_dtypes(error, {"x": x, **params})
            raise within(error, self) from None

    def hybrid_forward(self, F: Any, *args: Any, **kwargs: Any) -> Any:
        """Outputs from inputs: what a subclass defines, by functions of `F` (`nd` or `sym`)."""
        raise NotImplementedError(
            f"{type(self).__name__} '{self.name}' does not define hybrid_forward"
        )

    # ---- files and hooks -----------------------------------------------------------------------

    def export(
        self, path: str, epoch: int = 0, remove_amp_cast: bool = True
    ) -> tuple[str, str | None]:
        """Writes ``<path>-symbol.json`` and ``<path>-<epoch>.params``, for `SymbolBlock.imports`,
        `model.load_checkpoint` or MXNet.

        Raises
        ------
        RuntimeError
            The block was not hybridized and called before.

        Returns
        -------
        (str, str)
            The two files.
        """
        if not self._cached_graph:
            raise RuntimeError(
                f"export: invalid block '{self.name}' without a graph: expected one that was "
                "hybridized, and called after that"
            )
        return export_graph(
            self._cached_graph[1], self.collect_params(), path, epoch, remove_amp_cast
        )

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Calls ``callback(name, operator, array)`` with what every operator of the hybridized
        block computes (with `monitor_all` also with what it reads).
        """
        self._op_hook = (callback, monitor_all)
        if self._cached_op is not None:
            self._cached_op._register_op_hook(callback, monitor_all)

    def optimize_for(
        self,
        x: Any,
        *args: Any,
        backend: str | None = None,
        clear: bool = False,
        static_alloc: bool = False,
        static_shape: bool = False,
        **kwargs: Any,
    ) -> None:
        """Hybridizes, and plans the graph for these inputs: whatever backend is named, rsnet's own
        optimises it.

        Parameters
        ----------
        x, *args
            Inputs of `forward`.
        backend : str
            Any name.
        clear, **kwargs
            Accepted for compatibility.
        static_alloc, static_shape : bool
            As for `hybridize`.

        Raises
        ------
        ValueError
            No backend is named.
        """
        if backend is None:
            raise ValueError("optimize_for: invalid backend None: expected a name, such as 'rsnet'")
        self.hybridize(True, static_alloc=static_alloc, static_shape=static_shape)
        self(x, *args)
