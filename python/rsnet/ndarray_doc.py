"""Documentation of operators of arrays by name.

``ndarray_doc.ReshapeDoc.__doc__`` is the documentation of ``nd.Reshape``, and so on.
"""

from __future__ import annotations

from ._operator_docs import documented_operators

__all__ = ["NDArrayDoc"]


class NDArrayDoc:
    """What classes such as `ReshapeDoc` derive from."""


__getattr__ = documented_operators(__name__, "ndarray", NDArrayDoc)
