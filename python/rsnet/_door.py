"""What every way of adding an operator from Python comes down to: one :class:`Definition`.

``operator.py`` (subclassing), ``op.py`` (attributes) and ``user_op.py`` (user operators) each fill
one in; the core makes an operator of it like any built-in one. The functions of a definition get
the *payload* of a call: whatever ``make`` returned for its parameters.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _core
from .base import MXNetError, MXTypeError, MXValueError

#: Shapes and types on this side of the core: unknown extents are 0, an unknown shape is ().
ShapeTuple = tuple[int, ...]

TYPES: dict[Any, Any] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "uint8": np.uint8,
    "int32": np.int32,
    "int8": np.int8,
    "int64": np.int64,
    "bool": np.bool_,
    None: None,
}


class Facts(NamedTuple):
    """What the parameters of one call decide about its operator."""

    #: Names of all inputs, auxiliary states last.
    inputs: tuple[str, ...]
    #: Names of all outputs, hidden ones last.
    outputs: tuple[str, ...]
    visible: int
    #: Which inputs are modified.
    mutated: tuple[int, ...] = ()
    #: Which inputs are read for shape and type only.
    ignored: tuple[int, ...] = ()


class KernelSpec(NamedTuple):
    """One implementation: ``run(payload, state, ctx, inputs, req, outputs)``."""

    name: str
    #: A condition as data: ``("device", "cpu")``, ``("and", a, b)`` ...
    match: tuple[Any, ...]
    priority: int
    run: Callable[..., Any]
    #: NumPy views instead of NDArrays?
    numpy: bool = False
    #: What the function calls the list of its outputs, and how it stores a value by its request.
    results: str = "outputs"
    assign: str = "op.assign"


class Definition:
    """An operator as the core wants it; see the attributes' comments for the functions' forms."""

    def __init__(self, name: str, schema: Any) -> None:
        self.name = name
        self.aliases: list[str] = []
        self.doc = ""
        self.schema = schema
        #: (name, type, description) of the inputs, for signature and documentation.
        self.input_docs: list[tuple[str, str, str]] = []
        self.key_var_num_args: str | None = None
        #: make(values in normal form, parameters as given) -> payload
        self.make: Callable[[tuple[Any, ...], dict[str, Any]], Any] = lambda values, given: None
        #: facts(payload) -> Facts
        self.facts: Callable[[Any], Facts]
        #: infer_shape(payload, in_shapes, out_shapes, exact) -> (in_shapes, out_shapes), or None:
        #: unknown. When `exact` all inputs are known: an extent of 0 is an empty axis
        self.infer_shape: Callable[..., Any] | None = None
        #: infer_both(payload, in_shapes, in_types) -> (in_types, out_shapes, out_types), from known
        #: shapes and at least one known type: asked instead of the others where both are wanted
        self.infer_both: Callable[..., Any] | None = None
        #: infer_type(payload, in_types, out_types) -> the same of dtype names or None
        self.infer_type: Callable[..., Any] | None = None
        #: inplace(payload) -> [(input, output, same bytes?)]
        self.inplace: Callable[[Any], Sequence[tuple[int, int, bool]]] | None = None
        #: variable_attrs(payload) -> [(input, key, text)], set on variables that are inputs
        self.variable_attrs: Callable[[Any], Sequence[tuple[str, str, str]]] | None = None
        #: accumulates(payload) -> does the operator handle the request "add" itself? Without it, it
        #: writes to a temporary array, which the core then adds to the output
        self.accumulates: Callable[[Any], bool] | None = None
        #: resources(payload) -> ["temp_space" | "random"]
        self.resources: Callable[[Any], Sequence[str]] | None = None
        #: state(payload, ctx, in_shapes, in_types) -> what forward and backward of a node share
        self.state: Callable[..., Any] | None = None
        #: None, "zero", ("backward", operator, deps(payload, n_in, n_out)) or ("rule", function)
        self.gradient: Any = None
        self.is_backward = False
        self.deterministic = False
        self.kernels: list[KernelSpec] = []

    def install(self, *, replace: bool = False) -> None:
        """Hands the operator to the core; ``nd`` and ``sym`` have it from now on (the latter asks
        the registry).

        Raises
        ------
        rsnet.MXValueError
            A name or alias cannot be that of a function, or would hide something else of ``nd`` or
            ``sym``.
        """
        from .ndarray import _register

        for name in (self.name, *self.aliases):
            free_name(f"register('{self.name}')", name)
        _core.define_operator(self, replace)
        if not self.name.startswith("_backward"):
            for name in (self.name, *self.aliases):
                _register.add_function(name)


def fail(operator: str, message: str) -> MXNetError:
    """An error that names the operator."""
    return MXNetError(f"{operator}: {message}")


#: The core takes no more inputs, and no more outputs.
MOST_OPERANDS = 65_535


def function_name(where: str, name: Any) -> str:
    """``name`` if there can be an ``nd.<name>``; ``where`` begins the error."""
    if not isinstance(name, str):
        raise MXTypeError(f"{where}: the name of an operator is a text, got {name!r}")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise MXValueError(
            f"{where}: the name of an operator becomes a function: it is letters, digits and _, "
            f"does not begin with a digit and is no Python keyword, got {name!r}"
        )
    return name


def free_name(where: str, name: Any) -> str:
    """As :func:`function_name`, for a new operator: one that hides something of ``nd`` or ``sym`` is
    refused.
    """
    from .ndarray import _register

    hidden = _register.hidden_by(function_name(where, name))
    if hidden is not None:
        raise MXValueError(
            f"{where}: an operator '{name}' would hide {hidden}, which is no operator"
        )
    return name


def argument_name(where: str, name: Any) -> str:
    """``name`` if an input, output or attribute can go by it. (Keywords may: ``in`` is one.)"""
    if not isinstance(name, str) or not name.isidentifier():
        raise MXValueError(
            f"{where}: {name!r} is not a name, which is letters, digits and _ "
            "and does not begin with a digit"
        )
    return name


def check_exec_type(operator: str, what: str, answer: Any) -> None:
    """Refuses what is no way to run a Python function."""
    if answer not in ("sync", 0):
        raise fail(
            operator,
            f"{what} is {answer!r}, which is not supported: a function is done when it returns, "
            "which is 'sync' (engine.push_async runs functions that are done later)",
        )


def shape_list(operator: str, what: str, value: Any, names: Sequence[str]) -> list[ShapeTuple]:
    """Checks that ``value`` is one shape for each name; extents may be anything with an index."""
    if not isinstance(value, (list, tuple)):
        raise fail(operator, f"{what} is {type(value).__name__}, expected a list of shapes")
    if len(value) != len(names):
        expected = f"{len(names)} ({', '.join(names)})"
        raise fail(operator, f"{what} has {len(value)} shapes, expected {expected}")
    shapes = []
    for name, shape in zip(names, value):
        try:
            shapes.append(tuple([d.__index__() for d in shape]) if shape is not None else ())
        except (TypeError, AttributeError):
            raise fail(
                operator, f"{what}: '{name}' is {shape!r}, expected a tuple of integers"
            ) from None
        if any(d < 0 for d in shapes[-1]):
            raise fail(operator, f"{what}: '{name}' is {shape!r}, extents cannot be negative")
        if any(d >= 2**63 for d in shapes[-1]):
            raise fail(operator, f"{what}: '{name}' is {shape!r}, extents end at 2**63 - 1")
    return shapes


def type_list(operator: str, what: str, value: Any, names: Sequence[str]) -> list[str | None]:
    """Checks that ``value`` is one element type, or None, for each name."""
    if not isinstance(value, (list, tuple)):
        raise fail(operator, f"{what} is {type(value).__name__}, expected a list of types")
    if len(value) != len(names):
        expected = f"{len(names)} ({', '.join(names)})"
        raise fail(operator, f"{what} has {len(value)} types, expected {expected}")
    return [_type_name(operator, what, name, t) for name, t in zip(names, value)]


def _type_name(operator: str, what: str, name: str, value: Any) -> str | None:
    if value is None:
        return None
    known = _NAMES.get(value) if isinstance(value, type) else None
    if known is not None:
        return known
    try:
        text = np.dtype(getattr(value, "numpy_name", value)).name
    except TypeError:
        text = ""
    if text not in TYPES:
        raise fail(operator, f"{what}: '{name}' is {value!r}, expected a NumPy type")
    return text


_NAMES = {t: name for name, t in TYPES.items() if name}


def name_list(operator: str, what: str, value: Any, *, any_text: bool = False) -> tuple[str, ...]:
    """Checks that ``value`` lists distinct names; with ``any_text`` whatever is not empty is one."""
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise fail(operator, f"{what} returned {value!r}, expected a list of names")
    for name in value:
        if not (any_text and isinstance(name, str) and name):
            argument_name(f"{operator}: {what} returned {value!r}", name)
    if len(set(value)) != len(value):
        raise fail(operator, f"{what} returned {list(value)!r}: a name occurs twice")
    return tuple(value)


def resource_kinds(operator: str, method: str, answer: Any) -> list[str]:
    """Checks that ``answer`` lists resources, at most one of them temporary space."""
    if isinstance(answer, str) or not isinstance(answer, (list, tuple)):
        raise fail(operator, f"{method} returned {answer!r}, expected a list of resources")
    kinds = [str(getattr(r, "value", r)) for r in answer]
    for kind in kinds:
        if kind not in ("temp_space", "random"):
            raise fail(
                operator, f"{method} asked for {kind!r}, valid are 'temp_space' and 'random'"
            )
    if kinds.count("temp_space") > 1:
        raise fail(operator, f"{method} asked for more than one temp_space")
    return kinds
