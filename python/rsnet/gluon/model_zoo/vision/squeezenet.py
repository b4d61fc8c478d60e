"""SqueezeNet (Iandola et al. 2016)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ._make import DEFAULT_ROOT, Network, with_weights

__all__ = ["SqueezeNet", "get_squeezenet", "squeezenet1_0", "squeezenet1_1"]

# Squeezed and expanded channels of every fire module, None for pooling.
_LAYERS: dict[str, tuple[tuple[int, int], list[tuple[int, int] | None]]] = {
    "1.0": (
        (96, 7),
        [None, (16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256),
         None, (64, 256)],
    ),
    "1.1": (
        (64, 3),
        [None, (16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192),
         (64, 256), (64, 256)],
    ),
}  # fmt: skip


def _conv(channels: int, kernel: int, padding: int = 0) -> Any:
    out = nn.HybridSequential(prefix="")
    out.add(nn.Conv2D(channels, kernel, padding=padding), nn.Activation("relu"))
    return out


def _fire(squeezed: int, expanded: int) -> Any:
    out = nn.HybridSequential(prefix="")
    out.add(_conv(squeezed, 1))
    paths = nn.HybridConcurrent(axis=1, prefix="")
    paths.add(_conv(expanded, 1), _conv(expanded, 3, 1))
    out.add(paths)
    return out


class SqueezeNet(Network):
    """SqueezeNet.

    Parameters
    ----------
    version : str
        '1.0' or '1.1'.
    classes : int
    """

    def __init__(self, version: str, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if version not in _LAYERS:
            raise AssertionError(f"invalid version {version!r}: expected '1.0' or '1.1'")
        (channels, kernel), layers = _LAYERS[version]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(nn.Conv2D(channels, kernel, strides=2), nn.Activation("relu"))
            for layer in layers:
                if layer is None:
                    self.features.add(nn.MaxPool2D(3, 2, ceil_mode=True))
                else:
                    self.features.add(_fire(*layer))
            self.features.add(nn.Dropout(0.5))
            self.output = nn.HybridSequential(prefix="")
            self.output.add(
                nn.Conv2D(classes, 1), nn.Activation("relu"), nn.AvgPool2D(13), nn.Flatten()
            )


def get_squeezenet(
    version: str, pretrained: bool = False, ctx: Any = None, root: str = DEFAULT_ROOT, **kwargs: Any
) -> SqueezeNet:
    """SqueezeNet, with weights from ``root/squeezenet<version>.params`` if `pretrained`."""
    name = f"squeezenet{version}"
    return with_weights(SqueezeNet(version, **kwargs), name, pretrained, root, ctx)


def squeezenet1_0(**kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.0."""
    return get_squeezenet("1.0", **kwargs)


def squeezenet1_1(**kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.1, with fewer operations."""
    return get_squeezenet("1.1", **kwargs)
