"""ResNet (He et al. 2015), and ResNet with activations before convolutions (He et al. 2016)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...hybrid_block import HybridBlock
from ._make import DEFAULT_ROOT, Network, with_weights

__all__ = [
    "BasicBlockV1",
    "BasicBlockV2",
    "BottleneckV1",
    "BottleneckV2",
    "ResNetV1",
    "ResNetV2",
    "get_resnet",
    "resnet18_v1",
    "resnet18_v2",
    "resnet34_v1",
    "resnet34_v2",
    "resnet50_v1",
    "resnet50_v2",
    "resnet101_v1",
    "resnet101_v2",
    "resnet152_v1",
    "resnet152_v2",
]


def _conv3x3(channels: int, stride: int, in_channels: int) -> Any:
    return nn.Conv2D(channels, 3, stride, 1, use_bias=False, in_channels=in_channels)


class _BlockV1(HybridBlock):
    """max(body(x) + x, 0), where x is projected if the shapes differ.

    Parameters
    ----------
    channels : int
        Output channels.
    stride : int
    downsample : bool
        Is the input projected?
    in_channels : int
    """

    def __init__(
        self,
        channels: int,
        stride: int,
        downsample: bool = False,
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.body = nn.HybridSequential(prefix="")
        self._fill(channels, stride, in_channels)
        if downsample:
            self.downsample: Any = nn.HybridSequential(prefix="")
            self.downsample.add(
                nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels),
                nn.BatchNorm(),
            )
        else:
            self.downsample = None

    def _fill(self, channels: int, stride: int, in_channels: int) -> None:
        raise NotImplementedError

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        residual = x if self.downsample is None else self.downsample(x)
        return F.Activation(residual + self.body(x), act_type="relu")


class BasicBlockV1(_BlockV1):
    """Two convolutions: for ResNet of 18 and 34 layers."""

    def _fill(self, channels: int, stride: int, in_channels: int) -> None:
        self.body.add(
            _conv3x3(channels, stride, in_channels),
            nn.BatchNorm(),
            nn.Activation("relu"),
            _conv3x3(channels, 1, channels),
            nn.BatchNorm(),
        )


class BottleneckV1(_BlockV1):
    """Three convolutions through a quarter of the channels: for ResNet of 50 layers and more."""

    def _fill(self, channels: int, stride: int, in_channels: int) -> None:
        inner = channels // 4
        self.body.add(
            nn.Conv2D(inner, 1, stride),
            nn.BatchNorm(),
            nn.Activation("relu"),
            _conv3x3(inner, 1, inner),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(channels, 1, 1),
            nn.BatchNorm(),
        )


class BasicBlockV2(HybridBlock):
    """Two convolutions, each after normalisation and activation.

    Parameters
    ----------
    channels, stride, downsample, in_channels
        As for `BasicBlockV1`.
    """

    def __init__(
        self,
        channels: int,
        stride: int,
        downsample: bool = False,
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bn1 = nn.BatchNorm()
        self.conv1 = _conv3x3(channels, stride, in_channels)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(channels, 1, channels)
        self.downsample = _projection(channels, stride, in_channels) if downsample else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        residual = x
        x = F.Activation(self.bn1(x), act_type="relu")
        if self.downsample is not None:
            residual = self.downsample(x)
        x = self.conv1(x)
        x = F.Activation(self.bn2(x), act_type="relu")
        return self.conv2(x) + residual


class BottleneckV2(HybridBlock):
    """Three convolutions, each after normalisation and activation.

    Parameters
    ----------
    channels, stride, downsample, in_channels
        As for `BasicBlockV1`.
    """

    def __init__(
        self,
        channels: int,
        stride: int,
        downsample: bool = False,
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        inner = channels // 4
        self.bn1 = nn.BatchNorm()
        self.conv1 = nn.Conv2D(inner, 1, 1, use_bias=False)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(inner, stride, inner)
        self.bn3 = nn.BatchNorm()
        self.conv3 = nn.Conv2D(channels, 1, 1, use_bias=False)
        self.downsample = _projection(channels, stride, in_channels) if downsample else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        residual = x
        x = F.Activation(self.bn1(x), act_type="relu")
        if self.downsample is not None:
            residual = self.downsample(x)
        x = F.Activation(self.bn2(self.conv1(x)), act_type="relu")
        x = F.Activation(self.bn3(self.conv2(x)), act_type="relu")
        return self.conv3(x) + residual


def _projection(channels: int, stride: int, in_channels: int) -> Any:
    return nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels)


class _ResNet(Network):
    """Base of both versions.

    Parameters
    ----------
    block : class
        The class of blocks.
    layers : list of int
        Blocks of every stage.
    channels : list of int
        Channels of the first layer and of every stage.
    classes : int
    thumbnail : bool
        For small images: no downsampling before the first stage.
    """

    def _check(self, name: str, layers: list[int], channels: list[int]) -> None:
        if len(layers) != len(channels) - 1:
            raise AssertionError(
                f"{name}: invalid number of channels {len(channels)}: expected "
                f"{len(layers) + 1}, one more than stages"
            )

    def _first(self, channels: int, thumbnail: bool) -> None:
        if thumbnail:
            self.features.add(_conv3x3(channels, 1, 0))
            return
        self.features.add(
            nn.Conv2D(channels, 7, 2, 3, use_bias=False),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.MaxPool2D(3, 2, 1),
        )

    def _stages(self, block: Any, layers: list[int], channels: list[int]) -> None:
        for i, count in enumerate(layers):
            before, after = channels[i], channels[i + 1]
            stage = nn.HybridSequential(prefix=f"stage{i + 1}_")
            with stage.name_scope():
                stride = 1 if i == 0 else 2
                stage.add(block(after, stride, after != before, in_channels=before, prefix=""))
                for _ in range(count - 1):
                    stage.add(block(after, 1, False, in_channels=after, prefix=""))
            self.features.add(stage)


class ResNetV1(_ResNet):
    """ResNet."""

    def __init__(
        self,
        block: Any,
        layers: list[int],
        channels: list[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._check("ResNetV1", layers, channels)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self._first(channels[0], thumbnail)
            self._stages(block, layers, channels)
            self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.Dense(classes, in_units=channels[-1])


class ResNetV2(_ResNet):
    """ResNet with activations before convolutions."""

    def __init__(
        self,
        block: Any,
        layers: list[int],
        channels: list[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._check("ResNetV2", layers, channels)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(nn.BatchNorm(scale=False, center=False))
            self._first(channels[0], thumbnail)
            self._stages(block, layers, channels)
            self.features.add(
                nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten()
            )
            self.output = nn.Dense(classes, in_units=channels[-1])


#: Kind of block, blocks of every stage and channels, by all layers with weights.
resnet_spec: dict[int, tuple[str, list[int], list[int]]] = {
    18: ("basic_block", [2, 2, 2, 2], [64, 64, 128, 256, 512]),
    34: ("basic_block", [3, 4, 6, 3], [64, 64, 128, 256, 512]),
    50: ("bottle_neck", [3, 4, 6, 3], [64, 256, 512, 1024, 2048]),
    101: ("bottle_neck", [3, 4, 23, 3], [64, 256, 512, 1024, 2048]),
    152: ("bottle_neck", [3, 8, 36, 3], [64, 256, 512, 1024, 2048]),
}
resnet_net_versions = [ResNetV1, ResNetV2]
resnet_block_versions: list[dict[str, type[HybridBlock]]] = [
    {"basic_block": BasicBlockV1, "bottle_neck": BottleneckV1},
    {"basic_block": BasicBlockV2, "bottle_neck": BottleneckV2},
]


def get_resnet(
    version: int,
    num_layers: int,
    pretrained: bool = False,
    ctx: Any = None,
    root: str = DEFAULT_ROOT,
    **kwargs: Any,
) -> Any:
    """ResNet, with weights from ``root/resnet<layers>_v<version>.params`` if `pretrained`.

    Parameters
    ----------
    version : int
        1 or 2.
    num_layers : int
        18, 34, 50, 101 or 152.
    """
    if num_layers not in resnet_spec:
        known = ", ".join(map(str, resnet_spec))
        raise AssertionError(f"invalid num_layers {num_layers}: expected one of: {known}")
    if version not in (1, 2):
        raise AssertionError(f"invalid version {version}: expected 1 or 2")
    kind, layers, channels = resnet_spec[num_layers]
    block = resnet_block_versions[version - 1][kind]
    network: Any = resnet_net_versions[version - 1]
    net = network(block, layers, channels, **kwargs)
    return with_weights(net, f"resnet{num_layers}_v{version}", pretrained, root, ctx)


def resnet18_v1(**kwargs: Any) -> ResNetV1:
    """ResNet of 18 layers."""
    return get_resnet(1, 18, **kwargs)


def resnet34_v1(**kwargs: Any) -> ResNetV1:
    """ResNet of 34 layers."""
    return get_resnet(1, 34, **kwargs)


def resnet50_v1(**kwargs: Any) -> ResNetV1:
    """ResNet of 50 layers."""
    return get_resnet(1, 50, **kwargs)


def resnet101_v1(**kwargs: Any) -> ResNetV1:
    """ResNet of 101 layers."""
    return get_resnet(1, 101, **kwargs)


def resnet152_v1(**kwargs: Any) -> ResNetV1:
    """ResNet of 152 layers."""
    return get_resnet(1, 152, **kwargs)


def resnet18_v2(**kwargs: Any) -> ResNetV2:
    """ResNet of 18 layers, version 2."""
    return get_resnet(2, 18, **kwargs)


def resnet34_v2(**kwargs: Any) -> ResNetV2:
    """ResNet of 34 layers, version 2."""
    return get_resnet(2, 34, **kwargs)


def resnet50_v2(**kwargs: Any) -> ResNetV2:
    """ResNet of 50 layers, version 2."""
    return get_resnet(2, 50, **kwargs)


def resnet101_v2(**kwargs: Any) -> ResNetV2:
    """ResNet of 101 layers, version 2."""
    return get_resnet(2, 101, **kwargs)


def resnet152_v2(**kwargs: Any) -> ResNetV2:
    """ResNet of 152 layers, version 2."""
    return get_resnet(2, 152, **kwargs)
