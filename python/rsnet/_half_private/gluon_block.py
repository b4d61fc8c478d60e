"""What `mxnet.gluon.block` has for blocks that programs write."""

from __future__ import annotations

from typing import Any

from ..gluon._scope import BlockScope as _BlockScope
from ..gluon._structure import flatten as _flatten
from ..gluon._structure import regroup

__all__ = ["_BlockScope", "_flatten", "_regroup"]


def _regroup(args: list[Any], fmt: Any) -> Any:
    """The nested list of which `_flatten` made the flat one and its structure."""
    return regroup(args, fmt)[0]
