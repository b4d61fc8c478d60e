"""A helper of examples about symbols."""

from __future__ import annotations

from typing import Any

__all__ = ["SymbolDoc"]


class SymbolDoc:
    """What examples in the documentation of symbols use."""

    @staticmethod
    def get_output_shape(sym: Any, **input_shapes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The shape of every output, by name.

        >>> import rsnet as mx
        >>> SymbolDoc.get_output_shape(mx.sym.exp(mx.sym.Variable("x"), name="e"), x=(2, 3))
        {'e_output': (2, 3)}
        """
        _, shapes, _ = sym.infer_shape(**input_shapes)
        return dict(zip(sym.list_outputs(), shapes, strict=True))
