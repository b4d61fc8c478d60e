"""`Symbol`: an expression that can be inferred, differentiated, planned and bound.

The core holds the graph. This module composes and inspects; inference is in ``infer``, planning and
binding in ``bind``, operators and fluent methods in ``operators``.
"""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, attribute
from .._operators import registry
from .._whole_files import replacing
from ..base import (
    MXNetError,
    NotImplementedForSymbol,
    file_error,
    listed,
    numpy_dtype,
    shown,
)
from ..util import is_np_shape
from .bind import Binding
from .infer import InferenceMethods, declared_shape

__all__ = ["Group", "Symbol", "Variable", "fromjson", "load", "load_json", "var"]


class Symbol(InferenceMethods, Binding):
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

    def __init__(self, handle: _core.SymbolHandle) -> None:
        self._handle = handle

    @property
    def handle(self) -> int:
        """A number that identifies the symbol."""
        return id(self)

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
                raise TypeError(f"compose: invalid argument {shown(value)}: expected a Symbol")
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
                text = f"invalid slice {index}: expected one that holds any of {len(self)} outputs"
                raise IndexError(text)
            return Group(picked)
        if isinstance(index, str):
            found = [i for i, output in enumerate(self.list_outputs()) if output == index]
            if len(found) != 1:
                names = ", ".join(self.list_outputs())
                raise ValueError(
                    f"invalid index {shown(index)}: expected the name of one of: {names}"
                )
            index = found[0]
        if not isinstance(index, (int, np.integer)) or isinstance(index, bool):
            raise TypeError(f"invalid index {shown(index)}: expected an integer, a name or a slice")
        if index >= len(self):
            raise IndexError(f"invalid index {index}: expected 0 to {len(self) - 1}")
        if index < 0:
            raise MXNetError(f"invalid index {index}: expected 0 to {len(self) - 1}")
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
        if not isinstance(key, str):
            raise TypeError(f"invalid key {shown(key)}: expected a string")
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
                raise ValueError(f"invalid attribute '{key}' {shown(value)}: expected a string")
        self._handle.set_attr(kwargs)

    def __copy__(self) -> Symbol:
        return Symbol(self._handle.copy())

    def __deepcopy__(self, memo: object) -> Symbol:
        return self.__copy__()

    def __getstate__(self) -> dict[str, str | None]:
        """The state that pickles hold: ``{"handle": JSON}``, as MXNet's do."""
        return {"handle": self.tojson(remove_amp_cast=False)}

    def __setstate__(self, state: dict[str, str | None]) -> None:
        if (text := state["handle"]) is not None:
            self._handle = load_json(text, allow_unknown=True)._handle

    def _gen_atomic_symbol(self) -> Symbol:
        """The operator of the head without its inputs: composing gives it new ones, and a name.

        Examples
        --------
        >>> import rsnet as mx
        >>> fc = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="fc")
        >>> fc._gen_atomic_symbol()(data=mx.sym.Variable("y"), name="other").list_arguments()
        ['y', 'other_weight', 'other_bias']
        """
        handle = self._handle.atomic()
        if handle is None:
            raise MXNetError(
                f"the symbol {self!r} is a variable: expected the output of an operator"
            )
        return Symbol(handle)

    def as_nd_ndarray(self) -> Symbol:
        """The symbol itself: all symbols are of `sym`."""
        return self

    def as_np_ndarray(self) -> Symbol:
        """Raises: the symbols of `mx.sym.np` do not exist."""
        raise NotImplementedError("`mx.np` is not in rsnet yet (docs/from_mxnet.md lists what is)")

    def optimize_for(self, backend: str, *args: Any, **kwargs: Any) -> Symbol:
        """A copy of the symbol. There are no backends: graphs are planned when they are bound."""
        return self.__copy__()

    def get_backend_symbol(self, backend: str) -> Symbol:
        """Raises: there are no backends."""
        raise MXNetError(f"invalid backend {shown(backend)}: expected none, as rsnet has none")

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The symbol as JSON in MXNet's current format. `remove_amp_cast` leaves out the casts of
        mixed precision (`amp_cast`, `amp_multicast`).
        """
        return self._handle.tojson(is_np_shape(), bool(remove_amp_cast))

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Writes `tojson()` to a file."""
        text = self.tojson(remove_amp_cast)
        with replacing(fname) as out:
            out.write(text.encode())

    def debug_str(self) -> str:
        """The graph as text."""
        return self._handle.debug_str()

    # ---- graphs ------------------------------------------------------------------------------

    def graph(self) -> Any:
        """The static graph as data: nodes, arg_nodes, heads, and functions on them."""
        from .graph import StaticGraph

        return StaticGraph(self._handle.graph())

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

    gradient = grad

    # ---- operators -----------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol(self.__bool__, "bool")

    def __neg__(self) -> Symbol:
        return self * -1.0  # type: ignore[operator, return-value]

    def __abs__(self) -> Symbol:
        absolute: Symbol = self.abs()
        return absolute

    __hash__ = object.__hash__

    if TYPE_CHECKING:  # the fluent methods of ``operators``

        def __getattr__(self, name: str) -> Any: ...


