"""Classes that carry the documentation of operators, for `ndarray_doc` and `symbol_doc`."""

from __future__ import annotations

from collections.abc import Callable

from ._on_demand import import_on_demand


def documented_operators(qualified: str, functions: str, base: type) -> Callable[[str], type]:
    """A module's `__getattr__`: ``NameDoc`` is a class with the documentation of operator Name.

    Parameters
    ----------
    qualified : str
        The module.
    functions : str
        The module of the package that has the operators.
    base : type
        What the classes derive from.
    """
    package = qualified.rpartition(".")[0]

    def find(name: str) -> type:
        operator = None
        if name.endswith("Doc"):
            module = import_on_demand(f"{package}.{functions}")
            operator = getattr(module, name.removesuffix("Doc"), None)
        if not callable(operator):
            raise AttributeError(f"module {qualified!r} has no attribute {name!r}")
        return type(name, (base,), {"__doc__": operator.__doc__, "__module__": qualified})

    return find
