"""The chained description of an operator, in OneFlow's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ..checks import fail, unknown
from ..registry import definition
from .conf import Conf

B = TypeVar("B", bound="OperatorBuilder")


class OperatorBuilder:
    """Collects operator, inputs, outputs and attributes; subclasses build from them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._definition: Any = None
        self._inputs: dict[str, list[Any]] = {}
        self._outputs: dict[str, int] = {}
        self._attrs: dict[str, Any] = {}

    def Op(self: B, op_type_name: str) -> B:
        """Chooses the operator; comes before all others."""
        self._definition = definition(op_type_name)
        return self

    def OpTypeName(self: B, op_type_name: str) -> B:
        """As ``Op``."""
        return self.Op(op_type_name)

    def _chosen(self, call: str) -> Any:
        if self._definition is None:
            raise fail(f"user_op_builder('{self._name}')", f"call Op before {call}")
        return self._definition

    def Input(self: B, arg: str, blobs: Sequence[Any]) -> B:
        """Binds the arrays of an input argument; a second call replaces."""
        d = self._chosen("Input")
        if not isinstance(blobs, (list, tuple)):
            raise fail(d.name, f"Input('{arg}') is {type(blobs).__name__}, expected a list")
        self._inputs[arg] = list(blobs)
        return self

    def InputBind(self: B, arg: str, blob: Any) -> B:
        """Appends an array to an input argument."""
        self._inputs.setdefault(arg, []).append(blob)
        return self

    def Output(self: B, arg: str, num: int = 1) -> B:
        """Declares an output argument of ``num`` arrays."""
        d = self._chosen("Output")
        if isinstance(num, bool) or not isinstance(num, int) or num < 1:
            raise fail(d.name, f"Output('{arg}'): num is {num!r}, expected at least 1")
        self._outputs[arg] = num
        return self

    def Attr(self: B, name: str, value: Any, kind: str | None = None) -> B:
        """Sets an attribute; its kind must be exact: an int is not a float. ``kind`` is ignored."""
        d = self._chosen("Attr")
        if name not in d.attrs:
            raise unknown(d.name, "attribute", name, d.attrs)
        self._attrs[name] = d.attrs[name].normal(d.name, name, value)
        return self

    def _checked(self) -> tuple[Any, Conf, list[Any], dict[str, Any]]:
        """The operator, its complete conf, all inputs in order and the parameters of a call."""
        d = self._chosen("Build")
        counts = {arg: len(blobs) for arg, blobs in self._inputs.items()}
        for given, args in ((counts, d.inputs), (self._outputs, d.outputs)):
            for arg in given:
                if not any(a.name == arg for a in args):
                    raise unknown(d.name, "argument", arg, [a.name for a in args])
        declared = self._outputs
        if declared:  # then an optional output is made only if it was declared as well
            declared = {a.name: 0 for a in d.outputs if a.optional} | declared
        conf = d.conf({**counts, **declared}, self._attrs)
        missing = [a.name for a in d.inputs if not a.optional and not self._inputs.get(a.name)]
        if missing:
            raise fail(d.name, f"required input '{missing[0]}' has no arrays")
        flat = [b for arg in d.inputs for b in self._inputs.get(arg.name, ())]
        return d, conf, flat, d.call_params(conf)
