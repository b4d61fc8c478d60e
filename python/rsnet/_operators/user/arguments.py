"""Arguments of user operators: the language of ``inputs=`` and ``outputs=``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..checks import MOST_OPERANDS, NAME, invalid


class Arg(NamedTuple):
    """An input or output that stands for ``count``, or at least ``count``, arrays."""

    name: str
    count: int = 1  # type: ignore[assignment]
    at_least: bool = False
    optional: bool = False

    @property
    def single(self) -> bool:
        """At most one array: it goes by the argument's own name."""
        return self.count == 1 and not self.at_least

    @property
    def fixed(self) -> bool:
        return not self.at_least and not self.optional

    def tensor(self, i: int) -> str:
        return self.name if self.single else f"{self.name}_{i}"

    def check(self, op: str, n: int) -> None:
        fits = n == self.count or (n > self.count if self.at_least else False)
        if not fits and not (n == 0 and self.optional):
            bound = "at least " if self.at_least else ""
            absent = " or none" if self.optional else ""
            what = f"number of arrays of argument '{self.name}'"
            raise invalid(op, what, n, f"{bound}{self.count}{absent}")


_ARG = re.compile(r"(\w+)(?:\*(\d+)(\+?))?(\??)\Z")


def parse_args(op: str, what: str, text: str | Sequence[str]) -> tuple[Arg, ...]:
    """``"x, w?, more*2+"`` as arguments; see ``define``."""
    if isinstance(text, str):
        items = text.split(",") if text.strip() else []
    elif isinstance(text, Sequence) and all(isinstance(item, str) for item in text):
        items = list(text)
    else:
        raise invalid(op, f"{what}s", text, "a string or a list of strings")
    return tuple(_arg(op, what, item.strip()) for item in items)


def _arg(op: str, what: str, item: str) -> Arg:
    found = _ARG.match(item)
    if found is None or not found[1].isidentifier():
        forms = f"name, name*5, name*2+, name?, name*5? or name*2+?, where name is {NAME}"
        raise invalid(op, what, item, forms)
    name, digits, plus, optional = found.groups()
    # Counting digits first: int() refuses a text of too many of them.
    count = int(digits or 1) if len(digits or "") <= len(str(MOST_OPERANDS)) else MOST_OPERANDS + 1
    if not 0 < count <= MOST_OPERANDS:
        raise invalid(op, f"number of arrays of {what}", item, f"1 to {MOST_OPERANDS}")
    return Arg(name, count, bool(plus), bool(optional))
