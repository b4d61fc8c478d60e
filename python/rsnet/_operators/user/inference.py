"""Inference of user operators: one function of shapes and element types.

Where a call runs or a graph is bound, both are known when the function is called (``both``). A
program may also ask a graph for its shapes alone, where types are taken to be float32, or for its
types alone, which are not known if the function reads shapes and there is no ``infer_dtype``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..checks import TYPES, fail, invalid, shape_list, type_list
from .arguments import Conf
from .contexts import UNKNOWN, InferContext, ShapeUnknown


def _filled(types: Sequence[Any]) -> list[Any]:
    """Input types with the first known one in the place of unknown ones."""
    first = next((t for t in types if t), None)
    return [t or first for t in types]


#: What checks a list of shapes, or of types.
_LISTS: dict[str, Callable[..., list[Any]]] = {"shape": shape_list, "dtype": type_list}
#: Input types, output shapes and output types.
Found = tuple[list[Any], list[Any], list[Any]]


class Inference:
    """What shapes and element types the outputs of an operator have, by the functions of its
    author: the core's three questions.
    """

    def __init__(
        self, name: str, infer: Callable[[Any], Any], infer_dtype: Callable[[Any], Any] | None
    ) -> None:
        self.name, self.infer, self.infer_dtype = name, infer, infer_dtype

    def _run(
        self, conf: Conf, shapes: Sequence[Any], types: Sequence[Any], function: Any = None
    ) -> InferContext:
        context = InferContext(conf, shapes, types)
        (function or self.infer)(context)
        return context

    def both(self, conf: Conf, shapes: Sequence[Any], names: list[Any]) -> Found:
        """Input types, output shapes and output types, where all is known but some input types."""
        names = _filled(names)
        types = [TYPES[t] for t in names]
        context = self._run(conf, shapes, types)
        kinds = (self._by_types(conf, types) if self.infer_dtype else None) or context
        for name, desc, kind in zip(conf.facts.outputs, context.outs, kinds.outs):
            for what, value in (("shape", desc.shape), ("dtype", kind.dtype)):
                if value is None:
                    raise invalid(self.name, f"{what} of '{name}' after infer", value, f"a {what}")
        return names, self._outputs(context, "shape"), self._outputs(kinds, "dtype")

    def shapes(self, conf: Conf, ins: list[Any], outs: list[Any], exact: bool) -> Any:
        """Shapes of inputs and outputs, if those of the inputs are known; all types are taken to
        be float32.
        """
        if not exact:
            return None
        return ins, self._outputs(self._run(conf, ins, [np.float32] * len(ins)), "shape"), True

    def types(self, conf: Conf, ins: list[Any], outs: list[Any]) -> Any:
        """Input and output types, by name, from input types of which some may be unknown; ``None``
        if all are, or if shapes would have to be known.
        """
        if ins and not any(ins):
            return None
        names = _filled(ins)
        context = self._by_types(conf, [TYPES[t] for t in names])
        return context and (names, self._outputs(context, "dtype"))

    def _by_types(self, conf: Conf, types: list[Any]) -> InferContext | None:
        """The outputs by a function that sees types alone; ``None`` if ``infer`` reads shapes."""
        try:
            return self._run(conf, [UNKNOWN] * len(types), types, self.infer_dtype)
        except ShapeUnknown:
            if self.infer_dtype is None:
                return None
            raise fail(self.name, "infer_dtype reads a shape: expected types only") from None

    def _outputs(self, context: InferContext, what: str) -> list[Any]:
        """The shapes, or the types, of the outputs, checked."""
        checked, found = _LISTS[what], [getattr(desc, what) for desc in context.outs]
        return checked(self.name, "outputs of infer", found, context.conf.facts.outputs)
