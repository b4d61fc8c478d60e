"""The packed weights of the operator `RNN`: all layers and directions in one array."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from . import ndarray as nd
from .ndarray import NDArray

#: Suffixes of the gates, in the order of their rows.
GATES = {
    "rnn_relu": ("",),
    "rnn_tanh": ("",),
    "lstm": ("_i", "_f", "_c", "_o"),
    "gru": ("_r", "_z", "_o"),
}


def parts_in_order(
    num_layers: int, directions: Sequence[str], groups: Sequence[str] = ("i2h", "h2h")
) -> Iterator[tuple[str, int, str, str]]:
    """Kind, layer, direction and group of each part of the packed array, in its order."""
    return itertools.product(("weight", "bias"), range(num_layers), directions, groups)


def taken(where: str, args: dict[str, NDArray], name: str) -> NDArray:
    """Takes a weight of a cell out of a dict.

    Raises
    ------
    KeyError
        It is missing.
    """
    if name not in args:
        given = ", ".join(sorted(args)) or "none"
        raise KeyError(f"{where}: expected the weight '{name}' among the given, which are {given}")
    return args.pop(name)


class PackedWeights(NamedTuple):
    """The layout of the packed array: names and shapes of its parts."""

    num_hidden: int
    num_layers: int
    mode: str
    bidirectional: bool = False
    prefix: str = ""

    @property
    def gates(self) -> tuple[str, ...]:
        """Suffixes of the gates."""
        return GATES[self.mode]

    @property
    def directions(self) -> tuple[str, ...]:
        """Letters of the directions."""
        return ("l", "r") if self.bidirectional else ("l",)

    @property
    def key(self) -> str:
        """The name of the packed array."""
        return f"{self.prefix}parameters"

    def num_input(self, size: int) -> int:
        """The width of the input, given the number of all weights."""
        gates, hidden, ways = len(self.gates), self.num_hidden, len(self.directions)
        upper = (self.num_layers - 1) * (hidden * ways + hidden + 2)
        return size // (ways * hidden * gates) - upper - hidden - 2

    def pieces(self, num_input: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and shape of every part, in the order of the array."""
        hidden, ways = self.num_hidden, len(self.directions)
        for kind, layer, direction, group in parts_in_order(self.num_layers, self.directions):
            below = num_input if layer == 0 else hidden * ways
            width = below if group == "i2h" else hidden
            for gate in self.gates:
                name = f"{self.prefix}{direction}{layer}_{group}{gate}_{kind}"
                yield name, (hidden, width) if kind == "weight" else (hidden,)

    def unpack(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """Weights with an array for each gate, from the packed one; other entries stay."""
        args = dict(args)
        packed = taken("unpack_weights", args, self.key).reshape((-1,))
        num_input = max(1, self.num_input(packed.size))
        pieces = [(name, shape, int(np.prod(shape))) for name, shape in self.pieces(num_input)]
        expected = sum(size for _, _, size in pieces)
        if packed.size != expected:
            raise ValueError(f"{self.key} has {packed.size} elements, expected {expected}")
        begin = 0
        for name, shape, size in pieces:
            args[name] = packed[begin : begin + size].reshape(shape).copy()
            begin += size
        return args

    def pack(self, args: dict[str, NDArray]) -> dict[str, NDArray]:
        """The packed array, from those with an array for each gate."""
        args = dict(args)
        name = f"{self.prefix}l0_i2h{self.gates[0]}_weight"
        args[name] = first = taken("pack_weights", args, name)
        pieces = self.pieces(first.shape[1])
        parts = [taken("pack_weights", args, name).reshape((-1,)) for name, _ in pieces]
        args[self.key] = nd.concat(*parts, dim=0)
        return args
