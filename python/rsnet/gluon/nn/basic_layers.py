"""Containers, dense layers, embedding, dropout and functions as layers.

The layers that normalise are in `normalization`; they can be imported from here too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ... import ndarray as nd
from ... import symbol as sym
from ..._numbers import integer
from ...base import shown
from ..block import Block
from ..hybrid_block import HybridBlock
from ..utils import indented
from .activations import activation_layer
from .normalization import (
    BatchNorm,
    BatchNormReLU,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
)

__all__ = [
    "BatchNorm",
    "BatchNormReLU",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "HybridLambda",
    "HybridSequential",
    "InstanceNorm",
    "Lambda",
    "LayerNorm",
    "Sequential",
]


class _Stack(Block):
    """What both containers have: children by number."""

    def add(self, *blocks: Any) -> None:
        """Adds blocks at the end."""
        for block in blocks:
            if not isinstance(block, Block):
                hint = " (nn.Lambda makes one of a function)" if callable(block) else ""
                raise TypeError(
                    f"{type(self).__name__}.add: invalid block {shown(block)}: expected a Block"
                    + hint
                )
            self.register_child(block)

    def _run(self, x: Any, args: tuple[Any, ...]) -> Any:
        for block in self._children.values():
            x = block(x, *args)
            args = ()
            if isinstance(x, (tuple, list)):
                args = tuple(x[1:])
                x = x[0]
        return (x, *args) if args else x

    def __repr__(self) -> str:
        inside = "\n".join(
            f"  ({key}): {indented(repr(block), 2)}" for key, block in self._children.items()
        )
        return f"{type(self).__name__}(\n{inside}\n)"

    def __getitem__(self, key: Any) -> Any:
        layers = list(self._children.values())[key]
        if not isinstance(layers, list):
            return layers
        net = type(self)(prefix=self._prefix)
        with net.name_scope():
            net.add(*layers)
        return net

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._children.values())


class Sequential(_Stack):
    """Blocks one after the other; what one returns is given to the next.

    Examples
    --------
    >>> import rsnet as mx
    >>> from rsnet.gluon import nn
    >>> net = nn.Sequential()
    >>> with net.name_scope():
    ...     net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    >>> net.initialize()
    >>> net(mx.nd.ones((3, 5))).shape
    (3, 2)
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def forward(self, x: Any, *args: Any) -> Any:
        return self._run(x, args)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridizes the children that are `HybridBlock`s."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            warnings.warn(
                f"All children of this Sequential layer '{self.prefix}' are HybridBlocks. Consider "
                "using HybridSequential for the best performance.",
                stacklevel=2,
            )
        super().hybridize(active, **kwargs)


class HybridSequential(_Stack, HybridBlock):
    """Hybrid blocks one after the other, which can run as one planned graph."""

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._run(x, args)


