"""Facts about operators that pages and stubs are made from."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._operators import registry
from ..ndarray._register import home_of


def operators(*, built_in: bool = False) -> list[str]:
    """Main names of all operators but the backward ones, sorted."""
    names = registry.get_all_registered_operators_grouped()
    return sorted(
        name
        for name in names
        if not _core.is_backward_operator(name)
        and (_core.is_builtin_operator(name) or not built_in)
    )


def names_of(operator: str) -> list[str]:
    """All names of an operator, the main one first."""
    names = registry.get_all_registered_operators_grouped()[operator]
    return [operator, *sorted(set(names) - {operator})]


def place_of(name: str) -> tuple[str, str]:
    """Namespace and function name, as ``("contrib", "quadratic")`` or ``("op", "relu")``."""
    return home_of(name)


def call_of(name: str, module: str = "nd") -> str:
    """How a program writes the function: ``nd.contrib.quadratic``."""
    home, short = place_of(name)
    return f"{module}.{short}" if home == "op" else f"{module}.{home}.{short}"


def facts(name: str) -> dict[str, Any]:
    """``doc``, ``inputs``, ``params`` and ``variadic`` of an operator."""
    return registry.info(name)
