"""Where headers and libraries for compiled operators would be: rsnet has none yet."""

from __future__ import annotations

from ..base import MXNotImplementedError

WITHOUT_LIBRARIES = (
    "rsnet has no compiled operator libraries yet: write the operator in Python "
    "(rsnet.op.define, rsnet.op.kernel)"
)


def _refuse(what: str) -> MXNotImplementedError:
    return MXNotImplementedError(f"sysconfig.{what}: {WITHOUT_LIBRARIES}")


def get_include() -> str:
    """Raises `rsnet.error.NotImplementedError`: rsnet has no headers."""
    raise _refuse("get_include")


def get_lib() -> str:
    """Raises `rsnet.error.NotImplementedError`: there is nothing to link with."""
    raise _refuse("get_lib")


def get_compile_flags() -> list[str]:
    """Raises `rsnet.error.NotImplementedError`: rsnet has no headers."""
    raise _refuse("get_compile_flags")


def get_link_flags() -> list[str]:
    """Raises `rsnet.error.NotImplementedError`: there is nothing to link with."""
    raise _refuse("get_link_flags")
