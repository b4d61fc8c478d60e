"""Requests for outputs, as operators get them: the core asks for these when rsnet is imported."""

from __future__ import annotations

import enum


class OpReq(str, enum.Enum):
    """What an operator is asked to do with an output; equal to its text, ``int(req)`` is 0 to 3."""

    __module__ = "rsnet.operator"  # where programs find it

    null = "null"
    write = "write"
    inplace = "inplace"
    add = "add"

    def __int__(self) -> int:
        return REQ_NUMBERS[self._value_]

    __index__ = __int__
    __str__ = str.__str__
    __repr__ = str.__repr__  # lists of requests print as in MXNet
    __format__ = str.__format__  # type: ignore[assignment]


REQ_NUMBERS = {"null": 0, "write": 1, "inplace": 2, "add": 3}
