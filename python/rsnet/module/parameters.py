"""The values of a module's parameters on the host, which modules over one memory share."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .. import ndarray as nd
from .._warnings import warn
from ..initializer import InitDesc
from ..ndarray import NDArray
from .executor_group import DataParallelExecutorGroup
from .properties import NOTHING


class Parameters:
    """Parameters and auxiliary states by name, as arrays on the CPU.

    Attributes
    ----------
    arg, aux : dict of str to NDArray
    have_values : bool
        Were they initialised or loaded?
    are_behind : bool
        Do the devices have newer values?
    """

    def __init__(self) -> None:
        self.arg: dict[str, NDArray] = NOTHING
        self.aux: dict[str, NDArray] = NOTHING
        self.have_values = False
        self.are_behind = False

    def take(self, arg: dict[str, NDArray], aux: dict[str, NDArray]) -> None:
        """Keeps the arrays of a checkpoint."""
        self.arg, self.aux, self.have_values = arg, aux, True

    def allocate(
        self, arg_names: Sequence[str], aux_names: Sequence[str], group: DataParallelExecutorGroup
    ) -> None:
        """Makes zeros of the shapes that the devices have."""

        def zeros(names: Sequence[str], blocks: list[list[NDArray]]) -> dict[str, NDArray]:
            firsts = [block[0] for block in blocks]
            return {n: nd.zeros(b.shape, dtype=b.dtype) for n, b in zip(names, firsts, strict=True)}

        self.arg = zeros(arg_names, group.param_arrays)
        self.aux = zeros(aux_names, group.aux_arrays)

    def fill(
        self,
        initializer: Any,
        arg_params: dict[str, NDArray] | None,
        aux_params: dict[str, NDArray] | None,
        allow_missing: bool,
        attrs: dict[str, dict[str, str]],
    ) -> None:
        """Gives each its value: the given one, else the initializer's.

        Raises
        ------
        TypeError
            There is neither, and no values from before.
        """
        if self.arg and not self.have_values and initializer is arg_params is aux_params is None:
            names = ", ".join(map(repr, sorted(self.arg)))
            raise TypeError(f"invalid initializer None: expected one, or arg_params with {names}")
        pairs = (self.arg, arg_params), (self.aux, aux_params)
        for own, given in pairs:  # all of them before anything changes
            if given is not None:
                _check_given(own, given, allow_missing)
        for own, given in pairs:
            for name, array in sorted(own.items()):
                desc = InitDesc(name, attrs.get(name))
                _fill(desc, array, None if given is None else given.get(name), initializer)
        self.have_values, self.are_behind = True, False


def _check_given(own: dict[str, NDArray], given: dict[str, NDArray], allow_missing: bool) -> None:
    """Refuses values that are missing or have another shape."""
    surplus = [name for name in given if name not in own]
    for name, array in sorted(own.items()):
        value = given.get(name)
        if value is None:
            _accept_missing(name, surplus, allow_missing)
        elif tuple(value.shape) != array.shape:
            raise ValueError(
                f"parameter '{name}' has shape {tuple(value.shape)}, expected {array.shape}"
            )


def _accept_missing(name: str, surplus: list[str], allow_missing: bool) -> None:
    """Refuses that no value is given, or warns if one of nearly the same name would go unused."""
    if not allow_missing:
        near = difflib.get_close_matches(name, surplus, n=1)
        got = f", got one for '{near[0]}'" if near else ""
        raise RuntimeError(
            f"missing parameter '{name}': expected a value for it{got}, or allow_missing=True"
        )
    unused = next((other for other in surplus if _seems_misspelt(other, name)), None)
    if unused is not None:
        warn(f"missing parameter '{name}': initialised; got an unused value for '{unused}'")


def _seems_misspelt(name: str, right: str) -> bool:
    """Two letters have changed places, or one is missing or too many. Other numbers are those of
    another layer.
    """
    if abs(len(name) - len(right)) > 1 or name[:1] != right[:1]:
        return False
    letters = Counter(name)
    letters.subtract(right)
    changed = [letter for letter, count in letters.items() if count]
    if len(changed) > 1 or any(letter.isdigit() for letter in changed):
        return False
    return difflib.SequenceMatcher(None, name, right).ratio() > 0.85


def _fill(desc: InitDesc, array: NDArray, value: NDArray | None, initializer: Any) -> None:
    if value is not None:
        if value is not array:
            array[:] = value
    elif initializer is not None:
        initializer(desc, array)
