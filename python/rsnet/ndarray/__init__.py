"""Arrays and the functions on them: ``nd.*``.

Most functions are made from the operator registry when they are first used (see `_register`); those
written by hand are in `_creation`, `_arithmetic`, `_io` and `_indexing`.
"""

from __future__ import annotations

import sys as _sys
from typing import TYPE_CHECKING, Any

from .. import _core
from .._core import NDArray as NDArray
from .._core import waitall as waitall
from .._fluent import add_fluent as _add_fluent
from .._operators import registry as _registry
from ..base import _Null

if TYPE_CHECKING:  # stubs of what `__getattr__` makes
    from .op import *  # noqa: F403

from . import (
    _arithmetic,
    _creation,
    _io,
    _methods,
    _register,
    ndarray,
    random,
)
from ._arithmetic import *  # noqa: F403
from ._cached_op import CachedOp
from ._creation import *  # noqa: F403
from ._io import *  # noqa: F403
from ._register import _internal as _internal
from ._register import contrib as contrib
from ._register import image as image
from ._register import linalg as linalg
from ._register import op as op
from ._register import sparse as sparse
from .ndarray import _DTYPE_MX_TO_NP, _DTYPE_NP_TO_MX
from .ndarray import _GRAD_REQ_MAP, _STORAGE_TYPE_STR_TO_ID


def __getattr__(name: str) -> Any:
    if name == "utils":  # where MXNet defines `load`, `zeros` and the like
        return _sys.modules[__name__]
    found = _register.member(_sys.modules[__name__], "op", name)
    if found is not None:
        return found
    text = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(_registry.absent(name, text), name=name)


def __dir__() -> list[str]:
    return _register.names(_sys.modules[__name__], "op")


for _module in (_arithmetic, _creation, _io):
    _register.HANDWRITTEN.update(_module.__all__)
del _module
vars(_internal)["CachedOp"] = CachedOp  # where MXNet's programs find it as well
_add_fluent(NDArray, _sys.modules[__name__], _methods.FLUENT)