# Errors of calls name the class that users know.
for _base in (InferenceMethods, Binding):
    for _name, _method in vars(_base).items():
        if inspect.isfunction(_method):
            _method.__qualname__ = f"Symbol.{_name}"


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

    Examples
    --------
    >>> from rsnet import sym
    >>> x = sym.Variable("x", shape=(2, 3), lr_mult=0.5)
    >>> x.infer_shape()[1], x.attr("__lr_mult__")
    ([(2, 3)], '0.5')
    """
    if not isinstance(name, str):
        raise TypeError(f"invalid name {shown(name)}: expected a string")
    if attr is not None and not isinstance(attr, Mapping):
        raise TypeError(f"variable {shown(name)}: invalid attr {shown(attr)}: expected a dict")
    attrs = dict(attr or {})
    for key, value in attrs.items():
        if not isinstance(value, str):
            raise ValueError(
                f"variable '{name}': invalid attribute '{key}' {shown(value)}: expected a string"
            )
    if shape is not None:
        attrs["__shape__"] = str(declared_shape(name, shape))
    if lr_mult is not None:
        attrs["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        attrs["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        attrs["__dtype__"] = str(
            _core.dtype_flag(numpy_dtype(dtype, f"dtype of {shown(name)}").name)
        )
    if init is not None:
        if not isinstance(init, str) and not hasattr(init, "dumps"):
            raise TypeError(
                f"variable {shown(name)}: invalid init {shown(init)}: expected an Initializer, or "
                "its dumps()"
            )
        attrs["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        flags = {"default": 0, "row_sparse": 1, "csr": 2}
        attrs["__storage_type__"] = str(flags[stype] if isinstance(stype, str) else stype)
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise ValueError(
                f"invalid attribute '{key}' of variable '{name}': expected a name that begins and "
                "ends with two underscores, such as __mine__"
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

    Examples
    --------
    >>> from rsnet import sym
    >>> sym.Group([sym.Variable("a"), sym.Variable("b")]).list_outputs()
    ['a', 'b']
    """
    expected = "one Symbol at least, and no others"
    found = listed(symbols, "symbols", expected)
    if not found or not all(isinstance(s, Symbol) for s in found):
        raise TypeError(f"invalid symbols {shown(found)}: expected {expected}")
    return Symbol(_core.SymbolHandle.group([s._handle for s in found]))


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
        raise TypeError(f"invalid json_str {shown(json_str)}: expected a string")
    if not re.match(r"\s*\[\s*\{", json_str):
        return _load_all([json_str], allow_unknown)[0]
    import json  # few files hold a list

    try:
        symbols = json.loads(json_str)
    except (ValueError, RecursionError) as error:
        raise MXNetError(f"invalid symbol file: expected JSON: {error}") from None
    return _load_all(map(json.dumps, symbols), allow_unknown)


def _load_all(texts: Iterable[str], allow_unknown: bool) -> list[Symbol]:
    """The symbols of a file; unknown operators are refused all at once."""
    symbols, refused = list[Symbol](), list[NotImplementedError]()
    for text in texts:
        registry.define_named(text)
        try:
            loaded = _core.SymbolHandle.from_json(text, is_np_shape(), bool(allow_unknown))
        except NotImplementedError as error:
            refused.append(error)
            continue
        _report_version(*loaded[1:])
        symbols.append(Symbol(loaded[0]))
    if refused:
        raise type(refused[0])(registry.with_reasons("\n".join(map(str, refused)))) from None
    return symbols


def _report_version(version: int, upgraded: bool, newer: bool) -> None:
    if not (upgraded or newer):
        return
    import logging  # slow to import, and not needed for current files

    written = f"v{version // 10000}.{version // 100 % 100}.{version % 100}"
    if upgraded:
        message = "Loading symbol saved by previous version %s. Attempting to upgrade..."
        logging.info(message, written)
        logging.info("Symbol successfully upgraded!")
    if newer:
        logging.warning("Loading symbol saved by the newer version %s", written)


fromjson = load_json


def load(fname: str, allow_unknown: bool = False) -> Any:
    """A symbol from a file that `Symbol.save` wrote; a list of symbols if the file holds a list.

    `allow_unknown` is that of `load_json`.

    Examples
    --------
    >>> from rsnet import sym
    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = os.path.join(folder.name, "net.json")
    >>> sym.relu(sym.Variable("x"), name="y").save(file)
    >>> sym.load(file).list_outputs()
    ['y_output']
    >>> folder.cleanup()
    """
    if not isinstance(fname, str):
        raise TypeError(f"invalid fname {shown(fname)}: expected a string")
    try:
        with open(fname, encoding="utf-8") as source:
            text = source.read()
    except (OSError, UnicodeDecodeError) as error:
        raise file_error("cannot read", fname, error) from error
    return load_json(text, allow_unknown)
