"""Confs of user operators: the description of one use as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checks import invalid, unknown
from ..definition import Facts
from .arguments import Arg


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
