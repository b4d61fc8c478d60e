"""The attributes of an operator: the table of ``Entry.set_attr`` (``attributes.py``).

Names that start with ``F`` are functions and must be in the table; one that is not is an error that
proposes the nearest. Names that start with ``T``, and all others, are free markers: a program may
set them and read them with ``Entry.attr``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .checks import fail, invalid, unknown


class KernelKind(NamedTuple):
    """A way to compute."""

    device: str
    stateful: bool
    #: The form for NDArrays wins where a device has both.
    extended: bool


KERNELS: dict[str, KernelKind] = {
    f"{base}{'Ex' if extended else ''}<{device}>": KernelKind(device, stateful, extended)
    for base, stateful in (("FCompute", False), ("FStatefulCompute", True))
    for extended in (False, True)
    for device in ("cpu", "gpu")
}


#: The field of the definition that an attribute sets, and its value by (translation, name of the
#: attribute). The other attributes are read when the parameters of a call are parsed.
FIELDS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "FInferShape": ("infer_shape", lambda t, _: t.infer_shape),
    "FInferType": ("infer_type", lambda t, _: t.infer_type),
    "FInplaceOption": ("inplace", lambda t, _: t.inplace),
    "FResourceRequest": ("resources", lambda t, _: t.resources),
    "FSetInputVarAttrOnCompose": ("variable_attrs", lambda t, _: lambda attrs: attrs.on_variables),
    "FCreateOpState": ("state", lambda t, _: t.state),
    "FGradient": ("gradient", lambda t, _: t.gradient()),
    "TIsBackward": ("is_backward", lambda t, name: bool(t.attr(name))),
    "THasDeterministicOutput": ("deterministic", lambda t, name: bool(t.attr(name))),
    "TAccumulates": ("accumulates", lambda t, name: lambda attrs: bool(t.attr(name))),
}

#: The form of each function and the meaning of its result.
FORMS: dict[str, str] = {
    "FListInputNames": "(attrs) -> list of str",
    "FListOutputNames": "(attrs) -> list of str",
    "FNumVisibleOutputs": "(attrs) -> int: number of leading outputs that callers see",
    "FInferShape": "(attrs, in_shapes, out_shapes) -> bool: fills its lists",
    "FInferType": "(attrs, in_types, out_types) -> bool: fills its lists",
    "FCompute<cpu>": "(attrs, ctx, inputs, req, outputs)",
    "FComputeEx<cpu>": "as FCompute, and wins over it",
    "FCreateOpState": "(attrs, ctx, in_shapes, in_types) -> state, once per node or recorded call",
    "FStatefulCompute<cpu>": "(state, ctx, inputs, req, outputs)",
    "FStatefulComputeEx<cpu>": "as FStatefulCompute, and wins over it",
    "FGradient": "(node, out_grads) -> list of GradEntry or None; node is a GradNode",
    "FInplaceOption": "(attrs) -> list of (input, output) that may share memory",
    "FInplaceIdentity": "(attrs) -> list of bool: for each such pair, are the bytes the same?",
    "FResourceRequest": "(attrs) -> list of 'temp_space' or 'random', which are in ctx.requested",
    "FMutateInputs": "(attrs) -> list of int: auxiliary states, which the operator changes",
    "FIgnoreInputs": "(attrs) -> list of int: inputs whose values it does not read",
    "FSetInputVarAttrOnCompose": "(attrs, var, i): var[key] = text on the variable of input i",
    "FExecType": "(attrs) -> 'sync'",
    "TIsBackward": "bool: the operator is the backward one of another",
    "TAccumulates": "bool: its functions handle the request add themselves, as op.assign does",
    "THasDeterministicOutput": "bool: equal calls in a graph may be computed once",
}


def documented(cls: Any) -> Any:
    """Class decorator: puts the table of attributes into the documentation of ``set_attr``."""
    rows = "\n        ".join(f"{name} : {form}" for name, form in FORMS.items())
    note = "\n\n        The compute attributes are also there for <gpu>."
    doc = cls.set_attr.__doc__
    if doc is not None:  # None under python -OO
        cls.set_attr.__doc__ = doc.replace("{attributes}", rows + note)
    return cls


#: Attributes of MXNet that rsnet does not have, and why.
UNSUPPORTED = {
    "FInferStorageType": "all arrays are dense",
    "FInputGraph": "inputs that are graphs do not exist",
    "FNDArrayFunction": "use FCompute<cpu>, whose functions get NDArrays",
    "FResourceRequestEx": "use FResourceRequest",
}


def check_attribute(operator: str, name: Any, value: Any) -> None:
    """Refuses attributes that are never read, and values that must be functions and are not."""
    if not isinstance(name, str) or not name:
        raise invalid(operator, "name of an attribute", name, "a string", TypeError)
    if name in UNSUPPORTED:
        raise fail(operator, f"attribute {name} is not supported in rsnet: {UNSUPPORTED[name]}")
    if not name.startswith("F"):
        return
    if name not in FORMS and name not in KERNELS:
        raise unknown(operator, "attribute", name, (known for known in FORMS if known[0] == "F"))
    if not callable(value):
        raise invalid(operator, f"attribute {name}", value, "a function", TypeError)


def check_kernels(operator: str, names: Mapping[str, Any]) -> None:
    """Refuses two ways to compute on one device of equal precedence."""
    seen: dict[tuple[str, bool], str] = {}
    for name in names:
        if name in KERNELS:
            kernel = KERNELS[name]
            other = seen.setdefault((kernel.device, kernel.extended), name)
            if other != name:
                both = f"{name} and {other} both compute on {kernel.device}"
                one = "one of them, as an operator is stateful or not"
                raise fail(operator, f"{both}: expected {one}")


class InputVariable:
    """A variable that becomes an input: ``name`` of the input, and the attributes to set.

    ``var["__init__"] = '["constant", {"value": 0.25}]'`` sets one; a variable that has the
    attribute already keeps its own.
    """

    __slots__ = ("name", "dict")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dict: dict[str, str] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise invalid(self.name, "name of an attribute", key, "a string", TypeError)
        self.dict[key] = str(value)

    def __getitem__(self, key: str) -> str:
        return self.dict[key]
