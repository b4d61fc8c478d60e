"""Convolutions, transposed convolutions and padding."""

from __future__ import annotations

from typing import Any

from ... import symbol as sym
from ..hybrid_block import HybridBlock
from .activations import activation_layer
from .layouts import checked_layout, per_axis
from .pooling import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
)
from .pooling import _Pooling as _Pooling  # programs derive layers from it by this module's name

__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "ReflectionPad2D",
]


class _Conv(HybridBlock):
    """Base of convolutions.

    Parameters
    ----------
    channels : int
        Output channels.
    kernel_size, strides, padding, dilation : int or tuple of int
        By axis.
    groups : int
        Number of groups of channels, each convolved by itself.
    layout : str
        Order of batch, channels and axes of the input.
    activation : str, optional
        Applied to the output, see `Activation`.
    use_bias : bool
    weight_initializer, bias_initializer : Initializer or str, optional
    in_channels : int
        Input channels; 0: the first forward pass decides.
    """

    _axes = 0
    _op_name = "Convolution"

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        output_padding: Any = None,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        layout = checked_layout(type(self).__name__, layout, self._axes)
        with self.name_scope():
            self._channels = channels
            self._in_channels = in_channels
            axes = self._axes
            self._kwargs: dict[str, Any] = {
                "kernel": per_axis(kernel_size, axes, "kernel_size"),
                "stride": per_axis(strides, axes, "strides"),
                "dilate": per_axis(dilation, axes, "dilation"),
                "pad": per_axis(padding, axes, "padding"),
                "num_filter": channels,
                "num_group": groups,
                "no_bias": not use_bias,
                "layout": layout,
            }
            if output_padding is not None:
                self._kwargs["adj"] = per_axis(output_padding, axes, "output_padding")
            self.weight: Any = self.params.get(
                "weight",
                shape=self._weight_shape(),
                init=weight_initializer,
                allow_deferred_init=True,
            )
            if use_bias:
                self.bias: Any = self.params.get(
                    "bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True
                )
            else:
                self.bias = None
            self.act = activation_layer(type(self).__name__, activation)

    def _weight_shape(self) -> tuple[int, ...]:
        """The weight's shape as far as it is known, as the operator infers it."""
        layout, groups = self._kwargs["layout"], self._kwargs["num_group"]
        if self._in_channels and self._in_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: invalid groups {groups}: expected a divisor of "
                f"in_channels, {self._in_channels}"
            )
        shape = [0] * len(layout)
        shape[layout.index("N")] = 1
        shape[layout.index("C")] = self._in_channels
        data = sym.var("data", shape=tuple(shape))
        found = getattr(sym, self._op_name)(data, **self._kwargs).infer_shape_partial()[0][1]
        return found

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        operands = (x, weight) if bias is None else (x, weight, bias)
        out = getattr(F, self._op_name)(*operands, name="fwd", **self._kwargs)
        return out if self.act is None else self.act(out)

    def _alias(self) -> str:
        return "conv"

    def __repr__(self) -> str:
        kwargs = self._kwargs
        text = f"kernel_size={kwargs['kernel']}, stride={kwargs['stride']}"
        if any(kwargs["pad"]):
            text += f", padding={kwargs['pad']}"
        if any(d != 1 for d in kwargs["dilate"]):
            text += f", dilation={kwargs['dilate']}"
        if any(kwargs.get("adj", ())):
            text += f", output_padding={kwargs['adj']}"
        if kwargs["num_group"] != 1:
            text += f", groups={kwargs['num_group']}"
        if self.bias is None:
            text += ", bias=False"
        if self.act is not None:
            text += f", {self.act}"
        shape: Any = self.weight.shape
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]}, {text})"


class _Transposed(_Conv):
    """Base of transposed convolutions.

    Parameters
    ----------
    channels, kernel_size, strides, padding
        As for convolutions.
    output_padding : int or tuple of int
        Added to one side of the output, by axis.
    dilation, groups, layout, activation, use_bias, weight_initializer, bias_initializer
        As for convolutions.
    in_channels : int
    """

    _op_name = "Deconvolution"

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            channels,
            kernel_size,
            strides,
            padding,
            dilation,
            groups,
            layout,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            in_channels,
            output_padding,
            **kwargs,
        )

    def __repr__(self) -> str:
        # As in MXNet, where input channels that are not known yet are 0 here, None elsewhere.
        return super().__repr__().replace("(None ->", "(0 ->", 1)


class Conv1D(_Conv):
    """Convolution over one axis: (N, C, W) by default.

    Examples
    --------
    >>> import rsnet as mx
    >>> layer = mx.gluon.nn.Conv1D(4, kernel_size=3)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((2, 3, 8))).shape
    (2, 4, 6)
    """

    _axes = 1


class Conv2D(_Conv):
    """Convolution over two axes: (N, C, H, W) by default."""

    _axes = 2


class Conv3D(_Conv):
    """Convolution over three axes: (N, C, D, H, W) by default."""

    _axes = 3


class Conv1DTranspose(_Transposed):
    """Transposed convolution over one axis: (N, C, W) by default."""

    _axes = 1


class Conv2DTranspose(_Transposed):
    """Transposed convolution over two axes: (N, C, H, W) by default."""

    _axes = 2


class Conv3DTranspose(_Transposed):
    """Transposed convolution over three axes: (N, C, D, H, W) by default."""

    _axes = 3


class ReflectionPad2D(HybridBlock):
    """Pads height and width with what is mirrored at the border.

    Parameters
    ----------
    padding : int or tuple of 8 int
        On all four sides, or before and after each axis, as for the operator `Pad`.
    """

    def __init__(self, padding: Any = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(padding, int):
            padding = (0, 0, 0, 0, padding, padding, padding, padding)
        if len(padding) != 8:
            raise AssertionError(
                f"ReflectionPad2D: invalid padding {padding}: expected an int or 8 of them"
            )
        self._padding = padding

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self._padding)
