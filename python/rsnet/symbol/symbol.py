"""`Symbol`: an expression to be inferred, differentiated, planned and bound.

The graph itself lives in the core; this face turns Python arguments into the core's and adds the
operators, the fluent methods and the two ways to bind.
"""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _core, attribute
from ..base import MXNetError, NotImplementedForSymbol
from ..util import is_np_shape
from .infer import dtype_or_none, from_core_shape, to_core_shape

__all__ = ["Group", "Symbol", "Variable", "fromjson", "load", "load_json", "var"]

_NUMBERS = (int, float, bool, np.number, np.bool_)


class Symbol:
    """One or several outputs of a graph. Made by `Variable` and by the functions of `rsnet.sym`.

    Examples
    --------
    >>> import rsnet as mx
    >>> a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    >>> (a * b + b).list_arguments()
    ['a', 'b']
    """

    __slots__ = ("_handle", "__weakref__")
    # NumPy arrays and scalars leave arithmetic with symbols to us.
    __array_priority__ = 1000.0

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    # ---- composition ---------------------------------------------------------------------------

    def __call__(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> Symbol:
        """A copy of this symbol with its variables replaced: by position in depth-first order, or by
        name; `name` renames the head."""
        result = self.__copy__()
        result._compose(*args, name=name, **kwargs)
        return result

    def _compose(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> None:
        if args and kwargs:
            raise TypeError(
                "compose only accept input Symbols either as positional or keyword arguments, not both"
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
        """Names of the variables that operators modify (moving averages, say), in depth-first order."""
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
        self._handle = self._handle.set_attr(kwargs)

    def __copy__(self) -> Symbol:
        return Symbol(self._handle.copy())

    def __deepcopy__(self, memo: object) -> Symbol:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (load_json, (self.tojson(remove_amp_cast=False),))

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The symbol as JSON in MXNet's current format."""
        return self._handle.tojson(remove_amp_cast)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Writes `tojson()` to a file."""
        with open(fname, "w", encoding="utf-8", newline="") as out:
            out.write(self.tojson(remove_amp_cast))

    def debug_str(self) -> str:
        """The graph as readable text."""
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
            The latter, with a warning, if something stays unknown.

        Raises
        ------
        MXNetError
            Shapes that contradict each other; the text shows the node, its inputs and what was expected.
        """
        try:
            *shapes, complete = self._infer_shape(False, args, kwargs)
        except MXNetError:
            print("infer_shape error. Arguments:")
            for i, shape in enumerate(args):
                print(f"  #{i}: {shape}")
            for key, shape in kwargs.items():
                print(f"  {key}: {shape}")
            raise
        if complete:
            return tuple(shapes)
        self._warn_unknown(shapes[0])
        return None, None, None

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> tuple[list, list, list]:
        """As `infer_shape`, giving what is known, `()` (with np_shape: None) for unknown ranks."""
        return tuple(self._infer_shape(True, args, kwargs)[:3])

    def _infer_shape(
        self, partial: bool, args: tuple, kwargs: dict
    ) -> tuple[list, list, list, bool]:
        names, values = self._keyed(args, kwargs)
        for key, value in zip(names if kwargs else range(len(values)), values):
            if not (isinstance(value, tuple) or value is None and (args or is_np_shape())):
                raise TypeError(
                    f"Arguments need to be shapes (tuple), but argument {key} is {type(value)}."
                )
        known = [to_core_shape(v) for v in values]
        *found, complete = self._handle.infer_shape(names, known, partial)
        return (*([from_core_shape(s) for s in group] for group in found), complete)

    def _warn_unknown(self, arg_shapes: list) -> None:
        unknown = [
            f"{name}: {shape}"
            for name, shape in zip(self.list_arguments(), arg_shapes)
            if to_core_shape(shape) is None or -1 in to_core_shape(shape)
        ]
        shown = "\n\t".join(unknown[:10] + ["..."] * (len(unknown) > 10))
        warnings.warn(
            "Cannot decide shape for the following arguments (0s in shape means unknown "
            f"dimensions). Consider providing them as input:\n\t{shown}",
            stacklevel=3,
        )

    def infer_type(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """NumPy types of all arguments, outputs and auxiliary states from those of some arguments;
        `(None, None, None)` with a warning if something stays unknown."""
        try:
            *types, complete = self._infer_type(False, args, kwargs)
        except MXNetError:
            print("infer_type error. Arguments:")
            for key, value in [*enumerate(args), *kwargs.items()]:
                print(f"  {key}: {value}")
            raise
        if complete:
            return tuple(types)
        unknown = [n for n, t in zip(self.list_arguments(), types[0]) if t is None]
        warnings.warn(
            "Cannot decide type for the following arguments. Consider providing them as input:\n\t"
            + "\n\t".join(unknown[:10]),
            stacklevel=2,
        )
        return None, None, None

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> tuple[list, list, list]:
        """As `infer_type`, giving None where the type is unknown."""
        return tuple(self._infer_type(True, args, kwargs)[:3])

    def _infer_type(
        self, partial: bool, args: tuple, kwargs: dict
    ) -> tuple[list, list, list, bool]:
        names, values = self._keyed(args, kwargs)
        known = [None if v is None else np.dtype(v).name for v in values]
        *found, complete = self._handle.infer_type(names, known, partial)
        return (*([dtype_or_none(t) for t in group] for group in found), complete)

    def _keyed(self, args: tuple, kwargs: dict) -> tuple[list[str] | None, list]:
        """Names (None: by position) and values of the two ways to give knowledge."""
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
        return None, list(args)

    # ---- plans ---------------------------------------------------------------------------------

    def graph(self) -> Any:
        """The static graph as data: nodes, arg_nodes, heads, and functions on them."""
        return self._handle.graph()

    def memory_plan(
        self,
        grad_req: Any = "write",
        type_dict: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        **shapes: tuple[int, ...],
    ) -> Any:
        """The plan that binding would use, without binding or allocating anything.

        Parameters
        ----------
        grad_req, type_dict, **shapes
            As for `simple_bind`.
        memory_limit : int or str, optional
            Most bytes of internal entries: an integer, `"2GB"` (2e9) or `"2GiB"` (2**31). Entries are
            recomputed as far as this needs.

        Returns
        -------
        MemoryPlan
            `arena_bytes`, `lower_bound_bytes`, `no_sharing_bytes`, `recomputed_nodes`, `entries`;
            `str()` gives a table and `draw(path)` a picture.
        """
        from ..executor import plan_of_symbol

        return plan_of_symbol(self, grad_req, type_dict, memory_limit, shapes)

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
            `"null"`, `"write"` or `"add"`: for all arguments, in their order, or by name (missing: null).
        type_dict : dict of str to dtype, optional
            Known dtypes; float32 where nothing is known.
        group2ctx : dict of str to Context, optional
            Devices of the groups named by the attribute `ctx_group`.
        shared_arg_names, shared_exec, shared_buffer
            Arguments to take from another executor, an executor whose memory to share, and a dict of
            arrays to reuse and add to.
        memory_limit : int or str, optional
            Bound on the bytes of internal entries, see `memory_plan`.
        **kwargs : tuple
            Shapes by argument name.

        Returns
        -------
        Executor
        """
        from ..executor import simple_bind

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
            Arrays in the order of the arguments, or by name; gradients may be missing (no gradient).
        grad_req : str, list or dict
            As for `simple_bind`.
        shared_exec : Executor, optional
            Executor whose memory to share.

        Returns
        -------
        Executor
        """
        from ..executor import bind

        return bind(
            self, ctx, args, args_grad, grad_req, aux_states, group2ctx, shared_exec, memory_limit
        )

    def eval(self, ctx: Any = None, **kwargs: Any) -> list[Any]:
        """Binds to the given arrays, runs forward and returns the outputs."""
        from ..context import current_context

        return self.bind(ctx or current_context(), kwargs).forward()

    def grad(self, wrt: list[str]) -> Symbol:
        """The gradients of the outputs with respect to the arguments `wrt`, as a symbol whose head
        gradients are variables named `<node>_<index>_grad`."""
        return Symbol(self._handle.grad(list(wrt)))

    # ---- operators -----------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol(self.__bool__, "bool")

    def __neg__(self) -> Symbol:
        return self * -1.0

    def __abs__(self) -> Symbol:
        return self.abs()

    __hash__ = object.__hash__


def _binary(method: str, op: str, scalar_op: str) -> None:
    """Adds one arithmetic or comparison method: element-wise with a symbol or a number."""

    def run(self: Symbol, other: Any) -> Symbol:
        if isinstance(other, Symbol):
            return _apply(op, [self, other])
        if isinstance(other, _NUMBERS):
            return _apply(scalar_op, [self], scalar=other)
        raise TypeError(f"type {type(other).__name__} not supported by Symbol.{method}")

    run.__name__ = run.__qualname__ = method
    setattr(Symbol, method, run)


def _apply(op: str, inputs: list[Symbol], **params: Any) -> Symbol:
    from .register import create

    return create(op, op.lower(), inputs, {}, params)


for _method, _op, _scalar in [
    ("__add__", "_Plus", "_PlusScalar"),
    ("__radd__", "_Plus", "_PlusScalar"),
    ("__sub__", "_Minus", "_MinusScalar"),
    ("__rsub__", "_Minus", "_RMinusScalar"),
    ("__mul__", "_Mul", "_MulScalar"),
    ("__rmul__", "_Mul", "_MulScalar"),
    ("__truediv__", "_Div", "_DivScalar"),
    ("__rtruediv__", "_Div", "_RDivScalar"),
    ("__mod__", "_Mod", "_ModScalar"),
    ("__rmod__", "_Mod", "_RModScalar"),
    ("__pow__", "_Power", "_PowerScalar"),
    ("__rpow__", "_Power", "_RPowerScalar"),
    ("__eq__", "_equal", "_equal_scalar"),
    ("__ne__", "_not_equal", "_not_equal_scalar"),
    ("__gt__", "_greater", "_greater_scalar"),
    ("__ge__", "_greater_equal", "_greater_equal_scalar"),
    ("__lt__", "_lesser", "_lesser_scalar"),
    ("__le__", "_lesser_equal", "_lesser_equal_scalar"),
]:
    _binary(_method, _op, _scalar)


def _refuse(method: str) -> None:
    """Adds a method of arrays that symbols cannot have."""

    def run(self: Symbol, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedForSymbol(run, method)

    run.__name__ = run.__qualname__ = method
    setattr(Symbol, method, run)


for _method in [
    "__iadd__", "__isub__", "__imul__", "__itruediv__", "__imod__", "__ipow__",
    "wait_to_read", "asnumpy", "asscalar", "copy", "as_in_context", "detach", "backward",
]:  # fmt: skip
    _refuse(_method)

_FLUENT = """abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort
broadcast_axes broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space diag exp
expand_dims expm1 fix flatten flip floor log log10 log1p log2 log_softmax max mean min nanprod nansum
norm one_hot ones_like pad pick prod radians rcbrt reciprocal relu repeat reshape_like rint round rsqrt
shape_array sigmoid sign sin sinh size_array slice slice_axis slice_like softmax softmin sort
space_to_depth split split_v2 sqrt square squeeze sum swapaxes take tan tanh tile topk transpose trunc
zeros_like""".split()  # noqa: SIM905


def _fluent(method: str) -> None:
    """Adds `x.method(...)` for `sym.method(x, ...)`."""

    def run(self: Symbol, *args: Any, **kwargs: Any) -> Symbol:
        from . import register

        return register.function(method)(self, *args, **kwargs)

    run.__name__ = run.__qualname__ = method
    run.__doc__ = f"`sym.{method}` of this symbol."
    setattr(Symbol, method, run)


for _method in _FLUENT:
    _fluent(_method)


def _reshape(self: Symbol, *shape: Any, **kwargs: Any) -> Symbol:
    """`sym.reshape` of this symbol; the shape as a tuple or as several integers."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    return _apply("Reshape", [self], **({"shape": shape} if shape else {}), **kwargs)


def _astype(self: Symbol, dtype: Any, **kwargs: Any) -> Symbol:
    """`sym.cast` of this symbol."""
    return _apply("Cast", [self], dtype=dtype, **kwargs)


Symbol.reshape = _reshape  # type: ignore[attr-defined]
Symbol.astype = _astype  # type: ignore[attr-defined]


def Variable(  # noqa: N802
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
        Used by inference when nothing else is said about the variable.
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
        A keyword that does not have the form `__x__`.
    """
    if not isinstance(name, str):
        raise TypeError("Expect a string for variable `name`")
    attrs = dict(attribute.current().get(attr))
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
                f"Attribute name={key} is not supported. Additional attributes must start and end with "
                "double underscores, e.g, __yourattr__"
            )
        attrs[key] = str(value)
    return Symbol(_core.SymbolHandle.variable(name, attrs))


var = Variable


def Group(symbols: Any) -> Symbol:  # noqa: N802
    """One symbol with the outputs of several.

    Raises
    ------
    TypeError
        An empty list, or something in it that is no symbol.
    """
    symbols = list(symbols)
    if not symbols or not all(isinstance(s, Symbol) for s in symbols):
        raise TypeError("Expected a list of symbols as input")
    return Symbol(_core.SymbolHandle.group([s._handle for s in symbols]))


def load_json(json_str: str) -> Symbol:
    """A symbol from JSON, of any version that MXNet up to 1.9 wrote.

    Raises
    ------
    MXNetError
        Text that is no such JSON; missing or unknown fields; all operators that do not exist, with
        their nodes.
    """
    if not isinstance(json_str, str):
        raise TypeError("fname required to be string")
    return Symbol(_core.SymbolHandle.from_json(json_str))


fromjson = load_json


def load(fname: str) -> Symbol:
    """A symbol from a file that `Symbol.save` wrote."""
    if not isinstance(fname, str):
        raise TypeError("fname need to be string")
    with open(fname, encoding="utf-8") as source:
        return load_json(source.read())
