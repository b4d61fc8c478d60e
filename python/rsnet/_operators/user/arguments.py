"""Arguments of user operators, in the language of ``inputs=`` and ``outputs=``, and confs: the
description of one use as data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..checks import MOST_OPERANDS, NAME, invalid, unknown
from ..definition import Facts


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


class Conf:
    """One use of a user operator: how many arrays each argument has, and all attributes."""

    __slots__ = ("definition", "counts", "attrs", "facts", "starts")

    def __init__(self, definition: Any, counts: dict[str, int], attrs: dict[str, Any]) -> None:
        self.definition, self.counts, self.attrs = definition, counts, attrs
        self.starts: dict[str, int] = {}
        ins, outs = self._arrays(definition.inputs), self._arrays(definition.outputs)
        self.facts = Facts(ins, outs, len(outs))

    def _arrays(self, args: Sequence[Arg]) -> tuple[str, ...]:
        """The names of all arrays of arguments; notes where those of each begin."""
        names: list[str] = []
        for arg in args:
            self.starts[arg.name] = len(names)
            names += [arg.tensor(i) for i in range(self.counts[arg.name])]
        return tuple(names)

    def position(self, arg: str, i: int, args: Sequence[Arg]) -> int:
        """Where array ``i`` of argument ``arg`` stands among all inputs or outputs."""
        if not any(a.name == arg for a in args):
            what = "input" if args is self.definition.inputs else "output"
            raise unknown(self.definition.name, what, arg, [a.name for a in args])
        n = self.counts[arg]
        if not 0 <= i < n:
            there = f"0 to {n - 1}" if n else "none, it is absent"
            raise invalid(self.definition.name, f"index of argument '{arg}'", i, there)
        return self.starts[arg] + i

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        if name not in self.definition.attrs:
            raise unknown(self.definition.name, "attribute", name, self.definition.attrs)
        return self.attrs[name]


class NotGiven(BaseException):
    """Ends a check of the defaults that reads an attribute which has none."""


class Defaults(dict[str, Any]):
    """The attributes of a conf before any is given."""

    def __missing__(self, key: str) -> Any:
        raise NotGiven(key)
