"""What every way of adding an operator from Python comes down to: one :class:`Definition`.

The core makes an operator of it like any built-in one. The functions of a definition receive the
*payload* of a call: whatever ``make`` returned for its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import _core
from . import registry
from .checks import free_name, invalid


class Facts(NamedTuple):
    """Properties of an operator that the parameters of one call determine."""

    #: Names of all inputs, auxiliary states last.
    inputs: tuple[str, ...]
    #: Names of all outputs, hidden ones last.
    outputs: tuple[str, ...]
    visible: int
    #: Which inputs are modified.
    mutated: tuple[int, ...] = ()
    #: Which inputs are read for shape and type only.
    ignored: tuple[int, ...] = ()


def numbered(word: str, count: int) -> tuple[str, ...]:
    """The names of so many inputs or outputs that have none: ``word``, or that with a number."""
    return (word,) if count == 1 else tuple(f"{word}{i}" for i in range(count))


class KernelSpec(NamedTuple):
    """One implementation: ``run(payload, state, ctx, inputs, req, outputs)``, or with other lists
    than ``inputs`` (:attr:`Definition.operands`).
    """

    name: str
    #: A condition as data: ``("device", "cpu")``, ``("and", a, b)`` ...
    match: tuple[Any, ...]
    priority: int
    run: Callable[..., Any]
    #: NumPy views instead of NDArrays?
    numpy: bool = False
    #: The function's name of the list of outputs, and of what stores a value as requested.
    results: str = "outputs"
    assign: str = "op.assign"
    #: Does the function handle the request "add" itself, whatever the parameters are?
    accumulates: bool = False
    #: Does it get a context as ``ctx``? Else 1 in training and 0 outside of it, which costs
    #: nothing.
    takes_ctx: bool = True


#: The forms in which a function may receive its operands. With "cupy", arrays of CuPy on a device
#: and NumPy views on the host.
VIEWS = ("ndarray", "numpy", "cupy")


def checked_views(operator: str, views: str) -> str:
    """``views`` if there are such views."""
    if views not in VIEWS:
        raise invalid(operator, "views", views, f"one of: {', '.join(VIEWS)}", ValueError)
    return views


def kernel_on(device: str, operator: str, views: str, spec: KernelSpec) -> KernelSpec:
    """The kernel of a function for one kind of device, on the views that it wants."""
    spec = spec._replace(match=("device", device), numpy=views == "numpy")
    if views != "cupy":
        return spec
    if device == "cpu":
        return spec._replace(numpy=True)
    from ..cuda._operands import on_cupy  # CuPy is nothing to other programs

    return spec._replace(run=on_cupy(operator, spec.run))


def kernels_everywhere(operator: str, views: str, spec: KernelSpec) -> list[KernelSpec]:
    """The kernels of a function that serves every device, on the views that it wants."""
    if views != "cupy":
        return [spec._replace(numpy=views == "numpy")]
    there = spec._replace(name=f"{spec.name} on gpu")
    return [kernel_on("cpu", operator, views, spec), kernel_on("gpu", operator, views, there)]


_INPUT = "NDArray-or-Symbol"

#: The documentation of any number of inputs, for :attr:`Definition.input_docs`.
ANY_INPUTS = [("data", f"{_INPUT}[]", "The inputs.")]


def named_inputs(names: Iterable[str], docs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The documentation of inputs with these names, for :attr:`Definition.input_docs`."""
    return [(name, _INPUT, docs.get(name, "")) for name in names]


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
        #: (name, least number of arrays, whether more are taken, whether it may be absent) of the
        #: input arguments, if the parameter arg_counts counts the arrays of each.
        self.arguments: list[tuple[str, int, bool, bool]] = []
        #: make(values in normal form, parameters as given) -> payload
        self.make: Callable[[tuple[Any, ...], dict[str, Any]], Any] = lambda values, given: None
        #: facts(payload) -> Facts
        self.facts: Callable[[Any], Facts]
        #: infer_shape(payload, in_shapes, out_shapes, exact) -> None: unknown, or
        #: (in_shapes, out_shapes, empty). `exact`: all inputs are known, and an extent of 0 among
        #: them is an empty axis. In the answer it is one if `empty` is True, and unknown if it is
        #: False; None: an empty axis if an input has one, else unknown
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
        #: resources(payload, in_shapes, out_shapes) -> [("temp_space" | "random", bytes)]
        self.resources: Callable[..., Sequence[tuple[str, int]]] | None = None
        #: state(payload, ctx, in_shapes, in_types) -> what forward and backward of a node share
        self.state: Callable[..., Any] | None = None
        #: None, "zero", ("backward", operator, deps(payload, n_in, n_out) -> [(Source, index)]) or
        #: ("rule", function)
        self.gradient: Any = None
        #: operands(payload) -> (lists, count): the lists that kernels get in place of `inputs`,
        #: each with the numbers of inputs and with objects in the places of others, and how many
        #: outputs, from the first, they get. The core makes them for less than slicing them costs
        self.operands: Callable[[Any], tuple[Sequence[Sequence[Any]], int]] | None = None
        self.is_backward = False
        self.deterministic = False
        self.kernels: list[KernelSpec] = []

    def install(self, *, replace: bool = False) -> None:
        """Hands the operator to the core and to the namespaces ``nd`` and ``sym``.

        Raises
        ------
        rsnet.MXValueError
            A name or alias cannot be that of a function, or would hide something else of ``nd`` or
            ``sym``.
        """
        names = (self.name, *self.aliases)
        for name in names:
            registry.version(name)  # one of this package that is defined on demand comes first
            free_name(f"register('{self.name}')", name)
        _core.define_operator(self, replace)
        if not self.is_backward:
            registry.announce(names)
