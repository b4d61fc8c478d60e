"""`Symbol`: an expression that can be inferred, differentiated, planned and bound.

The core holds the graph. This module converts Python arguments and adds operators, fluent methods
and the two ways to bind.
"""

from __future__ import annotations

import builtins
import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _core, attribute
from ..base import MXNetError, NotImplementedForSymbol
from ..util import is_np_shape
from .infer import dtype_or_none, from_core_shape, to_core_shape

__all__ = ["Group", "Symbol", "Variable", "fromjson", "load", "load_json", "var"]


class Symbol:
    """One or several outputs of a graph, made by `Variable` and the functions of `rsnet.sym`.

    Examples
    --------
    >>> import rsnet as mx
    >>> a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    >>> (a * b + b).list_arguments()
    ['a', 'b']
    """

    __slots__ = ("_handle", "__weakref__")
    # NumPy arrays and scalars defer to symbols in arithmetic.
    __array_priority__ = 1000.0

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    # ---- composition ---------------------------------------------------------------------------

    def __call__(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> Symbol:
        """A copy of this symbol with its variables replaced.

        Parameters
        ----------
        *args : Symbol
            One for each argument, in MXNet's order: depth first from the last input. So the
            positions of `v1 - exp(v2)` are `v2`, `v1`; use keywords where that surprises.
        name : str, optional
            New name of the head.
        **kwargs : Symbol
            Replacements by the name of the variable; the others stay.

        Examples
        --------
        >>> import rsnet as mx
        >>> v1, v2, a, b = map(mx.sym.Variable, ("v1", "v2", "a", "b"))
        >>> (v1 - mx.sym.exp(v2))(a, b).list_arguments()
        ['b', 'a']
        >>> (v1 - mx.sym.exp(v2))(v1=a, v2=b).list_arguments()
        ['a', 'b']
        """
        result = self.__copy__()
        result._compose(*args, name=name, **kwargs)
        return result

    def _compose(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> None:
        if args and kwargs:
            raise TypeError(
                "compose only accept input Symbols either as positional or keyword arguments, "
                "not both"
            )
        for value in (*args, *kwargs.values()):
            if not isinstance(value, Symbol):
                raise TypeError(f"Compose expect `Symbol` as arguments, got {type(value).__name__}")
        self._handle = self._handle.compose(
            [a._handle for a in args], {k: v._handle for k, v in kwargs.items()}, name
        )

    # ---- introspection -------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """Name of the head node; None for a group of different nodes."""
        return self._handle.name

    def __repr__(self) -> str:
        name = self.name
        if name is None:
            return f"<{type(self).__name__} group [{', '.join(i.name or '' for i in self)}]>"
        return f"<{type(self).__name__} {name}>"

    def __len__(self) -> int:
        return self._handle.num_outputs

    num_outputs = property(__len__, doc="Number of outputs.")

    def __iter__(self) -> Iterator[Symbol]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int | str | builtins.slice) -> Symbol:
        """One output by position or by output name; a slice gives a group."""
        if isinstance(index, builtins.slice):
            picked = [self[i] for i in range(*index.indices(len(self)))]
            if not picked:
                raise IndexError("the slice of the symbol is empty")
            return Group(picked)
        if isinstance(index, str):
            found = [i for i, output in enumerate(self.list_outputs()) if output == index]
            if len(found) != 1:
                what = (
                    "Cannot find output that matches name"
                    if not found
                    else "There are multiple outputs with name"
                )
                raise ValueError(f'{what} "{index}"; the outputs are {self.list_outputs()}')
            index = found[0]
        if not isinstance(index, (int, np.integer)) or isinstance(index, bool):
            raise TypeError(
                f"Symbol only support integer index to fetch i-th output, got {index!r}"
            )
        if index >= len(self):
            raise IndexError(f"index {index} is beyond the {len(self)} outputs of the symbol")
        if index < 0:
            raise MXNetError(
                f"output index {index} is negative; the symbol has {len(self)} outputs"
            )
        return Symbol(self._handle.output(int(index)))

    def list_arguments(self) -> list[str]:
        """Names of all variables that are not auxiliary states, in depth-first order."""
        return self._handle.list_arguments()

    def list_auxiliary_states(self) -> list[str]:
        """Names of the variables that operators modify, such as moving averages, in depth-first
        order.
        """
        return self._handle.list_auxiliary_states()

    def list_inputs(self) -> list[str]:
        """Names of all variables in depth-first order."""
        return self._handle.list_inputs()

    def list_outputs(self) -> list[str]:
        """Names of the outputs: `<node>_output`, or a variable's name."""
        return self._handle.list_outputs()

    def get_internals(self) -> Symbol:
        """A group of the visible outputs of every node in depth-first order."""
        return Symbol(self._handle.internals())

    def get_children(self) -> Symbol | None:
        """A group of the inputs of the head nodes; None for a variable."""
        handle = self._handle.children()
        return None if handle is None else Symbol(handle)

    def attr(self, key: str) -> str | None:
        """An attribute of the head node, or None."""
        return self._handle.attr(key)

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """All attributes of the head node."""
        if recursive:
            raise DeprecationWarning(
                "Symbol.list_attr with recursive=True is deprecated, use attr_dict"
            )
        return self._handle.list_attr()

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Attributes of all nodes that have any, by node name."""
        return self._handle.attr_dict()

    def _set_attr(self, **kwargs: str) -> None:
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ValueError(
                    f"Set Attr only accepts string values; '{key}' is a {type(value).__name__}"
                )
        self._handle.set_attr(kwargs)

    def __copy__(self) -> Symbol:
        return Symbol(self._handle.copy())

    def __deepcopy__(self, memo: object) -> Symbol:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (load_json, (self.tojson(remove_amp_cast=False),))

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The symbol as JSON in MXNet's current format. `remove_amp_cast` leaves out the casts of
        mixed precision (`amp_cast`, `amp_multicast`).
        """
        return self._handle.tojson(is_np_shape(), bool(remove_amp_cast))

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Writes `tojson()` to a file."""
        with open(fname, "w", encoding="utf-8", newline="") as out:
            out.write(self.tojson(remove_amp_cast))

    def debug_str(self) -> str:
        """The graph as text."""
        return self._handle.debug_str()

    # ---- inference -----------------------------------------------------------------------------

    def infer_shape(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Shapes of all arguments, outputs and auxiliary states from those of some arguments.

        Parameters
        ----------
        *args : tuple or None
            Shapes in the order of `list_arguments()`, None where unknown.
        **kwargs : tuple
            Shapes by argument name. 0 is an unknown extent, `()` an unknown rank (with np_shape: -1
            and None).

        Returns
        -------
        (list, list, list) or (None, None, None)
            The latter, with a warning, if a shape stays unknown.

        Raises
        ------
        MXNetError
            Shapes contradict each other; the message shows the node, its inputs and the expected
            shape.
        """
        try:
            *shapes, complete = self._infer_shape(args, kwargs)
        except MXNetError:
            print("infer_shape error. Arguments:")
            for i, shape in enumerate(args):
                print(f"  #{i}: {shape}")
            for key, shape in kwargs.items():
                print(f"  {key}: {shape}")
            raise
        if complete:
            return tuple(shapes)  # type: ignore[return-value]
        self._warn_unknown(shapes[0])
        return None, None, None

    def infer_shape_partial(
        self, *args: Any, **kwargs: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `infer_shape`, but unknown shapes are no error: an unknown rank is `()`, with np_shape
        None.
        """
        return tuple(self._infer_shape(args, kwargs)[:3])  # type: ignore[return-value]

    def _infer_shape(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], list[Any], list[Any], bool]:
        names, values = self._keyed(args, kwargs)
        for key, value in zip(names, values, strict=True):
            if not (isinstance(value, tuple) or (value is None and (args or is_np_shape()))):
                raise TypeError(
                    f"Arguments need to be shapes (tuple), but argument {key} is {type(value)}."
                )
        known = [to_core_shape(v) for v in values]
        *found, complete = self._handle.infer_shape(names, known, is_np_shape())
        return (*([from_core_shape(s) for s in group] for group in found), complete)

    def _warn_unknown(self, arg_shapes: list[Any]) -> None:
        unknown = [
            f"{name}: {shape}"
            for name, shape in zip(self.list_arguments(), arg_shapes, strict=True)
            if to_core_shape(shape) is None or -1 in to_core_shape(shape)  # type: ignore[operator]
        ]
        shown = "\n\t".join(unknown[:10] + ["..."] * (len(unknown) > 10))
        warnings.warn(
            "Cannot decide shape for the following arguments (0s in shape means unknown "
            f"dimensions). Consider providing them as input:\n\t{shown}",
            stacklevel=3,
        )

    def infer_type(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """NumPy types of all arguments, outputs and auxiliary states from those of some arguments;
        `(None, None, None)` with a warning if a type stays unknown.
        """
        try:
            *types, complete = self._infer_type(args, kwargs)
        except MXNetError:
            print("infer_type error. Arguments:")
            for key, value in [*enumerate(args), *kwargs.items()]:
                print(f"  {key}: {value}")
            raise
        if complete:
            return tuple(types)  # type: ignore[return-value]
        unknown = [n for n, t in zip(self.list_arguments(), types[0], strict=True) if t is None]
        warnings.warn(
            "Cannot decide type for the following arguments. Consider providing them as input:\n\t"
            + "\n\t".join(unknown[:10]),
            stacklevel=2,
        )
        return None, None, None

    def infer_type_partial(
        self, *args: Any, **kwargs: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `infer_type`, but returns None for each unknown type."""
        return tuple(self._infer_type(args, kwargs)[:3])  # type: ignore[return-value]

    def _infer_type(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], list[Any], list[Any], bool]:
        names, values = self._keyed(args, kwargs)
        known = [None if v is None else np.dtype(v).name for v in values]
        *found, complete = self._handle.infer_type(names, known)
        return (*([dtype_or_none(t) for t in group] for group in found), complete)

    def _keyed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """Names and values of positional or keyword arguments."""
        if args and kwargs:
            raise ValueError(
                "Can only specify known argument shapes either by positional or kwargs way."
            )
        if not args:
            return list(kwargs), list(kwargs.values())
        expected = self.list_arguments()
        if len(args) > len(expected):
            raise ValueError(
                f"{len(args)} positional values for the {len(expected)} arguments {expected}"
            )
        return expected[: len(args)], list(args)

    # ---- plans ---------------------------------------------------------------------------------

    def graph(self) -> Any:
        """The static graph as data: nodes, arg_nodes, heads, and functions on them."""
        from .graph import StaticGraph

        return StaticGraph(self._handle.graph())

    def memory_plan(
        self,
        grad_req: Any = "write",
        type_dict: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        group2ctx: dict[str, Any] | None = None,
        **shapes: tuple[int, ...],
    ) -> Any:
        """The plan that binding would use, without binding or allocating anything.

        Parameters
        ----------
        grad_req, type_dict, group2ctx, **shapes
            As for `simple_bind`, on the current context.
        memory_limit : int or str, optional
            Maximum bytes of internal entries on all devices: an integer, `"2GB"` (2e9) or `"2GiB"`
            (2**31). Entries are recomputed as far as the limit requires, in addition to those with
            the attribute ``force_mirroring='True'`` (`AttrScope` or ``attr=``).

        Returns
        -------
        MemoryPlan
            `arena_bytes`, `output_bytes`, `lower_bound_bytes`, `no_sharing_bytes`,
            `recomputed_nodes`, `entries`; `str()` gives a table and `draw(path)` a picture.
        """
        from .bind import plan_of_symbol

        return plan_of_symbol(
            "memory_plan", self, grad_req, type_dict, memory_limit, group2ctx, shapes
        )

    def dump_passes(
        self,
        grad_req: Any = "write",
        type_dict: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        group2ctx: dict[str, Any] | None = None,
        **shapes: tuple[int, ...],
    ) -> dict[str, str]:
        """The graph after every pass that changes it, as text, by the name of the pass.

        Parameters
        ----------
        grad_req, type_dict, memory_limit, group2ctx, **shapes
            As for `memory_plan`.

        Returns
        -------
        dict of str to str
            In the order of the passes; one line per node: number, operator, name, inputs as
            `node:output`, and device.

        Examples
        --------
        >>> import rsnet as mx
        >>> x = mx.sym.Variable("x")
        >>> dumps = (mx.sym.exp(x) + mx.sym.exp(x)).dump_passes(x=(2,))
        >>> list(dumps)
        ['composition', 'merge_common', 'gradient', 'devices', 'accumulate']
        >>> dumps["merge_common"].count("exp")
        2
        """
        from .bind import plan_of_symbol

        plan = plan_of_symbol(
            "dump_passes", self, grad_req, type_dict, memory_limit, group2ctx, shapes
        )
        return dict(plan._handle.dumps())

    # ---- binding -------------------------------------------------------------------------------

    def simple_bind(
        self,
        ctx: Any,
        grad_req: Any = "write",
        type_dict: dict[str, Any] | None = None,
        stype_dict: dict[str, str] | None = None,
        group2ctx: dict[str, Any] | None = None,
        shared_arg_names: list[str] | None = None,
        shared_exec: Any = None,
        shared_buffer: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Infers shapes, makes zero-filled arrays and binds.

        Parameters
        ----------
        ctx : Context
            Default device.
        grad_req : str, list or dict
            `"null"`, `"write"` or `"add"`: for all arguments, in their order, or by name (missing:
            null).
        type_dict : dict of str to dtype, optional
            Known dtypes; an unknown dtype is float32.
        group2ctx : dict of str to Context, optional
            Devices of the groups named by the attribute `ctx_group`.
        shared_arg_names, shared_exec, shared_buffer
            Arguments to take from another executor, an executor whose memory to share, and a dict
            of arrays to reuse and add to.
        memory_limit : int or str, optional
            Maximum bytes of internal entries, see `memory_plan`.
        **kwargs : tuple
            Shapes by argument name.

        Returns
        -------
        Executor
        """
        from .bind import simple_bind

        return simple_bind(
            self,
            ctx,
            grad_req,
            type_dict,
            stype_dict,
            group2ctx,
            shared_arg_names,
            shared_exec,
            shared_buffer,
            memory_limit,
            kwargs,
        )

    def bind(
        self,
        ctx: Any,
        args: Any,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
        group2ctx: dict[str, Any] | None = None,
        shared_exec: Any = None,
        memory_limit: int | str | None = None,
    ) -> Any:
        """Binds to given arrays.

        Parameters
        ----------
        ctx : Context
            Default device.
        args, args_grad, aux_states : list or dict of NDArray
            Arrays in the order of the arguments, or by name; gradients may be missing (no
            gradient).
        grad_req : str, list or dict
            As for `simple_bind`.
        shared_exec : Executor, optional
            Executor whose memory to share.

        Returns
        -------
        Executor
        """
        from .bind import bind

        return bind(
            self, ctx, args, args_grad, grad_req, aux_states, group2ctx, shared_exec, memory_limit
        )

    def eval(self, ctx: Any = None, **kwargs: Any) -> list[Any]:
        """Binds to the given arrays, runs forward and returns the outputs.

        Parameters
        ----------
        ctx : Context, optional
            Device; the current one by default.
        **kwargs : NDArray
            Arguments and auxiliary states by name.

        Returns
        -------
        list of NDArray

        Raises
        ------
        ValueError
            An argument or auxiliary state is missing.
        """
        from ..context import current_context

        aux = {name: kwargs[name] for name in self.list_auxiliary_states() if name in kwargs}
        return self.bind(ctx or current_context(), kwargs, aux_states=aux or None).forward()

    def grad(self, wrt: list[str]) -> Symbol:
        """The gradients of the outputs with respect to the arguments `wrt`, as a symbol.

        The gradient of output `i` is the variable `_head_grad_<i>`. Its shape and dtype are those
        of the output, so they need not be given when the symbol is bound.

        Parameters
        ----------
        wrt : list of str
            Names of arguments.

        Examples
        --------
        >>> import rsnet as mx
        >>> x = mx.sym.Variable("x")
        >>> exe = mx.sym.square(x).grad(["x"]).simple_bind(mx.cpu(), "null", x=(2,))
        >>> exe.arg_dict["_head_grad_0"].shape
        (2,)
        >>> exe.forward(x=mx.nd.array([1, 2]), _head_grad_0=mx.nd.ones(2))[0].asnumpy().tolist()
        [2.0, 4.0]
        """
        return Symbol(self._handle.grad(list(wrt)))

    # ---- operators -----------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol(self.__bool__, "bool")

    def __neg__(self) -> Symbol:
        return self * -1.0  # type: ignore[operator, return-value]

    def __abs__(self) -> Symbol:
        return self.abs()

    __hash__ = object.__hash__


def Variable(
    name: str,
    attr: dict[str, str] | None = None,
    shape: Any = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    stype: Any = None,
    **kwargs: str,
) -> Symbol:
    """A variable: an input, parameter or auxiliary state.

    Parameters
    ----------
    name : str
        Its name.
    attr : dict of str to str, optional
        Attributes.
    shape, dtype : optional
        Used by inference unless a value is given for the variable there.
    lr_mult, wd_mult : float, optional
        Multipliers of learning rate and weight decay.
    init : Initializer or str, optional
        Initializer, or its `dumps()`.
    **kwargs : str
        Further attributes; their names must have the form `__x__`.

    Returns
    -------
    Symbol

    Raises
    ------
    TypeError
        The name is not a string.
    ValueError
        A keyword is not of the form `__x__`.
    """
    if not isinstance(name, str):
        raise TypeError("Expect a string for variable `name`")
    attrs = dict(attr or {})
    for key, value in attrs.items():
        if not isinstance(value, str):
            raise ValueError(
                f"Attributes need to be string: attribute '{key}' of variable '{name}'"
            )
    if shape is not None:
        attrs["__shape__"] = str(tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))
    if lr_mult is not None:
        attrs["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        attrs["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        attrs["__dtype__"] = str(_core.dtype_flag(np.dtype(dtype).name))
    if init is not None:
        attrs["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        flags = {"default": 0, "row_sparse": 1, "csr": 2}
        attrs["__storage_type__"] = str(flags[stype] if isinstance(stype, str) else stype)
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise ValueError(
                f"Attribute name={key} is not supported. Additional attributes must start and "
                f"end with "
                "double underscores, e.g, __yourattr__"
            )
        attrs[key] = str(value)
    return Symbol(_core.SymbolHandle.variable(name, attribute.current().get(attrs)))


var = Variable


def Group(symbols: Any) -> Symbol:
    """One symbol with the outputs of several.

    Raises
    ------
    TypeError
        The list is empty, or an item is not a symbol.
    """
    symbols = list(symbols)
    if not symbols or not all(isinstance(s, Symbol) for s in symbols):
        raise TypeError("Expected a list of symbols as input")
    return Symbol(_core.SymbolHandle.group([s._handle for s in symbols]))


def load_json(json_str: str, allow_unknown: bool = False) -> Any:
    """A symbol from JSON of any MXNet version up to 1.9.

    Parameters
    ----------
    json_str : str
        What `Symbol.tojson` returns; or a JSON list of such objects, which gives a list of symbols.
    allow_unknown : bool
        Load nodes of operators that do not exist with the inputs and outputs that the file gives
        them: the symbol can be listed, cut and saved; inferring its shapes and binding it fail. A
        ``Custom`` node whose class is not registered always loads so.

    Raises
    ------
    MXNetError
        The text is not such JSON, fields are missing or unknown, or operators do not exist (all are
        listed with their nodes).

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.sym.load_json(mx.sym.relu(mx.sym.Variable("x"), name="y").tojson()).list_outputs()
    ['y_output']
    """
    if not isinstance(json_str, str):
        raise TypeError("fname required to be string")
    if re.match(r"\s*\[\s*\{", json_str):
        try:
            symbols = json.loads(json_str)
        except (ValueError, RecursionError) as error:
            raise MXNetError(f"the symbol file is not valid JSON: {error}") from None
        return [load_json(json.dumps(symbol), allow_unknown) for symbol in symbols]
    loaded = _core.SymbolHandle.from_json(json_str, is_np_shape(), bool(allow_unknown))
    handle, version, upgraded, newer = loaded
    written = f"v{version // 10000}.{version // 100 % 100}.{version % 100}"
    if upgraded or newer:
        import logging  # slow to import, and not needed for current files
    if upgraded:
        logging.info(
            "Loading symbol saved by previous version %s. Attempting to upgrade...", written
        )
        logging.info("Symbol successfully upgraded!")
    if newer:
        logging.warning("Loading symbol saved by the newer version %s", written)
    return Symbol(handle)


fromjson = load_json


def load(fname: str, allow_unknown: bool = False) -> Any:
    """A symbol from a file that `Symbol.save` wrote; a list of symbols if the file holds a list.

    `allow_unknown` is that of `load_json`.
    """
    if not isinstance(fname, str):
        raise TypeError("fname need to be string")
    with open(fname, encoding="utf-8") as source:
        return load_json(source.read(), allow_unknown)
