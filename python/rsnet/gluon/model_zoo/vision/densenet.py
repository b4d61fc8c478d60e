"""DenseNet (Huang et al. 2016)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ._make import DEFAULT_ROOT, Network, with_weights

__all__ = [
    "DenseNet",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "get_densenet",
]

# First channels, channels that a layer adds, layers of every block; by all layers with weights.
_LAYERS = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


def _dense_layer(growth: int, bn_size: int, dropout: float) -> Any:
    new = nn.HybridSequential(prefix="")
    new.add(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(bn_size * growth, 1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(growth, 3, padding=1, use_bias=False),
    )
    if dropout:
        new.add(nn.Dropout(dropout))
    out = nn.HybridConcurrent(axis=1, prefix="")
    out.add(nn.Identity(), new)
    return out


def _dense_block(layers: int, bn_size: int, growth: int, dropout: float, stage: int) -> Any:
    out = nn.HybridSequential(prefix=f"stage{stage}_")
    with out.name_scope():
        for _ in range(layers):
            out.add(_dense_layer(growth, bn_size, dropout))
    return out


def _transition(channels: int) -> Any:
    out = nn.HybridSequential(prefix="")
    out.add(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(channels, 1, use_bias=False),
        nn.AvgPool2D(2, 2),
    )
    return out


class DenseNet(Network):
    """DenseNet: every layer reads what all layers before it computed.

    Parameters
    ----------
    num_init_features : int
        Channels of the first layer.
    growth_rate : int
        Channels that a layer adds.
    block_config : list of int
        Layers of every block.
    bn_size : int
        Channels of a bottleneck, as a multiple of `growth_rate`.
    dropout : float
    classes : int
    """

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: list[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                nn.Conv2D(num_init_features, 7, 2, 3, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.MaxPool2D(3, 2, 1),
            )
            channels = num_init_features
            for i, layers in enumerate(block_config):
                self.features.add(_dense_block(layers, bn_size, growth_rate, dropout, i + 1))
                channels += layers * growth_rate
                if i != len(block_config) - 1:
                    channels //= 2
                    self.features.add(_transition(channels))
            self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D(7), nn.Flatten())
            self.output = nn.Dense(classes)


def get_densenet(
    num_layers: int,
    pretrained: bool = False,
    ctx: Any = None,
    root: str = DEFAULT_ROOT,
    **kwargs: Any,
) -> DenseNet:
    """DenseNet of 121, 161, 169 or 201 layers, with weights from ``root/densenet<layers>.params``
    if `pretrained`.
    """
    if num_layers not in _LAYERS:
        raise ValueError(f"invalid num_layers {num_layers}: expected one of {list(_LAYERS)}")
    net = DenseNet(*_LAYERS[num_layers], **kwargs)
    return with_weights(net, f"densenet{num_layers}", pretrained, root, ctx)


def densenet121(**kwargs: Any) -> DenseNet:
    """DenseNet of 121 layers."""
    return get_densenet(121, **kwargs)


def densenet161(**kwargs: Any) -> DenseNet:
    """DenseNet of 161 layers."""
    return get_densenet(161, **kwargs)


def densenet169(**kwargs: Any) -> DenseNet:
    """DenseNet of 169 layers."""
    return get_densenet(169, **kwargs)


def densenet201(**kwargs: Any) -> DenseNet:
    """DenseNet of 201 layers."""
    return get_densenet(201, **kwargs)
