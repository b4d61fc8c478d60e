"""The tables of operators written in Python, one for each way of registering.

The namespaces ``nd`` and ``sym`` get the reason for a missing name from :func:`absent`, and are
notified of new operators through :func:`subscribe`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .. import _core
from .._missing_operators import why_missing_operator
from .._on_demand import import_on_demand
from .._warnings import warn
from ..base import MXNetError

#: Classes for ``nd.Custom``, by ``op_type``.
custom_props: dict[str, type[Any]] = {}
#: Subclasses of ``OperatorProperty``.
properties: dict[str, type[Any]] = {}
#: Records of operators registered by attributes, unfinished ones included.
entries: dict[str, Any] = {}
#: User operators that are defined.
user_operators: dict[str, Any] = {}

#: Operators of libraries that are none of these, because user operators have no such attributes.
only_in_nd: dict[str, list[str]] = {}
#: Kernels and gradients registered before their user operator is defined.
waiting_kernels: dict[str, list[Any]] = {}
waiting_gradients: dict[str, Any] = {}


#: Operators of this package that are written in Python, and the modules that define them when one
#: of the names is first asked for.
_ON_DEMAND = {
    prefix + name: f"{__package__}.{module}"
    for name, module in {"Custom": "custom_op", "_Native": "legacy", "_NDArray": "legacy"}.items()
    for prefix in ("", "_backward_")
}


def version(name: str) -> int | None:
    """The number of the registration of an operator or alias; ``None`` if there is none."""
    found = _core.registry_version(name)
    if found is None and name in _ON_DEMAND:
        import_on_demand(_ON_DEMAND[name])
        found = _core.registry_version(name)
    return found


def define_named(text: str | None = None) -> None:
    """Defines the operators on demand that the text of a symbol file names; without one, all."""
    for name in _ON_DEMAND:
        if text is None or f'"{name}"' in text:
            version(name)


def names() -> list[str]:
    """Names of all operators of the core, aliases included."""
    define_named()
    return _core.operator_names()


def info(name: str) -> dict[str, Any]:
    """``name``, ``doc``, ``inputs``, ``params`` ... of an operator; KeyError if there is none."""
    version(name)
    return _core.operator_info(name)


def get_all_registered_operators() -> list[str]:
    """Names of all operators, sorted, aliases and custom operators' ``op_type`` names included."""
    return sorted({*names(), *custom_props})


def get_all_registered_operators_grouped() -> dict[str, list[str]]:
    """Operators with all their names, by main name."""
    define_named()
    return _core.operator_aliases()


class OperatorArguments(NamedTuple):
    """The arguments of an operator: their number, names and types."""

    narg: int
    names: list[str]
    types: list[str]


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """Names and type information of an operator's inputs and parameters.

    Returns
    -------
    OperatorArguments
        A tuple ``(narg, names, types)``.

    Raises
    ------
    KeyError
        If no such operator is registered.
    """
    found = info(op_name)
    arguments = [*found["inputs"], *found["params"]]
    return OperatorArguments(len(arguments), [a[0] for a in arguments], [a[1] for a in arguments])


def missing(name: str) -> str | None:
    """The reason why a registered operator is not in ``nd`` and ``sym`` yet.

    Returns ``None`` if there is no record of the name.
    """
    entry = entries.get(name)
    if entry is not None and not entry.installed:
        return (
            f"operator '{name}' is registered, but cannot be used yet: it lacks a way to compute, "
            'set_attr("FCompute<cpu>", f) or set_attr("FStatefulCompute<cpu>", f)'
        )
    if name in waiting_kernels or name in waiting_gradients:
        text = f"operator '{name}' has a kernel or gradient, but no op.define says what it is"
        return text + nearest(name, user_operators)
    return None


def absent(name: str, text: str) -> str:
    """The message ``text`` for a missing function, with the reason or the nearest name."""
    why = missing(name)
    if why is None and (reason := why_missing_operator(name)) is not None:
        why = f"{text}: {reason}"
    if why is not None or name.startswith("_"):
        return why or text
    from .._pytorch_names import hint  # for errors only: it would slow the import of rsnet

    return text + (hint("nd", name) or nearest(name, names(), 0.75))


def close(name: object, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The known name that is most like ``name``, if any is like it."""
    import difflib  # for errors only: it would add to the time of importing rsnet

    return difflib.get_close_matches(str(name), list(known), 1, cutoff)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a message about a missing name: the one that is most like it, if any; a private
    one for a private name only.
    """
    near = close(name, (k for k in known if name[:1] == "_" or k[:1] != "_"), cutoff)
    return f", did you mean '{near[0]}'?" if near else ""


_UNREGISTERED = re.compile(r"operator (\S+) is not registered")


def with_reasons(text: str) -> str:
    """The error of a file of unknown operators: each type once, with the reason if it is MXNet's,
    and what can be done about them.
    """
    lines = dict.fromkeys(line for line in text.splitlines() if _UNREGISTERED.search(line))
    if not lines:
        return text

    def reason(found: re.Match[str]) -> str:
        return why_missing_operator(found[1]) or found[0]

    advice = "mx.sym.load(file, allow_unknown=True) loads the file without them."
    if not all(map(why_missing_operator, _UNREGISTERED.findall(text))):
        advice = (
            "An operator that a program defines has to be registered first: import its module. "
            + advice
        )
    return _UNREGISTERED.sub(reason, "\n".join([*lines, advice]))


def definition(name: str) -> Any:
    """The registered user operator of this name; MXNetError if there is none."""
    try:
        return user_operators[name]
    except KeyError:
        raise MXNetError(_unknown_operator(name)) from None


def _unknown_operator(name: str) -> str:
    if name in only_in_nd:
        listed = ", ".join(only_in_nd[name])
        return (
            f"operator '{name}' of a library is not a user operator: these cannot have its "
            f"attributes {listed}; call it by nd or sym"
        )
    known = ", ".join(sorted(user_operators)) or "none"
    hint = nearest(name, user_operators)
    return f"user operator '{name}' is not registered{hint} (registered are: {known})"


def warn_of_replacing(what: str, new: str) -> None:
    """Warns that something is registered a second time."""
    warn(f"{what} is registered again; the new {new} replaces the old")


#: The two functions that each namespace was subscribed with.
_namespaces: list[tuple[Callable[[str], object], Callable[[str], str | None]]] = []


def subscribe(
    add_function: Callable[[str], object], hidden_by: Callable[[str], str | None]
) -> None:
    """Registers a namespace that has a function for every operator.

    Parameters
    ----------
    add_function : callable
        Called with the name of every new or replaced operator.
    hidden_by : callable
        Returns what an operator of that name would hide in the namespace, ``None`` for nothing.
    """
    _namespaces.append((add_function, hidden_by))


def announce(names: Sequence[str]) -> None:
    """Lets the namespaces make functions for the names of an operator."""
    for add_function, _ in _namespaces:
        for name in names:
            add_function(name)


def hidden_by(name: str) -> str | None:
    """What an operator ``name`` would hide; ``None`` for nothing."""
    return next((found for _, hides in _namespaces if (found := hides(name)) is not None), None)
