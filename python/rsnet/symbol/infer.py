"""Inference of shapes and dtypes, and their translation from and to the core's conventions.

In programs of old, 0 is an unknown extent and `()` an unknown rank; with np_shape -1 is an unknown
extent, None an unknown rank, and 0 and `()` are real. The core has -1 and None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from .. import _core
from .._exceptions import add_note
from .._numbers import check_range, whole_numbers
from .._operators import registry
from .._warnings import warn
from ..base import MXNetError, numpy_dtype, shown
from ..util import is_np_shape


def to_core_shape(shape: Any) -> tuple[int, ...] | None:
    """A shape as the program writes it, for the core."""
    if shape is None:
        return None
    if is_np_shape():
        return tuple(index(d) for d in shape)
    return tuple(index(d) or -1 for d in shape) or None


def declared_shape(name: str, shape: Any) -> tuple[int | None, ...]:
    """The shape that a variable declares; None is an unknown extent."""
    listed = (
        shape
        if isinstance(shape, (tuple, list))
        else whole_numbers(shape, f"shape of {shown(name)}")
    )
    if not all(d is None or isinstance(d, SupportsIndex) for d in listed):
        expected = "an int or a tuple of ints"
        raise TypeError(f"invalid shape of {shown(name)} {shown(shape)}: expected {expected}")
    extents = tuple([None if d is None else index(d) for d in listed])
    check_range(extents, f"shape of {shown(name)}")
    return extents


def check_shape(where: str, name: str, shape: Any, kinds: Any = (tuple, list)) -> None:
    """Raises an error that names the function and the argument unless this is a shape.

    Raises
    ------
    TypeError
        Something else than integers in one of these kinds of sequences.
    MXValueError
        An extent of more than 64 bits.
    """
    if not isinstance(shape, kinds) or not all(isinstance(d, SupportsIndex) for d in shape):
        raise TypeError(
            f"{where}: invalid shape {shown(shape)} of '{name}': expected a tuple of integers"
        )
    check_range([index(d) for d in shape], f"shape of '{name}'", f"{where}: ")


def from_core_shape(shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """A shape of the core, for the program."""
    if is_np_shape():
        return shape
    return () if shape is None else tuple(max(d, 0) for d in shape)


def dtype_or_none(name: str | None) -> Any:
    """The NumPy type of this name."""
    return None if name is None else np.dtype(name).type


def _is_open(shape: Any) -> bool:
    """Whether the rank or an extent of a shape, as the program writes it, is unknown."""
    known = to_core_shape(shape)
    return known is None or -1 in known


def _warn_unknown(
    function: str,
    arguments: list[str],
    outputs: Callable[[], list[str]],
    remark: str = "",
    remedies: Sequence[str] = (),
) -> None:
    """Warns of arguments of which more must be known, or else of nodes that say no more."""
    what, names = f"{function[6:]}s", arguments or outputs()
    text = f"{function}: the {what} of these arguments are not known; give more of them"
    if not arguments:
        text = f"{function}: the {what} of these outputs do not follow from those of the arguments"
    listed = "\n\t".join(names[:10] + ["..."] * (len(names) > 10))
    warn("\n".join([f"{text}{remark}:\n\t{listed}", *remedies[:10]]))


def _remedy(operator: str, node: str) -> str | None:
    """What the author of an operator can do where the types of its outputs end inference."""
    inference = getattr(registry.user_operators.get(operator), "inference", None)
    if inference is None or inference.infer_dtype is not None:
        return None
    return (
        f"{operator} {shown(node)}: its infer reads shapes: expected infer_dtype=, or to be bound"
    )


def _note_given(
    error: MXNetError, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    given = {**{f"#{i}": value for i, value in enumerate(args)}, **kwargs}
    add_note(
        error, f"{function} was given {', '.join(f'{k}: {shown(v)}' for k, v in given.items())}"
    )


class InferenceMethods:
    """The methods of a symbol that infer."""

    __slots__ = ()
    _handle: _core.SymbolHandle

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
            arguments, outputs, aux, complete = self._infer_shape(args, kwargs)
        except MXNetError as error:
            _note_given(error, "infer_shape", args, kwargs)
            raise
        if complete:
            return arguments, outputs, aux
        names = self._handle.list_arguments() + self._handle.list_auxiliary_states()
        pairs = zip(names, arguments + aux, strict=True)
        unknown = [f"{name}: {shape}" for name, shape in pairs if _is_open(shape)]

        def open_outputs() -> list[str]:
            known, nodes = map(to_core_shape, arguments + aux), self._handle.internals()
            found = nodes.infer_shape(names, [*known], is_np_shape())[1]
            pairs = zip(nodes.list_outputs(), found)
            return [name for name, shape in pairs if shape is None or -1 in shape]

        remark = "" if is_np_shape() else " (0 is an unknown extent)"
        _warn_unknown("infer_shape", unknown, open_outputs, remark)
        return None, None, None

    def infer_shape_partial(
        self, *args: Any, **kwargs: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `infer_shape`, but unknown shapes are not errors: an unknown rank is `()`, with
        np_shape None.
        """
        return self._infer_shape(args, kwargs)[:3]

    def _infer_shape(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], list[Any], list[Any], bool]:
        names, values = self._keyed(args, kwargs)
        for key, value in zip(names, values, strict=True):
            if value is None and (args or is_np_shape()):
                continue
            check_shape("infer_shape", key, value, tuple)  # MXNet takes no list here
        known = [to_core_shape(v) for v in values]
        arguments, outputs, aux, complete = self._handle.infer_shape(names, known, is_np_shape())
        show = from_core_shape
        return [*map(show, arguments)], [*map(show, outputs)], [*map(show, aux)], complete

    def infer_type(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """NumPy types of all arguments, outputs and auxiliary states from those of some arguments;
        `(None, None, None)` with a warning if a type stays unknown.
        """
        try:
            arguments, outputs, aux, complete = self._infer_type(args, kwargs)
        except MXNetError as error:
            _note_given(error, "infer_type", args, kwargs)
            raise
        if complete:
            return arguments, outputs, aux
        names = self._handle.list_arguments()
        unknown = [name for name, t in zip(names, arguments, strict=True) if t is None]

        def open_outputs() -> list[str]:
            nodes = self._handle.internals()
            found = zip(nodes.list_outputs(), nodes.infer_type(names, known)[1])
            return [name for name, dtype in found if dtype is None]

        known = [t and np.dtype(t).name for t in arguments]
        ends = (_remedy(*found) for found in self._handle.untyped_nodes(names, known))
        _warn_unknown("infer_type", unknown, open_outputs, remedies=[end for end in ends if end])
        return None, None, None

    def infer_type_partial(
        self, *args: Any, **kwargs: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `infer_type`, but returns None for each unknown type."""
        return self._infer_type(args, kwargs)[:3]

    def _infer_type(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], list[Any], list[Any], bool]:
        names, values = self._keyed(args, kwargs)
        known = [
            None if v is None else numpy_dtype(v, f"dtype of {shown(k)}", "infer_type: ").name
            for k, v in zip(names, values)
        ]
        arguments, outputs, aux, complete = self._handle.infer_type(names, known)
        show = dtype_or_none
        return [*map(show, arguments)], [*map(show, outputs)], [*map(show, aux)], complete

    def _keyed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """Names and values of positional or keyword arguments."""
        if args and kwargs:
            raise ValueError(
                "Can only specify known argument shapes either by positional or kwargs way."
            )
        if not args:
            return list(kwargs), list(kwargs.values())
        expected = self._handle.list_arguments()
        if len(args) > len(expected):
            raise ValueError(
                f"invalid number of values {len(args)}: expected at most {len(expected)}, for the "
                f"arguments {', '.join(expected)}"
            )
        return expected[: len(args)], list(args)
