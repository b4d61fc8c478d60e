"""What operators are asked for, and what they ask for: requests for outputs and for resources."""

from __future__ import annotations

import enum
from typing import Any

from .base import MXNetError


class OpReq(str, enum.Enum):
    """What an operator is asked to do with an output; equal to its text, ``int(req)`` is 0 to 3."""

    null = "null"
    write = "write"
    inplace = "inplace"
    add = "add"

    def __int__(self) -> int:
        return _REQ_NUMBERS[self._value_]

    __index__ = __int__
    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]


_REQ_NUMBERS = {"null": 0, "write": 1, "inplace": 2, "add": 3}


class ResourceRequest(str, enum.Enum):
    """A resource that an operator asks for: scratch memory or random numbers."""

    temp_space = "temp_space"
    random = "random"


def assign(dst: Any, req: str | int, src: Any) -> None:
    """Stores ``src`` in ``dst`` as the request says: null nothing, write and inplace overwrite, add
    adds.

    Raises
    ------
    rsnet.MXNetError
        For any other request.
    """
    if req == "write" or req == "inplace":
        dst[:] = src
    elif req == "null":
        return
    elif req == "add":
        dst[:] += src
    elif isinstance(req, int) and 0 <= req < 4:
        assign(dst, tuple(_REQ_NUMBERS)[req], src)
    else:
        raise MXNetError(f"assign: unknown request {req!r}, valid are {list(_REQ_NUMBERS)}")
