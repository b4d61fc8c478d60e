"""Initial values of parameters, chosen by a parameter's name.

`init(desc, array)` fills `array`. A variable's attribute `__init__` decides first; then the end
of the name selects a method: `weight` selects `_init_weight`, the initializer's own rule, `bias`
and `beta` the methods that fill with zeros, `gamma` the one that fills with ones. A subclass can
override each of them.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import random
from ._class_registry import register_class
from ._mxnet_names import module_getattr
from .ndarray import NDArray, array

__all__ = [
    "InitDesc",
    "Initializer",
    "register",
    "create",
    "Zero",
    "One",
    "Constant",
    "Uniform",
    "Normal",
    "Orthogonal",
    "Xavier",
    "MSRAPrelu",
    "Bilinear",
    "LSTMBias",
    "FusedRNN",
    "Load",
    "Mixed",
]

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


def create(init: Any, **kwargs: Any) -> Initializer:
    """An initializer from an instance, a name, a dict or the JSON text of `Initializer.dumps`.

    Raises
    ------
    ValueError
        If no initializer has that name.
    """
    if isinstance(init, Initializer):
        return init
    if isinstance(init, str) and init.lstrip().startswith(("[", "{")):
        init = json.loads(init)
    if isinstance(init, dict):
        kwargs = {k: v for k, v in init.items() if k != "initializer"} | kwargs
        init = init["initializer"]
    elif isinstance(init, (list, tuple)):
        name, *rest = init
        kwargs = (rest[0] if rest else {}) | kwargs
        init = name
    try:
        cls = _REGISTRY[init.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(sorted(_REGISTRY))
        raise ValueError(f"Cannot find initializer {init!r}; known are {known}") from None
    return cls(**kwargs)


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
        return json.dumps([type(self).__name__.lower(), self._kwargs])

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
            raise TypeError(f"name must be a string, got {type(desc).__name__}")
        if isinstance(desc, InitDesc):
            if desc.global_init is None:
                desc.global_init = self
            own = desc.attrs.get("__init__", "")
            if own:
                create(own)._init_weight(desc, arr)
                self._log(desc, "from its attribute", arr)
                return
        else:
            warnings.warn(
                "Calling initializer with init(str, NDArray) has been deprecated. Please use "
                "init(mx.init.InitDesc(...), NDArray) instead.",
                DeprecationWarning,
                stacklevel=2,
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
        arr[:] = _bilinear(arr.shape)

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
            f"Unknown initialization pattern for {name}. Names that end in weight, bias, gamma or "
            "beta have a default; give the variable an initializer: Variable(name, init=...)"
        )


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


def _bilinear(shape: tuple[int, ...]) -> NDArray:
    """The kernel of bilinear upsampling in the shape (N, C, H, W)."""
    height, width = shape[2:]
    f = np.ceil(width / 2.0)
    c = (2 * f - 1 - f % 2) / (2.0 * f)
    rows = 1 - np.abs(np.arange(height) / f - c)
    cols = 1 - np.abs(np.arange(width) / f - c)
    kernel = np.broadcast_to(np.outer(rows, cols), shape)
    return array(np.ascontiguousarray(kernel, dtype="float32"))


@register("zeros")
class Zero(Initializer):
    """All zeros."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0


@register("ones")
class One(Initializer):
    """All ones."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0


@register()
class Constant(Initializer):
    """All `value`: a number, or anything that broadcasts to the parameter."""

    def __init__(self, value: Any = 0.0) -> None:
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value


@register()
class Uniform(Initializer):
    """Uniform on [-scale, scale)."""

    def __init__(self, scale: float = 0.07) -> None:
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        random.uniform(-self.scale, self.scale, shape=arr.shape, dtype=arr.dtype, out=arr)


@register()
class Normal(Initializer):
    """Normal with mean 0 and standard deviation `sigma`."""

    def __init__(self, sigma: float = 0.01) -> None:
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, name: str, arr: NDArray) -> None:
        random.normal(0, self.sigma, shape=arr.shape, dtype=arr.dtype, out=arr)


@register()
class Orthogonal(Initializer):
    """`scale` times a random matrix with orthonormal rows or columns (Saxe, arXiv:1312.6120)."""

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        rows, cols = arr.shape[0], int(np.prod(arr.shape[1:]))
        if self.rand_type == "uniform":
            start = random.uniform(-1.0, 1.0, shape=(rows, cols)).asnumpy()
        else:
            start = random.normal(0.0, 1.0, shape=(rows, cols)).asnumpy()
        u, _, v = np.linalg.svd(start, full_matrices=False)
        q = u if u.shape == start.shape else v
        arr[:] = array((self.scale * q).reshape(arr.shape), dtype=arr.dtype)


@register()
class Xavier(Initializer):
    """Spread that keeps the size of signals through a layer (Glorot and Bengio, AISTATS 2010).

    Parameters
    ----------
    rnd_type : {'uniform', 'gaussian'}
        Uniform on [-s, s) or normal with deviation s.
    factor_type : {'avg', 'in', 'out'}
        Which fan divides `magnitude`: s = sqrt(magnitude / fan).
    magnitude : float
        Scale of the variance.

    Raises
    ------
    ValueError
        At the call, for a weight with fewer than two axes or an unknown type.
    """

    def __init__(
        self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3
    ) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        shape = arr.shape
        if len(shape) < 2:
            raise ValueError(
                f"Xavier initializer cannot be applied to vector {name} of shape {shape}: "
                "it needs at least 2 axes"
            )
        area = float(np.prod(shape[2:]))
        fan_in, fan_out = shape[1] * area, shape[0] * area
        fans = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}
        if self.factor_type not in fans:
            raise ValueError(
                f"invalid factor_type {self.factor_type!r}: expected 'avg', 'in' or 'out'"
            )
        scale = float(np.sqrt(self.magnitude / fans[self.factor_type]))
        if self.rnd_type == "uniform":
            random.uniform(-scale, scale, shape=shape, dtype=arr.dtype, out=arr)
        elif self.rnd_type == "gaussian":
            random.normal(0, scale, shape=shape, dtype=arr.dtype, out=arr)
        else:
            raise ValueError(
                f"invalid rnd_type {self.rnd_type!r}: expected 'uniform' or 'gaussian'"
            )


@register()
class MSRAPrelu(Xavier):
    """Xavier for rectifiers of negative slope `slope` (He et al., arXiv:1502.01852)."""

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register()
class Bilinear(Initializer):
    """The kernel of bilinear upsampling, for Deconvolution weights (N, C, H, W)."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = _bilinear(arr.shape)


