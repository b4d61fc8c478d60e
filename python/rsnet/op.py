"""Operators by attributes: ``register("name").set_attr("FCompute<cpu>", f)...``

An operator is a record of named attributes. :func:`register` makes or finds the record; each
attribute is a Python function of ``attrs``, whose ``attrs.parsed`` holds the operator's parameter
struct and ``attrs.dict`` its parameters as text. The operator is in ``nd`` and ``sym`` as soon as
it has what it needs (a way to compute). :func:`op` is the same in one decorator. The names of user
operators (:func:`define`, :func:`kernel`, :func:`grad`) are those of ``user_op.py``.

>>> from rsnet import nd, op
>>> _ = (op.register("doc_twice").set_num_inputs(1).set_num_outputs(1)
...      .set_attr("FInferShape", op.ElemwiseShape(1, 1))
...      .set_attr("FInferType", op.ElemwiseType(1, 1))
...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
...                op.assign(outputs[0], req[0], 2 * inputs[0]))
...      .set_attr("FGradient", op.ElemwiseGradUseNone("_backward_doc_twice")))
>>> nd.doc_twice(nd.array([1, 2])).asnumpy().tolist()
[2.0, 4.0]
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core
from ._attributes import Attrs, Entry, GradNode, checked_views, kVarg
from ._door import free_name, function_name
from ._graph_rule import Entry as GradEntry
from .base import MXNetError, MXTypeError
from .operator import assign
from .parameter import Parameter
from .user_op import (
    Attr,
    attr,
    define,
    device,
    dtype,
    grad,
    kernel,
    kernels,
    ndim,
    waits_for_define,
    why,
)

__all__ = [
    "register", "get", "op", "assign", "Attrs", "Entry", "GradNode", "GradEntry", "kVarg",
    "shape_assign", "type_assign", "shape_is_known",
    "ElemwiseShape", "ElemwiseType",
    "ElemwiseGradUseNone", "ElemwiseGradUseIn", "ElemwiseGradUseOut", "ElemwiseGradUseInOut",
    "define", "kernel", "grad", "Attr", "attr", "device", "dtype", "ndim", "kernels", "why",
]  # fmt: skip

_entries: dict[str, Entry] = {}


def register(name: str, *, views: str | None = None) -> Entry:
    """The record of operator ``name``: a new one, or the one that is registered already.

    Its attributes are set by :meth:`Entry.set_attr`, whose documentation lists them: FInferShape,
    FInferType, FCompute<cpu>, FGradient and others. An operator with a way to compute (FCompute or
    FStatefulCompute) is ``nd.<name>`` and ``sym.<name>``.

    With ``views="numpy"`` the FCompute functions set from now on get NumPy views of the operands
    instead of NDArrays, unless their ``set_attr`` says otherwise.

    >>> from rsnet import nd, op
    >>> _ = (op.register("doc_add_one", views="numpy")
    ...      .set_attr("FInferShape", op.ElemwiseShape(1, 1))
    ...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
    ...                op.assign(outputs[0], req[0], inputs[0] + 1)))
    >>> nd.doc_add_one(nd.array([1, 2])).asnumpy().tolist()
    [2.0, 3.0]
    """
    function_name("register", name)
    entry = _entries.get(name)
    if entry is None:
        entry = _entries[name] = _new_entry(name)
    if views is not None:
        entry.views = checked_views(name, views)
    return entry


def _new_entry(name: str) -> Entry:
    free_name("register", name)
    if name in _core.operator_names():
        raise MXNetError(
            f"operator '{name}' is already registered, and not by attributes: "
            "it cannot be changed here"
        )
    return Entry(name)


def get(name: str) -> Entry:
    """The record of a registered operator; KeyError if there is none."""
    try:
        return _entries[name]
    except KeyError:
        raise KeyError(f"operator '{name}' is not registered by attributes") from None


def missing(name: str) -> str | None:
    """What a registered operator lacks to be in ``nd`` and ``sym``; None if there is no record of the
    name."""
    entry = _entries.get(name)
    if entry is not None and not entry._installed:
        return (
            f"operator '{name}' is registered, but cannot be used yet: it lacks a way to compute, "
            'set_attr("FCompute<cpu>", f) or set_attr("FStatefulCompute<cpu>", f)'
        )
    return waits_for_define(name)


# What attribute functions use -------------------------------------------------------------------


def shape_is_known(shape: Sequence[int] | None) -> bool:
    """Is every extent known? () and None are unknown shapes, 0 an unknown extent."""
    return bool(shape) and all(d > 0 for d in shape)  # type: ignore[union-attr]


def shape_assign(shapes: list[Any], i: int, shape: Sequence[int] | None) -> bool:
    """Merges what ``shape`` knows into ``shapes[i]``; an error if both know and disagree.

    Returns whether ``shapes[i]`` is known completely.
    """
    new = tuple(shape or ())
    old = tuple(shapes[i] or ())
    if new and old:
        if len(new) != len(old) or any(a and b and a != b for a, b in zip(old, new)):
            brackets = [str(list(s)).replace(" ", "") for s in (old, new)]
            raise MXNetError(
                f"Shape inconsistent, Provided = {brackets[0]}, inferred shape={brackets[1]}"
            )
        new = tuple(a or b for a, b in zip(old, new))
    shapes[i] = new or old
    return shape_is_known(shapes[i])


def type_assign(types: list[Any], i: int, dtype: Any) -> bool:
    """Sets ``types[i]`` if it is unknown; an error if it is known and different.

    Returns whether ``types[i]`` is known.
    """
    if dtype is not None:
        if types[i] is not None and np.dtype(types[i]) != np.dtype(dtype):
            raise MXNetError(
                f"Type inconsistent, Provided = {np.dtype(types[i]).name}, "
                f"inferred type = {np.dtype(dtype).name}"
            )
        types[i] = np.dtype(dtype).type
    return types[i] is not None


def ElemwiseShape(n_in: int, n_out: int) -> Callable[..., bool]:
    """Inference for operators whose inputs and outputs all have one shape."""

    def infer(attrs: Any, in_shapes: list[Any], out_shapes: list[Any]) -> bool:
        _arity(attrs, in_shapes, n_in, out_shapes, n_out)
        common: list[Any] = [()]
        for kind, shapes in (("input", in_shapes), ("output", out_shapes)):
            for i, shape in enumerate(shapes):
                try:
                    shape_assign(common, 0, shape)
                except MXNetError:
                    raise MXNetError(
                        f"Incompatible attr at {i}-th {kind} of operator {attrs.operator}: "
                        f"expected {common[0]}, got {shape}"
                    ) from None
        in_shapes[:] = common * len(in_shapes)
        out_shapes[:] = common * len(out_shapes)
        return shape_is_known(common[0])

    return infer


def ElemwiseType(n_in: int, n_out: int) -> Callable[..., bool]:
    """Inference for operators whose inputs and outputs all have one element type."""

    def infer(attrs: Any, in_types: list[Any], out_types: list[Any]) -> bool:
        _arity(attrs, in_types, n_in, out_types, n_out)
        common: list[Any] = [None]
        for kind, types in (("input", in_types), ("output", out_types)):
            for i, t in enumerate(types):
                try:
                    type_assign(common, 0, t)
                except MXNetError:
                    raise MXNetError(
                        f"Incompatible attr at {i}-th {kind} of operator {attrs.operator}: "
                        f"expected {np.dtype(common[0]).name}, got {np.dtype(t).name}"
                    ) from None
        in_types[:] = common * len(in_types)
        out_types[:] = common * len(out_types)
        return common[0] is not None

    return infer


def _arity(attrs: Any, ins: list[Any], n_in: int, outs: list[Any], n_out: int) -> None:
    for kind, items, n in (("inputs", ins, n_in), ("outputs", outs, n_out)):
        if n >= 0 and len(items) != n:
            raise MXNetError(f"expected {n} {kind}, got {len(items)} in operator {attrs.operator}")


def _grad_rule(backward: str, inputs: bool, outputs: bool) -> Callable[..., Any]:
    def gradient(node: GradNode, out_grads: Sequence[GradEntry]) -> list[GradEntry]:
        entries = list(out_grads)
        if inputs:
            entries += node.inputs
        if outputs:
            entries += node.outputs
        return node.backward(backward, entries)

    gradient.backward = (backward, inputs, outputs)  # type: ignore[attr-defined]
    return gradient


def ElemwiseGradUseNone(backward: str) -> Callable[..., Any]:
    """Gradient by the operator ``backward`` over the output gradients alone.

    It is given the same parameters, as text: a backward operator (``TIsBackward``) registered here
    gets what was parsed of them, any other operator parses them for itself.

    >>> from rsnet import autograd, nd, op
    >>> _ = (op.register("doc_scale").set_attr_parser(dict)
    ...      .set_attr("FInferShape", op.ElemwiseShape(1, 1))
    ...      .set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs:
    ...                op.assign(outputs[0], req[0], inputs[0] * float(attrs["scalar"])))
    ...      .set_attr("FGradient", op.ElemwiseGradUseNone("_mul_scalar")))
    >>> x = nd.array([1, 2])
    >>> x.attach_grad()
    >>> with autograd.record():
    ...     y = nd.doc_scale(x, scalar=3)
    >>> y.backward()
    >>> x.grad.asnumpy().tolist()
    [3.0, 3.0]
    """
    return _grad_rule(backward, False, False)


def ElemwiseGradUseIn(backward: str) -> Callable[..., Any]:
    """Gradient by the operator ``backward`` over the output gradients and the inputs."""
    return _grad_rule(backward, True, False)


def ElemwiseGradUseOut(backward: str) -> Callable[..., Any]:
    """Gradient by the operator ``backward`` over the output gradients and the outputs."""
    return _grad_rule(backward, False, True)


def ElemwiseGradUseInOut(backward: str) -> Callable[..., Any]:
    """Gradient by the operator ``backward`` over the output gradients, inputs and outputs."""
    return _grad_rule(backward, True, True)


# The decorator form -----------------------------------------------------------------------------


def op(
    name: str,
    *,
    param: type[Parameter] | None = None,
    inputs: Sequence[str] = ("data",),
    outputs: Sequence[str] = ("output",),
    shape: Callable[..., Any] | None = None,
    type: Callable[..., Any] | None = None,  # noqa: A002  (the attribute's own word)
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
        A :class:`rsnet.Parameter`. The functions get the parsed struct as ``p``; without it there is
        no ``p``.
    inputs, outputs : sequence of str
        Their names. Several outputs are returned as a tuple or list.
    shape, type : callable, optional
        ``FInferShape`` and ``FInferType``: ``f(attrs, ins, outs)`` fills its lists. Default: all
        inputs and outputs have one shape and one type.
    inplace : sequence of (int, int)
        Pairs (input, output) that may share memory.
    views : str
        ``"numpy"``: the functions get NumPy views of the operands, else NDArrays.
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

    def decorate(f: Callable[..., Any]) -> Any:
        entry = _decorated(name).describe(inspect.getdoc(f) or "")
        n_in, n_out = len(inputs), len(outputs)
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
            result = f(*_with_params(attrs), *ins)
            results = result if isinstance(result, (tuple, list)) else [result]
            _store(name, [f"output '{n}'" for n in outputs], results, req, outs)

        def gradient(g: Callable[..., Any]) -> Callable[..., Any]:
            backward = register(_free_name("_backward_" + name))
            backward.set_num_inputs(n_out + n_in + n_out).set_num_outputs(n_in)
            if param is not None:
                backward.set_attr_parser(param)

            def run(attrs: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> None:
                parts = ins[:n_out], ins[n_out : n_out + n_in], ins[n_out + n_in :]
                result = g(*_with_params(attrs), *parts)
                results = result if isinstance(result, (tuple, list)) else [result]
                # None: no gradient flows to that input. False is zero in every type.
                grads = [False if grad is None else grad for grad in results]
                what = [f"gradient of input '{n}'" for n in inputs]
                _store(backward.name, what, grads, req, outs)

            backward.set_attr("TIsBackward", True)
            backward.set_attr("FCompute<cpu>", run, views=views)
            again = entry.attr("FGradient") is not None
            entry._reset_attr("FGradient", ElemwiseGradUseInOut(backward.name))
            if again:
                _warn_of_replacing(f"the gradient of operator '{name}'", stacklevel=3)
            return g

        def _with_params(attrs: Any) -> tuple[Any, ...]:
            return () if param is None else (attrs.parsed,)

        entry.set_attr("FCompute<cpu>", compute, views=views)
        _put(entry)
        f.gradient = gradient  # type: ignore[attr-defined]
        f.entry = entry  # type: ignore[attr-defined]
        return f

    return decorate


def _decorated(name: str) -> Entry:
    """A record for the decorator: a new one, which takes the place of an earlier decorated one."""
    known = _entries.get(name)
    if known is None:
        return _new_entry(name)  # known to others once it is complete
    if not known._installed:
        return known
    if not known._decorated:
        raise MXNetError(
            f"operator '{name}' is already registered, by attributes: only what the decorator op.op "
            "registered is replaced by it"
        )
    entry = Entry(name)
    entry._installed = True
    return entry


def _put(entry: Entry) -> None:
    """Enters a decorated record; a graph that is bound keeps the operator it was bound with."""
    known, _entries[entry.name] = _entries.get(entry.name), entry
    entry._decorated = True
    if known is not None and known is not entry:
        known._superseded = True
        _warn_of_replacing(f"operator '{entry.name}'", stacklevel=4)


def _warn_of_replacing(what: str, stacklevel: int) -> None:
    text = f"{what} is registered again; the new function replaces the old"
    warnings.warn(text, stacklevel=stacklevel)


def _free_name(name: str) -> str:
    """``name`` or, where there is such an operator, ``name_2``, ``name_3`` ...: graphs and tapes find
    the backward operator of a replaced operator by its name.
    """
    names = itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2)))
    return next(n for n in names if n not in _entries)


def _store(
    name: str, what: Sequence[str], results: Sequence[Any], req: Sequence[Any], outs: Sequence[Any]
) -> None:
    """Writes the results, which ``what`` names in errors, to the outputs."""
    if len(results) != len(outs):
        raise MXNetError(f"{name} returned {len(results)} results, expected {len(outs)}")
    for i, (out, r, value) in enumerate(zip(outs, req, results)):
        if value is None or isinstance(value, str):
            raise MXNetError(
                f"{name} returned {value!r} as result {i}, expected an array or number"
            )
        shape = getattr(value, "shape", ())
        if shape and tuple(shape) != tuple(out.shape):
            raise MXNetError(
                f"{name} returned shape {tuple(shape)} as result {i}, expected {tuple(out.shape)}"
            )
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
        raise MXTypeError(
            f"{name} returned {got.name} for {what}, which is {expected.name}: expected "
            f"{expected.name} or a type that NumPy casts to it by casting='same_kind' "
            f"(to convert it all the same, return value.astype('{expected.name}'); for outputs of "
            "another type see op.op(type=...))"
        )