class Dense(HybridBlock):
    """A dense layer: act(x Wᵀ + b).

    Parameters
    ----------
    units : int
        Width of the output.
    activation : str, optional
        See `Activation`.
    use_bias : bool
    flatten : bool
        True: all axes but the first are one, and the output has shape (N, units). False: the layer
        works on the last axis, and the output has shape (..., units).
    dtype : dtype
    weight_initializer, bias_initializer : Initializer or str, optional
    in_units : int
        Width of the input; 0: the first forward pass decides.

    Examples
    --------
    >>> import rsnet as mx
    >>> layer = mx.gluon.nn.Dense(3, in_units=2)
    >>> layer.initialize(init="ones")
    >>> layer(mx.nd.array([[1, 2]])).asnumpy().tolist()
    [[3.0, 3.0, 3.0]]
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._flatten = flatten
        self._units = units = integer("units", units, least=1)
        self._in_units = in_units
        with self.name_scope():
            self.weight: Any = self.params.get(
                "weight",
                shape=(units, in_units),
                init=weight_initializer,
                dtype=dtype,
                allow_deferred_init=True,
            )
            if use_bias:
                self.bias: Any = self.params.get(
                    "bias",
                    shape=(units,),
                    init=bias_initializer,
                    dtype=dtype,
                    allow_deferred_init=True,
                )
            else:
                self.bias = None
            self.act = activation_layer("Dense", activation)

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        operands = (x, weight) if bias is None else (x, weight, bias)
        out = F.FullyConnected(
            *operands,
            no_bias=bias is None,
            num_hidden=self._units,
            flatten=self._flatten,
            name="fwd",
        )
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        shape = self.weight.shape
        act = self.act if self.act else "linear"
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]}, {act})"


class Dropout(HybridBlock):
    """While training, zeroes each element with probability `rate` and scales the others.

    Parameters
    ----------
    rate : float
        In [0, 1).
    axes : tuple of int
        Axes along which all elements share their fate.
    """

    def __init__(self, rate: float, axes: tuple[int, ...] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._rate = rate
        self._axes = axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd", cudnn_off=False)
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


class Embedding(HybridBlock):
    """A vector for every index.

    Parameters
    ----------
    input_dim : int
        How many indices there are.
    output_dim : int
        Width of a vector.
    dtype : dtype
    weight_initializer : Initializer or str, optional
    sparse_grad : bool
        Only False: sparse arrays are not supported, and a dense gradient has the same numbers.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sparse_grad:
            raise NotImplementedError(
                "Embedding: invalid sparse_grad True: expected sparse_grad=False, whose gradient "
                "has the same numbers (sparse arrays are not supported)"
            )
        self._input_dim = input_dim
        self._output_dim = output_dim
        self._kwargs = {"input_dim": input_dim, "output_dim": output_dim, "dtype": dtype}
        self.weight = self.params.get(
            "weight",
            shape=(input_dim, output_dim),
            init=weight_initializer,
            dtype=dtype,
            allow_deferred_init=True,
        )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        dtype = self._kwargs["dtype"]
        return f"{type(self).__name__}({self._input_dim} -> {self._output_dim}, {dtype})"


class Flatten(HybridBlock):
    """All axes but the first as one."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__


def _function(function: Any, owner: str, *modules: Any) -> list[Any]:
    """The functions of this name in the modules, or the given one."""
    if isinstance(function, str):
        for module in modules:
            if not hasattr(module, function):
                raise AssertionError(
                    f"{owner}: invalid function {function!r}: expected the name of one in "
                    f"{module.__name__.rpartition('.')[2]}"
                )
        return [getattr(module, function) for module in modules]
    if callable(function):
        return [function]
    raise ValueError(
        f"Unrecognized function in lambda: {function} of type {type(function)}: expected a "
        "function or the name of one"
    )


class Lambda(Block):
    """A function as a block.

    Parameters
    ----------
    function : str or callable
        A function of arrays, or the name of one in `nd`.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.gluon.nn.Lambda("tanh")(mx.nd.zeros((1,))).asnumpy().tolist()
    [0.0]
    """

    def __init__(self, function: Any, prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        self._func_impl = _function(function, "Lambda", nd)[0]

    def forward(self, *args: Any) -> Any:
        return self._func_impl(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self._func_impl, '__name__', self._func_impl)})"


class HybridLambda(HybridBlock):
    """A function as a hybrid block.

    Parameters
    ----------
    function : str or callable
        A function ``f(F, x, ...)``, or the name of one that `nd` and `sym` have.
    """

    def __init__(self, function: Any, prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        found = _function(function, "HybridLambda", nd, sym)
        if isinstance(function, str):
            array_function, symbol_function = found
            self._func_name = function

            def chosen(F: Any, *args: Any) -> Any:
                return (symbol_function if F is sym else array_function)(*args)

            self._func: Callable[..., Any] = chosen
        else:
            self._func = function
            self._func_name = getattr(function, "__name__", repr(function))

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._func(F, x, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"
