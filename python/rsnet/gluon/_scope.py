"""Names of blocks: each block is named within the block whose `name_scope` is open.

Outside of any scope names are counted per thread by the current `NameManager`, inside by the
enclosing block: ``hybridsequential0_dense1_``.
"""

from __future__ import annotations

import threading
from typing import Any

from .. import name as _name
from .parameter_dict import ParameterDict

__all__ = ["BlockScope"]

_current = threading.local()


class BlockScope:
    """Scope in which blocks are named after `block`. May be entered again."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._counter: dict[str, int] = {}
        self._before: list[Any] = []

    @staticmethod
    def create(prefix: str | None, params: Any, hint: str) -> tuple[str, ParameterDict]:
        """The prefix and the parameters of a new block."""
        scope = getattr(_current, "scope", None)
        if scope is None:
            if prefix is None:
                prefix = _name.current().get(None, hint) + "_"
            own = ParameterDict(prefix) if params is None else ParameterDict(params.prefix, params)
            return prefix, own
        if prefix is None:
            count = scope._counter.get(hint, 0)
            scope._counter[hint] = count + 1
            prefix = f"{hint}{count}_"
        if params is None:
            outer = scope._block.params
            own = ParameterDict(outer.prefix + prefix, outer._shared)
        else:
            own = ParameterDict(params.prefix, params)
        return scope._block.prefix + prefix, own

    def __enter__(self) -> BlockScope:
        if self._block._empty_prefix:
            self._before.append(None)
            return self
        names = _name.Prefix(self._block.prefix)
        self._before.append((getattr(_current, "scope", None), names))
        _current.scope = self
        names.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        before = self._before.pop()
        if before is None:
            return
        _current.scope, names = before
        names.__exit__(*exc)
