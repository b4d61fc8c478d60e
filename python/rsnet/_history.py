"""The recorded history of an array as a Symbol, for `autograd.get_symbol`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from . import _core
from .base import MXNetError

if TYPE_CHECKING:
    from .symbol import Symbol

_variables = itertools.count()
_nodes = itertools.count()
_anonymous = itertools.count()


def symbol_of(array: _core.NDArray) -> Symbol:
    """The Symbol whose evaluation computes `array` again.

    Leaves are named ``var<N>``, calls ``node_<N>`` and inputs that are on no tape ``null<N>``.
    """
    from .symbol import Variable
    from .symbol.register import create

    found = _core.history(array)
    if found is None:
        raise MXNetError(
            "get_symbol: invalid array without a history: expected one that was recorded"
        )
    calls, (head, output) = found
    made = []
    for op, params, inputs in calls:
        if op is None:
            made.append(Variable(f"var{next(_variables)}"))
            continue
        if not op:
            raise MXNetError(
                "get_symbol: invalid history, which holds an autograd.Function, or calls that "
                "backward has cleared: expected calls of operators only"
            )
        args = []
        for place in inputs:
            if place is None:
                args.append(Variable(f"null{next(_anonymous)}"))
            else:
                source = made[place[0]]
                args.append(source[place[1]] if len(source.list_outputs()) > 1 else source)
        made.append(create(op, op.lower(), args, {}, dict(params), name=f"node_{next(_nodes)}"))
    return made[head][output] if len(made[head].list_outputs()) > 1 else made[head]
