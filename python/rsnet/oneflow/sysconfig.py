"""Where headers for compiled operators are: OneFlow's names of :mod:`rsnet.sysconfig`."""

from __future__ import annotations

from ..sysconfig import get_compile_flags, get_include, get_lib, get_link_flags

__all__ = ["get_include", "get_lib", "get_compile_flags", "get_link_flags"]
