"""The base class and registry of initializers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from .._class_registry import (
    TABLES,
    class_named,
    name_and_arguments,
    register_aliases,
    register_class,
)
from .._warnings import warn
from ..ndarray import NDArray, array

__all__ = ["InitDesc", "Initializer", "alias", "create", "register"]

_REGISTRY: dict[str, type[Initializer]] = {}


class InitDesc(str):
    """The name of a parameter, with its attributes and the initializer of the whole model."""

    attrs: dict[str, str]
    global_init: Initializer | None

    def __new__(
        cls,
        name: str,
        attrs: dict[str, str] | None = None,
        global_init: Initializer | None = None,
    ) -> InitDesc:
        desc = super().__new__(cls, name)
        desc.attrs = attrs or {}
        desc.global_init = global_init
        return desc


def register(*aliases: Any) -> Any:
    """Class decorator: makes an initializer known to `create` by its name and `aliases`.

    Bare (``@register``), or with aliases (``@register("zeros")``).
    """
    return register_class(_REGISTRY, aliases)


def alias(*aliases: str) -> Any:
    """Class decorator: makes an initializer known to `create` under further names."""
    return register_aliases(_REGISTRY, aliases)


def create(init: Any, **kwargs: Any) -> Initializer:
    """An initializer from an instance, a name, a dict or the JSON text of `Initializer.dumps`.

    Raises
    ------
    ValueError
        If no initializer has that name, or the text is no such JSON.
    """
    if isinstance(init, Initializer):
        return init
    name, arguments = name_and_arguments("initializer", init)
    return class_named(_REGISTRY, "initializer", name)(**arguments | kwargs)


def check_name(name: str) -> None:
    """Refuses the name of no initializer; JSON texts are looked at where they are used."""
    if not name.lstrip().startswith(("[", "{")):
        class_named(_REGISTRY, "initializer", name)


def _plain(value: Any) -> Any:
    """An array, or a number of NumPy's, as JSON can have it."""
    if isinstance(value, NDArray):
        value = value.asnumpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"invalid argument {value!r} of an initializer: expected what JSON can have")


class Initializer:
    """Base class: selects a method by the name of a parameter.

    A subclass defines `_init_weight`, and may override the methods for other endings: `_init_bias`,
    `_init_gamma`, `_init_beta`, `_init_zero` (`min`), `_init_one` (`max`),
    `_init_quantized_weight`, `_init_quantized_bias`, and `_init_default` for all other names.
    """

    _verbose = False
    _print_func: Callable[[NDArray], str] | None = None

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def set_verbosity(
        self, verbose: bool = False, print_func: Callable[[NDArray], str] | None = None
    ) -> Initializer:
        """Logs a line for every parameter filled; returns the initializer.

        Parameters
        ----------
        verbose : bool
            Whether to log.
        print_func : callable
            Summary of an array; its norm divided by the root of its size by default.
        """
        self._verbose = verbose
        self._print_func = print_func or _root_mean_square
        return self

    def dumps(self) -> str:
        """JSON text from which `create` makes an equal initializer."""
        return json.dumps([type(self).__name__.lower(), self._kwargs], default=_plain)

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self._kwargs.items())
        return f"{type(self).__name__}({inside})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Initializer) and self.dumps() == other.dumps()

    __hash__ = object.__hash__

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Fills `arr`, the parameter named `desc`.

        Raises
        ------
        TypeError
            If `desc` is not a string.
        ValueError
            If neither an attribute nor the ending of the name selects a rule.
        """
        if not isinstance(desc, str):
            raise TypeError(f"invalid name {desc!r}: expected a string")
        if isinstance(desc, InitDesc):
            if desc.global_init is None:
                desc.global_init = self
            own = desc.attrs.get("__init__", "")
            if own:
                create(own)._init_weight(desc, arr)
                self._log(desc, "from its attribute", arr)
                return
        else:
            warn(
                f"the name {desc!r} of an array to initialize is a str, which is deprecated: "
                "expected an InitDesc",
                DeprecationWarning,
            )
        method, what = _method_for(desc)
        getattr(self, method)(desc, arr)
        self._log(desc, what, arr)

    def _log(self, name: str, what: str, arr: NDArray) -> None:
        if self._verbose and self._print_func is not None:
            logging.info("Initialized %s as %s: %s", name, what, self._print_func(arr))

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define '_init_weight'")

    def _init_zero(self, _: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_one(self, _: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_bias(self, _: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_gamma(self, _: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_beta(self, _: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_quantized_weight(self, _: str, arr: NDArray) -> None:
        arr[:] = array(np.random.randint(-127, 127, size=arr.shape), dtype="int8")

    def _init_quantized_bias(self, _: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_bilinear(self, _: str, arr: NDArray) -> None:
        arr[:] = bilinear(arr.shape)

    def _init_loc_bias(self, name: str, arr: NDArray) -> None:
        if arr.shape != (6,):
            raise ValueError(f"invalid shape of {name} {arr.shape}: expected (6,)")
        arr[:] = array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])

    def _init_default(self, name: str, arr: NDArray) -> None:
        # Symbols give moving statistics an initializer of their own; parameters listed by hand have
        # none, and the name leaves no doubt.
        for ending, method in _STATISTICS:
            if name.endswith(ending):
                getattr(self, method)(name, arr)
                return
        raise ValueError(
            f"invalid name {name!r} of a variable without initializer: expected one that ends in "
            "weight, bias, gamma or beta, or an initializer: Variable(name, init=...)"
        )


TABLES[Initializer] = _REGISTRY


_STATISTICS = [
    ("moving_mean", "_init_zero"),
    ("moving_var", "_init_one"),
    ("moving_inv_var", "_init_zero"),
    ("moving_avg", "_init_zero"),
]
_ENDINGS = [
    ("weight", "_init_weight"),
    ("bias", "_init_bias"),
    ("gamma", "_init_gamma"),
    ("beta", "_init_beta"),
    ("min", "_init_zero"),
    ("max", "_init_one"),
]
_QUANTIZED = [
    ("weight_quantize", "_init_quantized_weight"),
    ("bias_quantize", "_init_quantized_bias"),
]


def _method_for(desc: str) -> tuple[str, str]:
    """The method that fills parameter `desc`, and the part of the name that selects it.

    A plain string follows the older rules, which also know the layers `upsampling` and `stn_loc`.
    """
    endings = _ENDINGS + _QUANTIZED
    if not isinstance(desc, InitDesc):
        endings = _ENDINGS + _STATISTICS
        if desc.startswith("upsampling"):
            return "_init_bilinear", "upsampling"
        if desc.startswith("stn_loc") and desc.endswith("weight"):
            return "_init_zero", "stn_loc"
        if desc.startswith("stn_loc") and desc.endswith("bias"):
            return "_init_loc_bias", "stn_loc"
    for ending, method in endings:
        if desc.endswith(ending):
            return method, ending
    return "_init_default", "default"


def _root_mean_square(arr: NDArray) -> str:
    values = arr.asnumpy()
    return str(np.linalg.norm(values) / np.sqrt(values.size))


def bilinear(shape: tuple[int, ...]) -> NDArray:
    """The kernel of bilinear upsampling in the shape (N, C, H, W)."""
    height, width = shape[2:]
    f = np.ceil(width / 2.0)
    c = (2 * f - 1 - f % 2) / (2.0 * f)
    rows = 1 - np.abs(np.arange(height) / f - c)
    cols = 1 - np.abs(np.arange(width) / f - c)
    kernel = np.broadcast_to(np.outer(rows, cols), shape)
    return array(np.ascontiguousarray(kernel, dtype="float32"))
