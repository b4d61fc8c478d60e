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

    def _run(self, conf: Conf, shapes: Sequence[Any], types: Sequence[Any]) -> InferContext:
        context = InferContext(conf, shapes, types)
        self.infer(context)
        return context

    def both(self, conf: Conf, shapes: Sequence[Any], names: list[Any]) -> Found:
        """Input types, output shapes and output types, where all is known but some input types."""
        names = _filled(names)
        types = [TYPES[t] for t in names]
        context = self._run(conf, shapes, types)
        kinds = context if self.infer_dtype is None else self._by_types(conf, types)
        for name, desc, kind in zip(conf.facts.outputs, context.outs, kinds.outs):
            for what, value in (("shape", desc.shape), ("dtype", kind.dtype)):
                if value is None:
                    raise invalid(self.name, f"{what} of '{name}' after infer", value, f"a {what}")
        return names, self._outputs(context, "shape"), self._outputs(kinds, "dtype")

    def shapes(self, conf: Conf, ins: list[Any]) -> list[Any]:
        """Output shapes from known input shapes; all types are taken to be float32."""
        return self._outputs(self._run(conf, ins, [np.float32] * len(ins)), "shape")

    def types(self, conf: Conf, ins: list[Any]) -> tuple[list[Any], list[Any]] | None:
        """Input and output types, by name, from input types of which some may be unknown; ``None``
        if shapes would have to be known.
        """
        names = _filled(ins)
        types = [TYPES[t] for t in names]
        if self.infer_dtype is not None:
            return names, self._outputs(self._by_types(conf, types), "dtype")
        try:
            return names, self._outputs(self._run(conf, [UNKNOWN] * len(ins), types), "dtype")
        except ShapeUnknown:
            return None

    def _by_types(self, conf: Conf, types: list[Any]) -> InferContext:
        """The result of ``infer_dtype``."""
        context = InferContext(conf, [UNKNOWN] * len(types), types)
        assert self.infer_dtype is not None
        try:
            self.infer_dtype(context)
        except ShapeUnknown:
            raise fail(self.name, "infer_dtype reads a shape: expected types only") from None
        return context

    def _outputs(self, context: InferContext, what: str) -> list[Any]:
        """The shapes, or the types, of the outputs, checked."""
        checked, found = _LISTS[what], [getattr(desc, what) for desc in context.outs]
        return checked(self.name, "outputs of infer", found, context.conf.facts.outputs)
