"""Documentation of operators of symbols by name, and a helper of its examples.

``symbol_doc.ActivationDoc.__doc__`` is the documentation of ``sym.Activation``, and so on.
"""

from __future__ import annotations

from typing import Any

from ._operator_docs import documented_operators

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


__getattr__ = documented_operators(__name__, "symbol", SymbolDoc)
