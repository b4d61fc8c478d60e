"""Where headers and libraries for operator libraries are."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def get_include() -> str:
    return str(_PACKAGE / "include")


def get_lib() -> str:
    return str(_PACKAGE)


def get_compile_flags() -> list[str]:
    return ["-I" + get_include()]


def get_link_flags() -> list[str]:
    """Nothing has to be linked."""
    return []
