"""VGG (Simonyan & Zisserman 2014)."""

from __future__ import annotations

from typing import Any

from .... import initializer
from ... import nn
from ._make import DEFAULT_ROOT, Network, with_weights

__all__ = [
    "VGG",
    "get_vgg",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]

# Layers of every stage, by all layers with weights.
_LAYERS = {
    11: [1, 1, 2, 2, 2],
    13: [2, 2, 2, 2, 2],
    16: [2, 2, 3, 3, 3],
    19: [2, 2, 4, 4, 4],
}
_FILTERS = [64, 128, 256, 512, 512]


class VGG(Network):
    """VGG.

    Parameters
    ----------
    layers, filters : list of int
        Convolutions, and their channels, of every stage.
    classes : int
    batch_norm : bool
    """

    def __init__(
        self,
        layers: list[int],
        filters: list[int],
        classes: int = 1000,
        batch_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(layers) != len(filters):
            raise AssertionError(
                f"VGG: invalid number of filters {len(filters)}: expected {len(layers)}, as of "
                "layers"
            )
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            for count, channels in zip(layers, filters):
                for _ in range(count):
                    xavier = initializer.Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
                    self.features.add(nn.Conv2D(channels, 3, padding=1, weight_initializer=xavier))
                    if batch_norm:
                        self.features.add(nn.BatchNorm())
                    self.features.add(nn.Activation("relu"))
                self.features.add(nn.MaxPool2D(strides=2))
            for _ in range(2):
                self.features.add(
                    nn.Dense(4096, activation="relu", weight_initializer="normal"),
                    nn.Dropout(0.5),
                )
            self.output = nn.Dense(classes, weight_initializer="normal")


def get_vgg(
    num_layers: int,
    pretrained: bool = False,
    ctx: Any = None,
    root: str = DEFAULT_ROOT,
    **kwargs: Any,
) -> VGG:
    """VGG of 11, 13, 16 or 19 layers, with weights from ``root/vgg<layers>.params`` (``..._bn``
    with ``batch_norm=True``) if `pretrained`.
    """
    if num_layers not in _LAYERS:
        raise ValueError(f"invalid num_layers {num_layers}: expected one of {list(_LAYERS)}")
    net = VGG(_LAYERS[num_layers], _FILTERS, **kwargs)
    name = f"vgg{num_layers}{'_bn' if kwargs.get('batch_norm') else ''}"
    return with_weights(net, name, pretrained, root, ctx)


def vgg11(**kwargs: Any) -> VGG:
    """VGG of 11 layers."""
    return get_vgg(11, **kwargs)


def vgg13(**kwargs: Any) -> VGG:
    """VGG of 13 layers."""
    return get_vgg(13, **kwargs)


def vgg16(**kwargs: Any) -> VGG:
    """VGG of 16 layers."""
    return get_vgg(16, **kwargs)


def vgg19(**kwargs: Any) -> VGG:
    """VGG of 19 layers."""
    return get_vgg(19, **kwargs)


def vgg11_bn(**kwargs: Any) -> VGG:
    """VGG of 11 layers, with batch normalisation."""
    return get_vgg(11, **{**kwargs, "batch_norm": True})


def vgg13_bn(**kwargs: Any) -> VGG:
    """VGG of 13 layers, with batch normalisation."""
    return get_vgg(13, **{**kwargs, "batch_norm": True})


def vgg16_bn(**kwargs: Any) -> VGG:
    """VGG of 16 layers, with batch normalisation."""
    return get_vgg(16, **{**kwargs, "batch_norm": True})


def vgg19_bn(**kwargs: Any) -> VGG:
    """VGG of 19 layers, with batch normalisation."""
    return get_vgg(19, **{**kwargs, "batch_norm": True})
