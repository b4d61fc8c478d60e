"""Inference of user operators: one function of shapes and element types.

Where a call runs or a graph is bound, both are known when the function is asked (``both``). A
program may also ask a graph for its shapes alone or its types alone, and the ``infer`` function may
look at both. What is not known then is a stand-in that may be passed on (``out.like(inp)``) but
stops the run when it is looked at. A stopped run is tried again with supposed values. So a
supposition decides what ``infer_shape`` and ``infer_type`` of a symbol answer, never what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ._door import TYPES, fail, shape_list, type_list
from ._user_op_def import Conf
from .base import MXNetError, MXTypeError


class _Stop(BaseException):
    """Ends a run that looked at what is not known; no ``except Exception`` of the run takes it."""

    def __init__(self, at: int) -> None:
        self.at = at


class _Unseen:
    """Stands for the shape or element type of input ``at`` while it is not known."""

    __slots__ = ("_at",)

    def __init__(self, at: int) -> None:
        self._at = at

    def _stop(self, *args: Any) -> NoReturn:
        raise _Stop(self._at)

    def __getattr__(self, name: str) -> NoReturn:
        raise _Stop(self._at)

    __hash__ = _stop  # type: ignore[assignment]
    __eq__ = __ne__ = _stop  # type: ignore[assignment]
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __len__ = __iter__ = __contains__ = _stop
    __getitem__ = __add__ = __radd__ = __mul__ = __rmul__ = __index__ = __call__ = _stop
    __str__ = __format__ = _stop

    def __repr__(self) -> str:
        return "<not known yet>"


class TensorDesc:
    """Shape and element type of an input or output during inference."""

    __slots__ = ("shape", "dtype")

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype

    def like(self, other: TensorDesc) -> TensorDesc:
        """Takes over shape and type of ``other``."""
        self.shape, self.dtype = other.shape, other.dtype
        return self


class InputDesc(TensorDesc):
    """That of an input, which is what it is: an error where the function sets it."""

    __slots__ = ()

    def __init__(self, shape: Any, dtype: Any) -> None:
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", dtype)

    def __setattr__(self, name: str, value: Any) -> None:
        raise MXTypeError(f"infer: the {name} of an input is not the function's to set")


class InferContext:
    """What ``infer`` and ``infer_dtype`` see.

    ``inp(name, i=0)`` and ``out(name, i=0)`` have a ``shape`` (tuple of int) and a ``dtype`` (NumPy
    type); those of inputs are read-only. Outputs start as copies of the first input; the function
    sets what is different, or calls ``out.like(inp)``. An argument that there is not, or not so many
    arrays of it, is an MXNetError.

    >>> from rsnet import nd, op
    >>> def infer(ctx):
    ...     n, c = ctx.inp("in").shape
    ...     ctx.out("out").shape = (n,)
    ...     ctx.out("out").dtype = "int32"
    >>> _ = op.define("doc_rows", inputs="in", infer=infer)
    >>> @op.kernel("doc_rows")
    ... def _(ctx):
    ...     ctx.out("out")[:] = ctx.inp("in").asnumpy().argmax(1)
    >>> nd.doc_rows(nd.array([[1, 3], [5, 2]])).asnumpy().tolist()
    [1, 0]
    """

    def __init__(self, conf: Conf, shapes: Sequence[Any], types: Sequence[Any]) -> None:
        self.conf = conf
        self.ins = [InputDesc(s, t) for s, t in zip(shapes, types)]
        first = self.ins[0] if self.ins else TensorDesc(None, None)
        self.outs = [TensorDesc(first.shape, first.dtype) for _ in conf.facts.outputs]

    def inp(self, name: str, i: int = 0) -> TensorDesc:
        """Array ``i`` of an input argument."""
        return self.ins[self.conf.position(name, i, self.conf.definition.inputs)]

    def out(self, name: str, i: int = 0) -> TensorDesc:
        """Array ``i`` of an output argument."""
        return self.outs[self.conf.position(name, i, self.conf.definition.outputs)]

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        return self.conf.attr(name)

    def count(self, name: str) -> int:
        """How many arrays the argument has."""
        return self.conf.counts[name]


_SUPPOSED_TYPES = [t for t in TYPES.values() if t is not None]
_SUPPOSED_SHAPES = [(64,) * rank for rank in (2, 1, 3, 4, 5, 6, 0)]
#: A function that refuses so many suppositions refuses all.
_MOST_RUNS = 200


def _filled(types: Sequence[Any]) -> list[Any]:
    """Input types with the first known one in the place of unknown ones."""
    first = next((t for t in types if t), None)
    return [t or first for t in types]


class Inference:
    """The inference of one operator."""

    def __init__(
        self, name: str, infer: Callable[[Any], Any], infer_dtype: Callable[[Any], Any] | None
    ) -> None:
        self.name, self.infer, self.infer_dtype = name, infer, infer_dtype

    def _run(self, conf: Conf, shapes: Sequence[Any], types: Sequence[Any]) -> InferContext:
        context = InferContext(conf, shapes, types)
        self.infer(context)
        return context

    # The core's three questions ----------------------------------------------------------------

    def both(
        self, conf: Conf, shapes: Sequence[Any], names: list[Any]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Input types, output shapes and output types, where all is known but some input types."""
        names = _filled(names)
        types = [TYPES[t] for t in names]
        context = self._run(conf, shapes, types)
        kinds = context if self.infer_dtype is None else self._by_types(conf, types)
        for name, desc, kind in zip(conf.facts.outputs, context.outs, kinds.outs):
            for what, value in (("shape", desc.shape), ("dtype", kind.dtype)):
                if value is None:
                    raise fail(self.name, f"infer left the {what} of output '{name}' unset")
        return names, self._shapes(context), self._types(kinds)

    def shapes(self, conf: Conf, ins: list[Any]) -> list[Any]:
        """Output shapes from known input shapes."""
        unseen = [_Unseen(i) for i in range(len(ins))]
        return self._shapes(self._supposing(conf, ins, unseen, types=True))

    def types(self, conf: Conf, ins: list[Any]) -> tuple[list[Any], list[Any]]:
        """Input and output types, by name, from input types of which some may be unknown."""
        names = _filled(ins)
        types = [TYPES[t] for t in names]
        if self.infer_dtype is not None:
            return names, self._types(self._by_types(conf, types))
        unseen = [_Unseen(i) for i in range(len(ins))]
        return names, self._types(self._supposing(conf, unseen, types, types=False))

    def _by_types(self, conf: Conf, types: list[Any]) -> InferContext:
        """What ``infer_dtype`` says."""
        context = InferContext(conf, [_Unseen(i) for i in range(len(types))], types)
        assert self.infer_dtype is not None
        try:
            self.infer_dtype(context)
        except _Stop:
            raise fail(self.name, "infer_dtype looks at a shape; it is given types only") from None
        return context

    def _shapes(self, context: InferContext) -> list[Any]:
        names = context.conf.facts.outputs
        return shape_list(self.name, "infer: outputs", [d.shape for d in context.outs], names)

    def _types(self, context: InferContext) -> list[Any]:
        names = context.conf.facts.outputs
        return type_list(self.name, "infer: outputs", [d.dtype for d in context.outs], names)

    # Suppositions ------------------------------------------------------------------------------

    def _supposing(
        self, conf: Conf, shapes: list[Any], kinds: list[Any], *, types: bool
    ) -> InferContext:
        """Runs the function; where it stops at what is unknown, with supposed types or shapes."""
        try:
            return self._run(conf, shapes, kinds)
        except _Stop as stop:
            at = stop.at
        errors: list[Exception] = []
        found = self._suppose(conf, shapes, kinds, at, types, errors)
        if found is not None:
            return found
        if not types:
            # No shape will do: outputs stay as they start.
            return InferContext(conf, shapes, kinds)
        if len({(type(e), str(e)) for e in errors}) == 1:
            raise errors[0]  # whatever the types are
        raise MXNetError(
            f"{self.name}: infer looks at element types that are not known yet and accepts none "
            f"that could be supposed ({errors[0]}); bind the graph with its types"
        ) from errors[0]

    def _suppose(
        self, conf: Conf, shapes: list[Any], kinds: list[Any], at: int, types: bool, errors: list
    ) -> InferContext | None:
        """The first run that ends, over all values of input ``at`` and of what it looks at then."""
        facts = kinds if types else shapes
        for value in _SUPPOSED_TYPES if types else _SUPPOSED_SHAPES:
            tried = [*facts[:at], value, *facts[at + 1 :]]
            both = (shapes, tried) if types else (tried, kinds)
            try:
                return self._run(conf, *both)
            except _Stop as stop:
                found = self._suppose(conf, *both, stop.at, types, errors)
                if found is not None:
                    return found
            except Exception as error:
                errors.append(error)
            if len(errors) > _MOST_RUNS:
                break
        return None