@register()
class LSTMBias(Initializer):
    """Zeros, with the forget gate (second quarter) at `forget_bias`."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        quarter = arr.shape[0] // 4
        arr[:] = 0.0
        arr[quarter : 2 * quarter] = self.forget_bias


@register
class FusedRNN(Initializer):
    """The packed weights of `rnn.FusedRNNCell`: each piece by an initializer of its own.

    Parameters
    ----------
    init : Initializer, str or None
        For the pieces; None: the initializer of the whole model.
    num_hidden, num_layers, mode, bidirectional, forget_bias
        As for the cell.
    """

    def __init__(
        self,
        init: Any,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        init = create(init) if isinstance(init, str) else init
        super().__init__(
            init=None if init is None else init.dumps(), num_hidden=num_hidden,
            num_layers=num_layers, mode=mode, bidirectional=bidirectional, forget_bias=forget_bias,
        )  # fmt: skip
        self._init = init
        self._options = (num_hidden, num_layers, mode, bidirectional)
        self._forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        from .rnn import FusedRNNCell

        cell = FusedRNNCell(*self._options, prefix="")
        pieces = cell.unpack_weights({"parameters": arr})
        whole = getattr(name, "global_init", None)
        for piece, value in pieces.items():
            desc = InitDesc(piece, global_init=whole)
            if self._options[2] == "lstm" and piece.endswith("_f_bias"):
                value[:] = self._forget_bias
            elif self._init is not None:
                self._init(desc, value)
            elif whole is not None:
                whole(desc, value)
            else:
                raise ValueError(f"{name}: FusedRNN(init=None) needs the initializer of a model")
        arr[:] = cell.pack_weights(pieces)["parameters"].reshape(arr.shape)


class Load:
    """Takes values from `param` (a dict or a file); `default_init` fills the others.

    Raises
    ------
    ValueError
        At the call, if the shapes differ, or a name is missing and there is no default.
    """

    def __init__(
        self,
        param: dict[str, NDArray] | str,
        default_init: Callable[[str, NDArray], None] | None = None,
        verbose: bool = False,
    ) -> None:
        if isinstance(param, str):
            from .ndarray import load

            loaded: dict[str, NDArray] = load(param)
        else:
            loaded = param
        self.param = {re.sub("^(arg:|aux:)", "", k): v for k, v in loaded.items()}
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, arr: NDArray) -> None:
        if name in self.param:
            found = self.param[name]
            if found.shape != arr.shape:
                raise ValueError(
                    f"Parameter {name} cannot be initialized from loading: shape {found.shape}, "
                    f"expected {arr.shape}"
                )
            arr[:] = found
        elif self.default_init is not None:
            self.default_init(name, arr)
        else:
            raise ValueError(f"Cannot initialize {name}: not in the loaded parameters, no default")


class Mixed:
    """Uses the initializer whose pattern is the first that matches the name."""

    def __init__(
        self, patterns: Sequence[str], initializers: Sequence[Callable[[str, NDArray], None]]
    ) -> None:
        if len(patterns) != len(initializers):
            raise ValueError(f"{len(patterns)} patterns for {len(initializers)} initializers")
        self.map = list(zip([re.compile(p) for p in patterns], initializers, strict=True))

    def __call__(self, name: str, arr: NDArray) -> None:
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        raise ValueError(
            f"Parameter name {name} did not match any pattern. Consider adding a '.*' pattern at "
            "the end with a default initializer"
        )


__getattr__ = module_getattr(__name__)
