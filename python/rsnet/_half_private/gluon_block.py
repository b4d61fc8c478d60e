"""What `mxnet.gluon.block` has for blocks that programs write."""

from ..gluon._scope import BlockScope as _BlockScope
from ..gluon._structure import flatten as _flatten
from ..gluon._structure import regroup as _regroup

__all__ = ["_BlockScope", "_flatten", "_regroup"]
