"""Checks of what callers pass to the ways to bind: contexts, lists of arrays, requests, limits."""

from __future__ import annotations

from typing import Any

from .._warnings import warn
from ..base import MXNetError, MXValueError, shown
from ..context import Context, as_context
from ..executor import Executor
from ..ndarray import NDArray

_REQS = ("null", "write", "add")


def check_context(ctx: Any) -> Context:
    """`ctx` as a context."""
    return as_context(ctx)


def argument_names(names: list[str]) -> list[str]:
    """The names of the arguments, each of which is there once: shapes and arrays go by them."""
    if len(set(names)) != len(names):
        twice = min(name for name in names if names.count(name) > 1)
        raise MXValueError(
            f"duplicate argument name '{twice}': expected every name once, got {names}"
        )
    return names


def arrays(what: str, given: Any, names: list[str], allow_missing: bool) -> list[NDArray | None]:
    """The arrays of a list (by position) or a dict (by name)."""
    if isinstance(given, dict):
        missing = [name for name in names if name not in given]
        if missing and not allow_missing:
            raise ValueError(f"invalid {what} {list(given)!r}: expected a key '{missing[0]}'")
        found = [given.get(name) for name in names]
    elif isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise ValueError(
                f"invalid length of {what} {len(given)}: expected {len(names)}: {names}"
            )
        found = list(given)
    else:
        raise TypeError(
            f"invalid {what} {shown(given)}: expected a list of NDArrays or a dict of them"
        )
    for name, value in zip(names, found, strict=True):
        if not (isinstance(value, NDArray) or (value is None and allow_missing)):
            raise TypeError(f"invalid item '{name}' of {what} {shown(value)}: expected an NDArray")
    return found


def warn_of_unknown(what: str, given: dict[str, Any], names: list[str]) -> None:
    """A misspelt name would silently have no effect; a longer list than needed is common, too."""
    unknown = [name for name in given if name not in names]
    if unknown:
        warn(
            f"{what} names {', '.join(map(repr, unknown))}, which the symbol does not have; its "
            f"arguments are {', '.join(names)}"
        )


def bind_reqs(grad_req: Any, names: list[str], wrong: type[Exception]) -> list[str]:
    """One request an argument from the forms that `grad_req` may have."""
    if isinstance(grad_req, str):
        reqs = [grad_req] * len(names)
    elif isinstance(grad_req, (list, tuple)):
        if len(grad_req) != len(names):
            raise wrong(
                f"invalid length of grad_req {len(grad_req)}: expected {len(names)}: {names}"
            )
        reqs = list(grad_req)
    elif isinstance(grad_req, dict):
        warn_of_unknown("grad_req", grad_req, names)
        reqs = [grad_req.get(name, "null") for name in names]
    else:
        raise TypeError(f"invalid grad_req {shown(grad_req)}: expected a string, list or dict")
    for name, req in zip(names, reqs, strict=True):
        if req not in _REQS:
            raise wrong(
                f"invalid grad_req {shown(req)} of '{name}': expected one of: {', '.join(_REQS)}"
            )
    return reqs


def check_groups(group2ctx: Any) -> dict[str, Context] | None:
    """`group2ctx` if it maps names of groups to contexts; `None` if it is empty."""
    if not isinstance(group2ctx, dict | None):
        raise TypeError(
            f"invalid group2ctx {shown(group2ctx)}: expected a dict of names to Contexts"
        )
    groups = (group2ctx or {}).items()
    return {name: as_context(c, f"item '{name}' of group2ctx") for name, c in groups} or None


def check_shared(shared_exec: Any) -> Executor | None:
    """`shared_exec` if it is an executor or `None`."""
    if shared_exec is not None and not isinstance(shared_exec, Executor):
        raise TypeError(f"invalid shared_exec {shown(shared_exec)}: expected an Executor")
    return shared_exec


def simple_reqs(where: str, grad_req: Any, names: list[str]) -> list[str]:
    """As `bind_reqs`, where `None` stands for no gradients; `where` begins the error."""
    if grad_req is None:
        return ["null"] * len(names)
    if isinstance(grad_req, (list, tuple, dict)) and not grad_req:
        raise MXNetError(
            f"{where}: invalid grad_req {grad_req!r}: expected a request, or some of them"
        )
    return bind_reqs(grad_req, names, MXNetError)
