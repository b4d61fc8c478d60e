"""Stubs (``.pyi``) of the functions that are made from the registry at import."""

from __future__ import annotations

import inspect
import keyword
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .. import ndarray, symbol
from ..ndarray import _by_numbers, _contrib, _contrib_updates
from ..ndarray._methods import fluent_names
from ..ndarray._register import HANDWRITTEN
from ..symbol import _contrib as _symbol_contrib
from ..symbol import _control_flow
from .registry import facts, names_of, operators, place_of

#: Namespaces that have no file of their own.
NAMESPACES = ("op", "contrib", "linalg", "image")
#: Functions written by hand, by module and namespace: the files that have them.
_WRITTEN = {
    ("ndarray", "contrib"): (_by_numbers, _contrib, _contrib_updates),
    ("symbol", "contrib"): (_symbol_contrib, _control_flow),
}

_PLAIN = {
    "boolean": "_bool", "int": "_int", "int (non-negative)": "_int", "long": "_int",
    "long (non-negative)": "_int", "float": "_float", "double": "_float", "string": "_str",
    "Shape(tuple)": "_int | Sequence[_int | None]", "Shape": "_int | Sequence[_int | None]",
    "tuple of <float>": "_float | Sequence[_float]",
    "tuple of <double>": "_float | Sequence[_float]",
    "tuple of <long>": "_int | Sequence[_int]",
}  # fmt: skip


def python_type(name: str, kind: str) -> str:
    """The annotation of a parameter whose type information is `kind`."""
    if name == "dtype":
        return "Any"  # a name, a NumPy type or dtype
    if kind.startswith("{"):
        inside = kind[: kind.index("}")]
        keys = [k for k in re.findall(r"'([^']*)'", inside) if k != "None"]
        none = " | None" if "None" in inside else ""
        return f"Literal[{', '.join(map(repr, keys))}]{none}"
    base = re.split(r",\s*(?:required|optional)", kind)[0]
    if base.endswith(" or None"):
        inner = _PLAIN.get(base.removesuffix(" or None"))
        return "Any" if inner is None else f"{inner} | None"
    return _PLAIN.get(base, "Any")


def _result(name: str, array: str) -> str:
    """Annotation of the result, `Any` where the number of outputs depends on parameters."""
    try:
        made = symbol.register.function(name)()
    except Exception:  # required parameters, which may set the number of outputs
        return "Any"
    return array if len(made.list_outputs()) == 1 else f"list[{array}]"


def stub(module: str, namespace: str, *, built_in: bool = True) -> str:
    """The stub of a namespace (``"op"``, ``"contrib"``) of ``"ndarray"`` or ``"symbol"``: of
    built-in operators only, or of all that are registered.
    """
    array = "NDArray" if module == "ndarray" else "Symbol"
    source = "_core" if module == "ndarray" else "symbol.symbol"
    functions: dict[str, str] = {}
    for operator in operators(built_in=built_in):
        for name in names_of(operator):
            home, short = place_of(name)
            if home == namespace and _is_name(short):
                functions[short] = _function(name, short, array)
    handwritten = HANDWRITTEN if module == "ndarray" else set(vars(symbol))
    by_hand = _WRITTEN.get((module, namespace), ())
    written = {name: file.__name__.rpartition(".")[2] for file in by_hand for name in file.__all__}
    made = {short: text for short, text in functions.items() if short not in written}
    public = [short for short in made if not short.startswith("_") and short not in handwritten]
    lines = [f"__all__ = {sorted([*public, *written])!r}", ""]
    lines += [made[short] for short in sorted(made)]
    return _file(source, array, lines, written) if functions else ""


def methods_stub() -> str:
    """The stub of the class whose methods are functions of `nd`: a base of `NDArray` in
    `_core.pyi`.
    """
    lines = ["class Fluent:"]
    for name in fluent_names():
        signature = inspect.signature(getattr(ndarray.NDArray, name))
        # The defaults at run time are of another type than the values: all are `Any`.
        shown = ", ".join(_parameter(p) for p in signature.parameters.values())
        result = "Any" if name in HANDWRITTEN else _result(name, "NDArray")
        lines.append(f"    def {name}({shown}) -> {result}: ...")
    return _file("_core", "NDArray", lines)


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}: Any"
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}: Any"
    return f"{parameter.name}: Any" + ("" if parameter.default is parameter.empty else " = ...")


def _file(
    source: str, array: str, lines: list[str], written: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The text of a stub; `written` are names of functions with the files that have them."""
    head = [
        '"""Written by `python -m rsnet.docs --stubs`; do not edit."""',
        "",
        "from collections.abc import Sequence",
        "from typing import Any, Literal, TypeAlias",
        "",
        f"from ..{source} import {array}",
        *(f"from .{file} import {name} as {name}" for name, file in sorted(written.items())),
        "",
        *(f"_{t}: TypeAlias = {t}" for t in ("bool", "int", "float", "str")),
        "",
    ]
    return "\n".join([*head, *lines]) + "\n"


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _shown_inputs(info: Mapping[str, Any]) -> tuple[list[str], int]:
    """The names of the inputs in a signature, as in the one at run time, and how many of them are
    positional-only: those up to the last that is named like a keyword, and has another name here.
    """
    names = [key for key, _, _ in info["inputs"]]
    taken = {*names, *(key for key, *_ in info["params"])}
    shown = []
    for i, key in enumerate(names):
        other = f"{key}_" if _is_name(f"{key}_") else f"array{i}"
        while other in taken:
            other += "_"
        shown.append(key if _is_name(key) else other)
    return shown, max((i for i, key in enumerate(names, 1) if not _is_name(key)), default=0)


def _function(name: str, short: str, array: str) -> str:
    info = facts(name)
    taken: list[str] = []
    arguments = []
    if info["variadic"]:
        arguments.append(f"*data: {array} | Sequence[{array}]")
        taken.append("data")
    else:
        shown, positional = _shown_inputs(info)
        arguments = [f"{key}: {array} | None = ..." for key in shown]
        arguments[positional:positional] = ["/"] if positional else []
        taken += shown
    for key, kind, _, _ in info["params"]:
        if _is_name(key) and key not in taken and key not in ("num_args", "out", "name", "attr"):
            arguments.append(f"{key}: {python_type(key, kind)} = ...")
            taken.append(key)
    if array == "NDArray":
        arguments.append("out: NDArray | Sequence[NDArray] | None = ...")
    arguments.append("name: _str | None = ...")
    arguments.append("**kwargs: Any")
    return f"def {short}({', '.join(arguments)}) -> {_result(name, array)}: ..."


def write_stubs(package: str | os.PathLike[str], *, built_in: bool = True) -> list[str]:
    """Writes the stubs below the folder of the package; returns their paths. See :func:`stub`."""
    texts = {
        f"{m}/{n}.pyi": stub(m, n, built_in=built_in)
        for m in ("ndarray", "symbol")
        for n in NAMESPACES
    }
    texts["ndarray/_fluent.pyi"] = methods_stub()
    written = []
    for name, text in texts.items():
        if text:  # a namespace may have no operators
            path = Path(package) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(str(path))
    return written
