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

# Functions written by hand, which the registry's functions of the same name do not replace.
_HANDWRITTEN: set[str] = set()

if TYPE_CHECKING:  # stubs of what `__getattr__` makes
    from .op import *  # noqa: F403

from . import (  # noqa: E402
    _arithmetic,
    _creation,
    _io,
    _methods,
    _register,
    ndarray,
    random,
)
from ._arithmetic import *  # noqa: E402, F403
from ._cached_op import CachedOp  # noqa: E402
from ._creation import *  # noqa: E402, F403
from ._io import *  # noqa: E402, F403
from ._register import _internal as _internal  # noqa: E402
from ._register import contrib as contrib  # noqa: E402
from ._register import image as image  # noqa: E402
from ._register import linalg as linalg  # noqa: E402
from ._register import op as op  # noqa: E402
from ._register import sparse as sparse  # noqa: E402

_DTYPE_MX_TO_NP, _DTYPE_NP_TO_MX = ndarray._DTYPE_MX_TO_NP, ndarray._DTYPE_NP_TO_MX
_GRAD_REQ_MAP, _STORAGE_TYPE_STR_TO_ID = ndarray._GRAD_REQ_MAP, ndarray._STORAGE_TYPE_STR_TO_ID


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
    _HANDWRITTEN.update(_module.__all__)
del _module
_add_fluent(NDArray, _sys.modules[__name__], _methods.FLUENT)
