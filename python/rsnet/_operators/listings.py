"""Lists of all operators, built-in ones included, for programs that ask for them."""

from __future__ import annotations

from typing import NamedTuple

from . import registry


def get_all_registered_operators() -> list[str]:
    """Names of all operators, sorted, aliases and custom operators' ``op_type`` names included."""
    return sorted({*registry.names(), *registry.custom_props})


def get_all_registered_operators_grouped() -> dict[str, list[str]]:
    """Operators with all their names, by main name."""
    return registry.aliases()


class OperatorArguments(NamedTuple):
    """The arguments of an operator: their number, names and types."""

    narg: int
    names: list[str]
    types: list[str]


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """Names and type information of an operator's inputs and parameters.

    Returns
    -------
    OperatorArguments
        A tuple ``(narg, names, types)``.

    Raises
    ------
    KeyError
        If no such operator is registered.
    """
    info = registry.info(op_name)
    arguments = [*info["inputs"], *info["params"]]
    return OperatorArguments(len(arguments), [a[0] for a in arguments], [a[1] for a in arguments])
