"""``op.op``: an operator from a decorated function."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import MXTypeError
from ..parameter import Parameter
from . import registry
from .attributes import Entry, new_entry, register
from .checks import check_struct, check_takes, checked_docs, fail, function_name, invalid
from .elementwise import ElemwiseGradUseInOut, ElemwiseShape, ElemwiseType
from .operands import assign
from .user.arguments import parse_args


def op(
    name: str,
    *,
    param: type[Parameter] | None = None,
    inputs: str | Sequence[str] = "data",
    outputs: str | Sequence[str] = "output",
    argument_docs: Mapping[str, str] | None = None,
    shape: Callable[..., Any] | None = None,
    type: Callable[..., Any] | None = None,
    inplace: Sequence[tuple[int, int]] = (),
    views: str = "ndarray",
    aliases: Sequence[str] = (),
) -> Callable[[Any], Any]:
    """Registers the decorated function ``f(p, *inputs) -> output(s)`` as an operator.

    Decorating again under the same name, as a notebook does whose cell runs twice, warns and
    replaces; graphs that are bound keep the old function.

    Give its gradient with ``@f.gradient``: a function ``g(p, out_grads, inputs, outputs)`` that
    returns the gradient of every input, None for one that gets none.

    Parameters
    ----------
    name : str
        The operator is ``nd.<name>`` and ``sym.<name>``.
    param : type, optional
        A :class:`rsnet.Parameter`. The functions get the parsed struct as ``p``; without a
        Parameter there is no ``p``.
    inputs, outputs : str or sequence of str
        Their names, such as ``"a, b"``. Several outputs are returned as a tuple or list.
    argument_docs : dict of str to str, optional
        What the inputs are, by name, for ``help(nd.<name>)``.
    shape, type : callable, optional
        ``FInferShape`` and ``FInferType``: ``f(attrs, ins, outs)`` fills its lists. Default: all
        inputs and outputs have one shape and one type.
    inplace : sequence of (int, int)
        Pairs (input, output) that may share memory.
    views : str
        ``"numpy"``: the functions get NumPy views of the operands. ``"cupy"``: on a device arrays
        of CuPy, on the host NumPy views. Else NDArrays.
    aliases : sequence of str
        More names.

    Raises
    ------
    rsnet.MXNetError
        The name is that of an operator which is built in or registered otherwise, or cannot be that
        of a function. By a call: the function returns too many or too few results, or results
        of other shapes.
    rsnet.base.MXTypeError
        By a call: a result is of another kind than its output, such as float for int32 or complex
        for float32 (what NumPy's ``casting="same_kind"`` refuses).

    Examples
    --------
    >>> from rsnet import nd, op
    >>> @op.op("doc_cube", views="numpy")
    ... def cube(x):
    ...     return x * x * x
    >>> @cube.gradient
    ... def _(out_grads, inputs, outputs):
    ...     return 3 * inputs[0] * inputs[0] * out_grads[0]
    >>> nd.doc_cube(nd.array([2.0])).asnumpy().tolist()
    [8.0]
    """
    function_name("op", name)
    inputs, outputs = _names(name, "input", inputs), _names(name, "output", outputs)
    check_struct(name, "param", param)

    def decorate(f: Any) -> Any:
        if not callable(f):
            raise invalid(name, "function", f, "a function", MXTypeError)
        leading = [] if param is None else ["p"]
        check_takes(name, "the function", f, [*leading, *inputs], " (op.op(inputs=...) names them)")
        _check_arguments(name, f, param)
        entry = _decorated(name).describe(inspect.getdoc(f) or "")
        n_in, n_out = len(inputs), len(outputs)
        kernels = ["FCompute<cpu>", *(["FCompute<gpu>"] if views == "cupy" else [])]
        entry.input_docs = checked_docs(name, argument_docs, inputs)
        entry.set_num_inputs(n_in).set_num_outputs(n_out)
        if param is not None:
            entry.set_attr_parser(param).add_arguments(param.fields())
        entry.set_attr("FListInputNames", lambda attrs: list(inputs))
        entry.set_attr("FListOutputNames", lambda attrs: list(outputs))
        entry.set_attr("FInferShape", shape or ElemwiseShape(n_in, n_out))
        entry.set_attr("FInferType", type or ElemwiseType(n_in, n_out))
        if inplace:
            entry.set_attr("FInplaceOption", lambda attrs: list(inplace))
        for alias in aliases:
            entry.add_alias(alias)

        def compute(attrs: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> None:
            _store(name, [f"output '{n}'" for n in outputs], results_of(f, attrs, *ins), req, outs)

        def gradient(g: Callable[..., Any]) -> Callable[..., Any]:
            check_takes(name, "the gradient", g, [*leading, "out_grads", "inputs", "outputs"])
            backward = register(_free_name("_backward_" + name))
            backward.set_num_inputs(n_out + n_in + n_out).set_num_outputs(n_in)
            if param is not None:
                backward.set_attr_parser(param)

            def run(attrs: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> None:
                parts = ins[:n_out], ins[n_out : n_out + n_in], ins[n_out + n_in :]
                # None: no gradient flows to that input. False is zero in every type.
                grads = [False if x is None else x for x in results_of(g, attrs, *parts)]
                what = [f"gradient of input '{n}'" for n in inputs]
                _store(backward.name, what, grads, req, outs)

            backward.set_attr("TIsBackward", True).set_attr("TAccumulates", True)
            for kernel in kernels:
                backward.set_attr(kernel, run, views=views)
            again = entry.attr("FGradient") is not None
            entry.put_attr("FGradient", ElemwiseGradUseInOut(backward.name))
            if again:
                registry.warn_of_replacing(f"the gradient of operator '{name}'", "function")
            return g

        def results_of(function: Any, attrs: Any, *operands: Any) -> Sequence[Any]:
            given = operands if param is None else (attrs.parsed, *operands)
            result = function(*given)
            return result if isinstance(result, (tuple, list)) else [result]

        _attach(name, f, gradient, entry)
        entry.set_attr("TAccumulates", True)  # results are stored by `assign`
        for kernel in kernels:
            entry.set_attr(kernel, compute, views=views)
        _put(entry)
        return f

    return decorate


def _names(operator: str, what: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """The names of inputs or outputs, which are written as those of a user operator."""
    arguments = parse_args(operator, what, given)
    for argument in arguments:
        if not (argument.single and argument.fixed):
            each = "names that stand for one array each (op.define takes any number)"
            raise invalid(operator, f"{what}s", given, each)
    names = tuple(argument.name for argument in arguments)
    if len(set(names)) < len(names):
        raise invalid(operator, f"{what}s", list(names), "every name once")
    return names


def _attach(name: str, f: Any, gradient: Callable[..., Any], entry: Entry) -> None:
    """Gives the decorated function its decorator ``gradient`` and its record."""
    try:
        f.gradient, f.entry = gradient, entry
    except (AttributeError, TypeError):  # nothing of C has attributes
        kept = "a function of Python: lambda x: f(x) makes one of any other"
        raise invalid(name, "function", f, kept, MXTypeError) from None


def _check_arguments(name: str, f: Any, param: type[Parameter] | None) -> None:
    """Refuses arguments of a function of Python that no call of an operator could give: those with
    defaults, and those named as fields of ``param``, which the first argument has. (Functions of
    libraries may have defaults, and values may be bound behind a ``*``.)
    """
    if not hasattr(f, "__code__"):
        return
    for taken, argument in inspect.signature(f, follow_wrapped=False).parameters.items():
        if argument.kind > argument.POSITIONAL_OR_KEYWORD:
            return
        if argument.default is not argument.empty:
            has = f"the argument '{taken}' of the function has a default"
            raise fail(name, f"{has}: expected none, as parameters of an operator come from param=")
        if param is not None and taken in param._names:
            takes = f"the function takes '{taken}', a field of {param.__name__}"
            raise fail(name, f"{takes}: expected p.{taken}, of the first argument")


def _decorated(name: str) -> Entry:
    """A record for the decorator: a new one, which takes the place of an earlier decorated one."""
    known: Entry | None = registry.entries.get(name)
    if known is None:
        return new_entry(name)  # known to others once it is complete
    if not known.installed:
        return known
    if not known.decorated:
        only = "the decorator op.op replaces only what it has registered"
        raise fail(f"operator '{name}'", f"already registered, by attributes: {only}")
    entry = Entry(name)
    entry.installed = True
    return entry


def _put(entry: Entry) -> None:
    """Enters a decorated record; a graph that is bound keeps the operator it was bound with."""
    known, registry.entries[entry.name] = registry.entries.get(entry.name), entry
    entry.decorated = True
    if known is not None and known is not entry:
        known.superseded = True
        registry.warn_of_replacing(f"operator '{entry.name}'", "function")


def _free_name(name: str) -> str:
    """``name`` or, if it is taken, ``name_2``, ``name_3`` ...

    Graphs and tapes find the backward operator of a replaced operator by its name.
    """
    names = itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2)))
    return next(n for n in names if n not in registry.entries)


def _store(
    name: str, what: Sequence[str], results: Sequence[Any], req: Sequence[Any], outs: Sequence[Any]
) -> None:
    """Writes the results, which ``what`` names in errors, to the outputs."""
    if len(results) != len(outs):
        raise invalid(name, "number of results", len(results), len(outs))
    for i, (out, r, value) in enumerate(zip(outs, req, results)):
        if value is None or isinstance(value, str):
            raise invalid(name, f"result {i}", value, "an array or number")
        shape = tuple(getattr(value, "shape", ()))
        if shape and shape != tuple(out.shape):
            raise invalid(name, f"shape of result {i}", shape, tuple(out.shape))
        if getattr(value, "dtype", None) != out.dtype and r != "null":
            _check_kind(name, what[i], value, np.dtype(out.dtype))
        assign(out, r, value)


def _check_kind(name: str, what: str, value: Any, expected: np.dtype[Any]) -> None:
    """Refuses what loses its kind in the output: fractions, imaginary parts, signs."""
    if isinstance(value, (bool, int)):
        got = np.min_scalar_type(value)
    else:
        got = np.dtype(value.dtype) if hasattr(value, "dtype") else np.asarray(value).dtype
    if not np.can_cast(got, expected, casting="same_kind"):
        same_kind = f"{expected.name} or a type that NumPy casts to it by casting='same_kind'"
        convert = f"to convert it all the same, return value.astype('{expected.name}')"
        hint = f"{same_kind} ({convert}; for outputs of another type see op.op(type=...))"
        raise invalid(name, f"dtype of {what}", got.name, hint, MXTypeError)
