"""`Block`: a part of a network, which owns parameters and smaller blocks.

`HybridBlock` (a block that can run as one planned graph) and `SymbolBlock` (one made from a symbol)
are in modules of their own; they can be imported from here too.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .. import ndarray as nd
from .._mxnet_names import module_getattr
from .._pytorch_names import HINTS
from ..base import add_foreign_names, shown
from ..context import Context
from ._loading import load_all, with_short_names
from ._scope import BlockScope
from .parameter import Parameter
from .parameter_dict import ParameterDict, brief, load_arrays
from .utils import HookHandle, indented

__all__ = ["Block"]


def _attached(hooks: OrderedDict[int, Any], hook: Callable[..., Any]) -> HookHandle:
    handle = HookHandle()
    handle.attach(hooks, hook)
    return handle


def _check_stored(
    source: str,
    arrays: Mapping[str, Any],
    params: Mapping[str, Parameter],
    missing: Sequence[str],
    allow_missing: bool,
    ignore_extra: bool,
) -> None:
    """Checks that `source` has the parameters of a block, and no others, before any is loaded."""
    if missing and not allow_missing:
        raise AssertionError(
            f"Parameter '{missing[0]}' is missing in {source}: expected all of the block's, got "
            f"{brief(arrays)}; allow_missing=True accepts this"
        )
    extra = [name for name in arrays if name not in params]
    if extra and not ignore_extra:
        raise ValueError(
            f"invalid Parameter '{extra[0]}' of {source}: expected one of the block's, which are "
            f"{brief(params)}; ignore_extra=True accepts this"
        )


class Block:
    """Base of all layers and networks.

    A subclass makes children and parameters in its constructor, as attributes, and defines
    `forward`.

    Parameters
    ----------
    prefix : str, optional
        Beginning of the names of its parameters and children; from its class if None.
    params : ParameterDict, optional
        Parameters to share, such as ``other.params`` or ``other.collect_params()``.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet.gluon import Block, nn
    >>> class Model(Block):
    ...     def __init__(self, **kwargs):
    ...         super().__init__(**kwargs)
    ...         with self.name_scope():
    ...             self.hidden = nn.Dense(4, in_units=3)
    ...     def forward(self, x):
    ...         return mx.nd.relu(self.hidden(x))
    >>> model = Model(prefix="model_")
    >>> model.initialize()
    >>> model(mx.nd.ones((2, 3))).shape
    (2, 4)
    >>> list(model.collect_params())
    ['model_dense0_weight', 'model_dense0_bias']
    """

    #: In a SymbolBlock, by the whole name of each parameter its name in files.
    _whole_names: Mapping[str, str] = MappingProxyType({})

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        self._check_arguments(prefix, params)
        self._empty_prefix = prefix == ""
        self._prefix, self._params = BlockScope.create(prefix, params, self._alias())
        self._name = self._prefix.removesuffix("_")
        self._scope = BlockScope(self)
        self._children: OrderedDict[str, Block] = OrderedDict()
        self._reg_params: dict[str, Parameter] = {}
        self._forward_hooks: OrderedDict[int, Any] = OrderedDict()
        self._forward_pre_hooks: OrderedDict[int, Any] = OrderedDict()

    def _check_arguments(self, prefix: Any, params: Any) -> None:
        """Refuses layers in the places of prefix and parameters."""
        layers = "; add layers by add(...)" if hasattr(self, "add") else ""
        for what, given, kind in (("prefix", prefix, str), ("params", params, ParameterDict)):
            if not (given is None or isinstance(given, kind)):
                raise TypeError(
                    f"{type(self).__name__}: invalid {what} {shown(given)}: expected a "
                    f"{kind.__name__}{layers if isinstance(given, Block) else ''}"
                )

    def __repr__(self) -> str:
        inside = "\n".join(
            f"  ({key}): {indented(repr(block), 2)}"
            for key, block in self.__dict__.items()
            if isinstance(block, Block)
        )
        return f"{type(self).__name__}(\n{inside}\n)"

    def __setattr__(self, name: str, value: Any) -> None:
        existing = self.__dict__.get(name)
        if isinstance(existing, (Parameter, Block)) and not isinstance(value, type(existing)):
            raise TypeError(
                f"invalid value of '{name}' in {type(self).__name__}: expected a "
                f"{type(existing).__name__} as before, got {type(value).__name__}"
            )
        if isinstance(value, (Block, Parameter)) and "_children" not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__}: expected super().__init__() before attribute '{name}'"
            )
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            if name in self._reg_params:
                raise AssertionError(
                    f"invalid parameter '{name}' of {type(self).__name__}, which has one: expected "
                    "another name (blocks share parameters by the argument 'params' of their "
                    "constructors)"
                )
            self._reg_params[name] = value
        super().__setattr__(name, value)

    def _alias(self) -> str:
        return type(self).__name__.lower()

    @property
    def prefix(self) -> str:
        """Beginning of the names of parameters and children."""
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without the ``_`` at its end."""
        return self._name

    def name_scope(self) -> BlockScope:
        """A scope in which children and their parameters are named after this block."""
        return self._scope

    @property
    def params(self) -> ParameterDict:
        """The block's own parameters, without those of its children."""
        return self._params

    # ---- parameters ----------------------------------------------------------------------------

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """The parameters of the block and all its children.

        Parameters
        ----------
        select : str, optional
            Regular expression that the names must match, such as ``".*weight|.*bias"``.
        """
        self._check_container_with_block()
        found = ParameterDict(self._params.prefix)
        try:
            matches = re.compile(select).match if select else lambda name: True
        except (re.error, TypeError) as error:
            expected = "a regular expression"
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"invalid select {shown(select)}: expected {expected} ({error})") from None
        chosen = {name: p for name, p in self.params.items() if matches(name)}
        found._params.update(chosen)
        for child in self._children.values():
            found.update(child.collect_params(select=select))
        return found

    def _check_container_with_block(self) -> None:
        """Warns of children in lists and dicts, whose parameters would not be found."""
        own = set(map(id, self._children.values()))

        def lost(data: Any) -> bool:
            if isinstance(data, dict):
                return any(map(lost, data.values()))
            if isinstance(data, (list, tuple)):
                return any(map(lost, data))
            return isinstance(data, Block) and id(data) not in own

        for key, value in self.__dict__.items():
            if isinstance(value, (list, tuple, dict)) and not key.startswith("_") and lost(value):
                warnings.warn(
                    f"'{type(self).__name__}.{key}' holds blocks that are not children, so their "
                    "parameters are not found: use nn.Sequential or nn.HybridSequential in place "
                    "of a list, or call register_child",
                    stacklevel=3,
                )

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """Parameters by their place: the attributes on the way to them, joined by dots."""
        prefix = f"{prefix}." if prefix else ""
        found = {prefix + key: param for key, param in self._reg_params.items()}
        for name, child in self._children.items():
            found.update(child._collect_params_with_prefix(prefix + name))
        return found

    def initialize(
        self,
        init: Any = None,
        ctx: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initialises the parameters of the block and its children.

        Parameters
        ----------
        init : Initializer or str, optional
            For parameters without an initializer of their own; `Uniform()` if None.
        ctx : Context or list of Context, optional
            Devices, each of which gets a copy.
        verbose : bool
            Log every parameter?
        force_reinit : bool
            Fill those again that have values?
        """
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def save_parameters(self, filename: str, deduplicate: bool = False) -> None:
        """Writes all parameters to a file, named by their place in the block.

        Parameters
        ----------
        filename : str
        deduplicate : bool
            Write a parameter that has several places only once?
        """
        params = self._collect_params_with_prefix()
        if deduplicate:
            first = {id(param): name for name, param in reversed(params.items())}
            params = {name: params[name] for name in params if first[id(params[name])] == name}
        arrays = {name: param._reduce() for name, param in params.items()}
        nd.save(os.fspath(filename), arrays)

    def save_params(self, filename: str) -> None:
        """`save_parameters` of old: named by the parameters' names without the block's prefix."""
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_parameters(
        self,
        filename: str,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Reads parameters that `save_parameters`, `export` or `collect_params().save` wrote.

        Parameters
        ----------
        filename : str
        ctx : Context or list of Context, optional
            Devices; where the parameters are if None.
        allow_missing : bool
            May parameters be missing in the file?
        ignore_extra : bool
            May the file have others?
        cast_dtype : bool
            Convert where dtypes differ?
        dtype_source : str
            'current': to the parameter's dtype; 'saved': the parameter takes the file's.

        Raises
        ------
        AssertionError
            A parameter is missing in the file, or has another shape or dtype there.
        ValueError
            The file has a parameter that is not in the block.
        """
        loaded = load_arrays(filename)
        params = self._collect_params_with_prefix()
        if not loaded and not params:
            return
        dotted = [any("." in name for name in names) for names in (loaded, params)]
        if not dotted[0] and (dotted[1] or not set(loaded) & set(params)):
            # Named by the parameters' names, with the block's prefix or without it.
            whole = all(name in self.collect_params() for name in loaded)
            if not whole and not (allow_missing and ignore_extra):
                self._check_any_fits(filename, loaded, params)
            self.collect_params().load_dict(
                loaded,
                ctx,
                allow_missing,
                ignore_extra,
                "" if whole else self.prefix,
                filename,
                cast_dtype,
                dtype_source,
            )
            return
        loaded = with_short_names(self, loaded)
        # A parameter may be in the file under one of several places.
        present = {id(params[name]) for name in loaded if name in params}
        missing = [name for name, p in params.items() if id(p) not in present]
        _check_stored(f"file '{filename}'", loaded, params, missing, allow_missing, ignore_extra)
        values = [(params[name], array) for name, array in loaded.items() if name in params]
        load_all(values, ctx, cast_dtype, dtype_source)

    def _check_any_fits(
        self, filename: str, loaded: Mapping[str, Any], params: Mapping[str, Parameter]
    ) -> None:
        """Refuses a file of which no name is one of a parameter, with any prefix."""
        names = self.collect_params()
        if loaded and not any(self.prefix + name in names for name in loaded):
            raise AssertionError(
                f"invalid file '{filename}', which is of another network: expected "
                f"{brief(params)}, got {brief(loaded)}"
            )

    def save(self, prefix: str) -> None:
        """Writes parameters and structure, for `load` into a network that is made in the same way.

        Parameters
        ----------
        prefix : str
            The files are ``<prefix>-model.params`` and ``<prefix>-model.json``, which also has the
            graphs of blocks that were hybridized and called.
        """
        from ._saved_model import save_model

        save_model(self, prefix)

    def load(self, prefix: str) -> None:
        """Reads what `save` wrote: parameters, which blocks are hybridized, and their graphs.

        Raises
        ------
        ValueError
            The files are of another network, or the structure is damaged.
        MXNetError
            The parameters are damaged.
        """
        from ._saved_model import load_model

        load_model(self, prefix)

    def load_params(self, filename: str, ctx: Any = None, **kwargs: Any) -> None:
        """`load_parameters`, by its old name."""
        self.load_parameters(filename, ctx, **kwargs)

    def load_dict(
        self,
        param_dict: dict[str, Any],
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Takes parameters from a dict of arrays, named as in `save_parameters`."""
        params = self._collect_params_with_prefix()
        param_dict = with_short_names(self, param_dict)
        missing = [name for name in params if name not in param_dict]
        _check_stored("'param_dict'", param_dict, params, missing, allow_missing, ignore_extra)
        values = [(params[name], array) for name, array in param_dict.items() if name in params]
        load_all(values, ctx, cast_dtype, dtype_source)

    # ---- children and hooks --------------------------------------------------------------------

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Adds a child; blocks assigned to attributes are added by themselves."""
        self._children[str(len(self._children)) if name is None else name] = block

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Calls ``hook(block, inputs)`` before each forward pass; returns a handle to detach it."""
        return _attached(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Calls ``hook(block, inputs, outputs)`` after each forward pass; returns a handle."""
        return _attached(self._forward_hooks, hook)

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Calls `callback` with what the operators of hybridized children compute."""
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Calls `fn` with every child, recursively, and the block itself; returns the block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridizes the children that are `HybridBlock`s."""
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    def cast(self, dtype: Any) -> None:
        """Converts the parameters of the block and its children to another dtype."""
        for child in self._children.values():
            child.cast(dtype)
        for param in self.params.values():
            param.cast(dtype)

    def reset_ctx(self, ctx: Context | list[Context]) -> None:
        """Moves all parameters to other devices."""
        self.collect_params().reset_ctx(ctx)

    def zero_grad(self) -> None:
        """Fills all gradients with 0."""
        self.collect_params().zero_grad()

    # ---- computing -----------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls hooks and `forward`."""
        if not (self._forward_pre_hooks or self._forward_hooks):
            return self.forward(*args, **kwargs)
        for hook in list(self._forward_pre_hooks.values()):
            hook(self, args)
        out = self.forward(*args, **kwargs)
        for hook in list(self._forward_hooks.values()):
            hook(self, args, out)
        return out

    def forward(self, *args: Any) -> Any:
        """Outputs from inputs: what a subclass defines."""
        raise NotImplementedError(f"{type(self).__name__} '{self.name}' does not define forward")

    def summary(self, *inputs: Any) -> None:
        """Prints the layers with their output shapes and parameters for these inputs.

        Raises
        ------
        AssertionError
            A block is hybridized: then its layers do not run one by one.
        """
        from ._summary import print_summary

        print_summary(self, inputs)


class _NotMade:
    """An attribute that the constructor makes; objects that have it never get here."""

    def __get__(self, block: object, kind: type) -> _NotMade:
        if block is None:
            return self
        raise AttributeError(f"{kind.__name__}: expected super().__init__() in its constructor")


for _name in ("_children", "_forward_hooks", "_forward_pre_hooks", "_params", "_scope"):
    setattr(Block, _name, _NotMade())
add_foreign_names(Block, "Block", HINTS["Block"])
_missing = module_getattr(__name__)


def __getattr__(name: str) -> object:
    # These modules import this one.
    if name == "HybridBlock":
        from .hybrid_block import HybridBlock

        return HybridBlock
    if name == "SymbolBlock":
        from .symbol_block import SymbolBlock

        return SymbolBlock
    return _missing(name)
