"""Deformable convolutions."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...hybrid_block import HybridBlock
from ...nn.layouts import per_axis

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


class _Deformable(HybridBlock):
    """Base of convolutions that sample at learned offsets.

    Parameters
    ----------
    channels : int
    kernel_size, strides, padding, dilation : int or tuple of int
        By axis.
    groups : int
    num_deformable_group : int
        Groups of channels that share their offsets.
    layout : str
        'NCHW'.
    use_bias : bool
    in_channels : int
        0: the first forward pass decides.
    activation : str, optional
    weight_initializer, bias_initializer : Initializer or str, optional
    offset_weight_initializer, offset_bias_initializer : Initializer or str
    offset_use_bias : bool
    """

    _operator = ""
    _offsets = 2
    _order = ("offset", "deformable_conv")  # of the parameters, as MXNet has it

    def __init__(
        self,
        channels: int,
        kernel_size: Any = (1, 1),
        strides: Any = (1, 1),
        padding: Any = (0, 0),
        dilation: Any = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        offset_weight_initializer: Any = "zeros",
        offset_bias_initializer: Any = "zeros",
        offset_use_bias: bool = True,
        op_name: str | None = None,
        adj: Any = None,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        if layout != "NCHW":
            raise AssertionError(
                f"{type(self).__name__}: invalid layout '{layout}': expected 'NCHW'"
            )
        kernel = per_axis(kernel_size, 2, "kernel_size")
        common: dict[str, Any] = {
            "kernel": kernel,
            "stride": per_axis(strides, 2, "strides"),
            "dilate": per_axis(dilation, 2, "dilation"),
            "pad": per_axis(padding, 2, "padding"),
            "num_group": groups,
            "layout": layout,
        }
        offsets = self._offsets * kernel[0] * kernel[1] * num_deformable_group
        self._split = 2 * kernel[0] * kernel[1] * num_deformable_group
        self._kwargs_offset = {**common, "num_filter": offsets, "no_bias": not offset_use_bias}
        self._kwargs = {
            **common,
            "num_filter": channels,
            "no_bias": not use_bias,
            "num_deformable_group": num_deformable_group,
        }
        inner = in_channels // groups

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        parts = {
            "offset": (offsets, offset_weight_initializer, offset_bias_initializer),
            "deformable_conv": (channels, weight_initializer, bias_initializer),
        }
        has_bias = {"offset": offset_use_bias, "deformable_conv": use_bias}
        with self.name_scope():
            for part in self._order:
                rows, weight_init, bias_init = parts[part]
                weight = get(f"{part}_weight", (rows, inner, *kernel), weight_init)
                setattr(self, f"{part}_weight", weight)
                bias = get(f"{part}_bias", (rows,), bias_init) if has_bias[part] else None
                setattr(self, f"{part}_bias", bias)
            self.act = nn.Activation(activation, prefix=activation + "_") if activation else None

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        offset_weight: Any,
        deformable_conv_weight: Any,
        offset_bias: Any = None,
        deformable_conv_bias: Any = None,
    ) -> Any:
        own = [offset_weight, *([] if offset_bias is None else [offset_bias])]
        found = F.Convolution(x, *own, cudnn_off=True, **self._kwargs_offset)
        bias = [] if deformable_conv_bias is None else [deformable_conv_bias]
        weights = [deformable_conv_weight, *bias]
        operands = self._sampled(F, found)
        out = getattr(F.contrib, self._operator)(x, *operands, *weights, name="fwd", **self._kwargs)
        return out if self.act is None else self.act(out)

    def _sampled(self, F: Any, found: Any) -> list[Any]:
        """The operands that say where to sample."""
        return [found]


class DeformableConvolution(_Deformable):
    """Convolution that samples at learned offsets (Dai et al. 2017)."""

    _operator = "DeformableConvolution"

    def _alias(self) -> str:
        return "deformable_conv"


class ModulatedDeformableConvolution(_Deformable):
    """Deformable convolution whose samples have learned weights too (Zhu et al. 2018)."""

    _operator = "ModulatedDeformableConvolution"
    _offsets = 3
    _order = ("deformable_conv", "offset")

    def _alias(self) -> str:
        return "modulated_deformable_conv"

    def _sampled(self, F: Any, found: Any) -> list[Any]:
        offset = F.slice_axis(found, axis=1, begin=0, end=self._split)
        mask = F.slice_axis(found, axis=1, begin=self._split, end=None)
        return [offset, 2 * F.sigmoid(mask)]
