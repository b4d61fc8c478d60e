"""MobileNet (Howard et al. 2017) and MobileNetV2 (Sandler et al. 2018)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...hybrid_block import HybridBlock
from ._make import DEFAULT_ROOT, Network, with_weights

__all__ = [
    "MobileNet",
    "MobileNetV2",
    "get_mobilenet",
    "get_mobilenet_v2",
    "mobilenet0_25",
    "mobilenet0_5",
    "mobilenet0_75",
    "mobilenet1_0",
    "mobilenet_v2_0_25",
    "mobilenet_v2_0_5",
    "mobilenet_v2_0_75",
    "mobilenet_v2_1_0",
]


class RELU6(HybridBlock):
    """min(max(x, 0), 6)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.clip(x, 0, 6, name="relu6")


def _add_conv(
    out: Any,
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    pad: int = 0,
    groups: int = 1,
    active: bool = True,
    relu6: bool = False,
) -> None:
    out.add(nn.Conv2D(channels, kernel, stride, pad, groups=groups, use_bias=False))
    out.add(nn.BatchNorm(scale=True))
    if active:
        out.add(RELU6() if relu6 else nn.Activation("relu"))


class LinearBottleneck(HybridBlock):
    """A bottleneck of MobileNetV2: expand, convolve each channel, project.

    Parameters
    ----------
    in_channels, channels : int
    t : int
        Factor by which channels are expanded.
    stride : int
    """

    def __init__(self, in_channels: int, channels: int, t: int, stride: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.use_shortcut = stride == 1 and in_channels == channels
        with self.name_scope():
            self.out = nn.HybridSequential()
            inner = in_channels * t
            _add_conv(self.out, inner, relu6=True)
            _add_conv(self.out, inner, 3, stride, 1, groups=inner, relu6=True)
            _add_conv(self.out, channels, active=False, relu6=True)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


class MobileNet(Network):
    """MobileNet.

    Parameters
    ----------
    multiplier : float
        Factor on all channels.
    classes : int
    """

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        inner = [32, 64, 128, 128, 256, 256, *[512] * 6, 1024]
        outer = [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
        strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                _add_conv(self.features, int(32 * multiplier), 3, 2, 1)
                for a, b, stride in zip(inner, outer, strides, strict=True):
                    a, b = int(a * multiplier), int(b * multiplier)
                    _add_conv(self.features, a, 3, stride, 1, groups=a)
                    _add_conv(self.features, b)
                self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)


class MobileNetV2(Network):
    """MobileNetV2.

    Parameters
    ----------
    multiplier : float
        Factor on all channels.
    classes : int
    """

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        inner = [32, 16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160]
        outer = [16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160, 320]
        factors = [1, *[6] * 16]
        strides = [1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                _add_conv(self.features, int(32 * multiplier), 3, 2, 1, relu6=True)
                for a, b, t, stride in zip(inner, outer, factors, strides, strict=True):
                    a, b = int(a * multiplier), int(b * multiplier)
                    self.features.add(LinearBottleneck(a, b, t, stride))
                last = int(1280 * multiplier) if multiplier > 1.0 else 1280
                _add_conv(self.features, last, relu6=True)
                self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.HybridSequential(prefix="output_")
            with self.output.name_scope():
                self.output.add(nn.Conv2D(classes, 1, use_bias=False, prefix="pred_"), nn.Flatten())


def _suffix(multiplier: float) -> str:
    text = f"{multiplier:.2f}"
    return text[:-1] if text in ("1.00", "0.50") else text


def get_mobilenet(
    multiplier: float,
    pretrained: bool = False,
    ctx: Any = None,
    root: str = DEFAULT_ROOT,
    **kwargs: Any,
) -> MobileNet:
    """MobileNet, with weights from ``root/mobilenet<multiplier>.params`` if `pretrained`."""
    name = f"mobilenet{_suffix(multiplier)}"
    return with_weights(MobileNet(multiplier, **kwargs), name, pretrained, root, ctx)


def get_mobilenet_v2(
    multiplier: float,
    pretrained: bool = False,
    ctx: Any = None,
    root: str = DEFAULT_ROOT,
    **kwargs: Any,
) -> MobileNetV2:
    """MobileNetV2, with weights from ``root/mobilenetv2_<multiplier>.params`` if `pretrained`."""
    name = f"mobilenetv2_{_suffix(multiplier)}"
    return with_weights(MobileNetV2(multiplier, **kwargs), name, pretrained, root, ctx)


def mobilenet1_0(**kwargs: Any) -> MobileNet:
    """MobileNet."""
    return get_mobilenet(1.0, **kwargs)


def mobilenet0_75(**kwargs: Any) -> MobileNet:
    """MobileNet of 3/4 of the channels."""
    return get_mobilenet(0.75, **kwargs)


def mobilenet0_5(**kwargs: Any) -> MobileNet:
    """MobileNet of half the channels."""
    return get_mobilenet(0.5, **kwargs)


def mobilenet0_25(**kwargs: Any) -> MobileNet:
    """MobileNet of a quarter of the channels."""
    return get_mobilenet(0.25, **kwargs)


def mobilenet_v2_1_0(**kwargs: Any) -> MobileNetV2:
    """MobileNetV2."""
    return get_mobilenet_v2(1.0, **kwargs)


def mobilenet_v2_0_75(**kwargs: Any) -> MobileNetV2:
    """MobileNetV2 of 3/4 of the channels."""
    return get_mobilenet_v2(0.75, **kwargs)


def mobilenet_v2_0_5(**kwargs: Any) -> MobileNetV2:
    """MobileNetV2 of half the channels."""
    return get_mobilenet_v2(0.5, **kwargs)


def mobilenet_v2_0_25(**kwargs: Any) -> MobileNetV2:
    """MobileNetV2 of a quarter of the channels."""
    return get_mobilenet_v2(0.25, **kwargs)
