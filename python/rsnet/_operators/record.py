"""What is known of an operator that is registered by attributes. ``Entry`` adds methods to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .attrs import kVarg
from .checks import MOST_OPERANDS, invalid, is_integer


@dataclass(eq=False, repr=False)
class OperatorRecord:
    """The fields of one operator. Its definition in the core reads them when it is used."""

    name: str
    #: Views that kernels get unless they ask for others.
    views: str = field(init=False, default="ndarray")
    #: Level and value by the name of an attribute, and the kind of views of each kernel.
    attributes: dict[str, tuple[int, Any]] = field(init=False, default_factory=dict)
    kernel_views: dict[str, str] = field(init=False, default_factory=dict)
    #: A class of parameters, or a function of texts.
    param: Any = field(init=False, default=None)
    num_inputs: Any = field(init=False, default=1)
    num_outputs: Any = field(init=False, default=1)
    arguments: list[tuple[str, str, str]] = field(init=False, default_factory=list)
    input_docs: Mapping[str, str] = field(init=False, default_factory=dict)
    param_docs: dict[str, tuple[str, str]] = field(init=False, default_factory=dict)
    aliases: list[str] = field(init=False, default_factory=list)
    doc: str = field(init=False, default="")
    key_var_num_args: str | None = field(init=False, default=None)
    #: Whether the core has the operator.
    installed: bool = field(init=False, default=False)
    #: Whether the decorator ``op.op`` made the record, and whether it was replaced.
    decorated: bool = field(init=False, default=False)
    superseded: bool = field(init=False, default=False)

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        return self.attributes.get(name, (0, default))[1]

    def number(self, what: str, n: Any, least: int) -> int:
        """``n`` as an int, if an operator may have that many operands."""
        if is_integer(n, least):
            return int(n)
        any_number = f", or op.kVarg ({kVarg}) for any number" if "inputs" in what else ""
        expected = f"{least} to {MOST_OPERANDS}, or a function of attrs{any_number}"
        raise invalid(self.name, what, n, expected)
