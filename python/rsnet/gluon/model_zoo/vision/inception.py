"""Inception v3 (Szegedy et al. 2015)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...nn.concurrent import HybridConcurrent
from ._make import DEFAULT_ROOT, Network, with_weights

__all__ = ["Inception3", "inception_v3"]

#: A convolution as channels, kernel, stride and padding.
Conv = tuple[Any, ...]


def _conv(channels: int, kernel: Any, stride: Any = 1, padding: Any = 0) -> Any:
    out = nn.HybridSequential(prefix="")
    out.add(
        nn.Conv2D(channels, kernel, stride, padding, use_bias=False),
        nn.BatchNorm(epsilon=0.001),
        nn.Activation("relu"),
    )
    return out


def _branch(pool: str | None, *convs: Conv) -> Any:
    """Pooling ('avg', 'max' or None) followed by convolutions."""
    out = nn.HybridSequential(prefix="")
    if pool == "avg":
        out.add(nn.AvgPool2D(3, 1, 1))
    elif pool == "max":
        out.add(nn.MaxPool2D(3, 2))
    for conv in convs:
        out.add(_conv(*conv))
    return out


def _block(prefix: str, *branches: Any) -> HybridConcurrent:
    """Branches side by side: each a tuple as for `_branch`, or a function that makes one."""
    out = HybridConcurrent(axis=1, prefix=prefix)
    with out.name_scope():
        for branch in branches:
            out.add(branch() if callable(branch) else _branch(*branch))
    return out


def _a(pooled: int, prefix: str) -> HybridConcurrent:
    return _block(
        prefix,
        (None, (64, 1)),
        (None, (48, 1), (64, 5, 1, 2)),
        (None, (64, 1), (96, 3, 1, 1), (96, 3, 1, 1)),
        ("avg", (pooled, 1)),
    )


def _b(prefix: str) -> HybridConcurrent:
    return _block(
        prefix,
        (None, (384, 3, 2)),
        (None, (64, 1), (96, 3, 1, 1), (96, 3, 2)),
        ("max",),
    )


def _c(inner: int, prefix: str) -> HybridConcurrent:
    wide, high = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    return _block(
        prefix,
        (None, (192, 1)),
        (None, (inner, 1), (inner, *wide), (192, *high)),
        (None, (inner, 1), (inner, *high), (inner, *wide), (inner, *high), (192, *wide)),
        ("avg", (192, 1)),
    )


def _d(prefix: str) -> HybridConcurrent:
    return _block(
        prefix,
        (None, (192, 1), (320, 3, 2)),
        (None, (192, 1), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2)),
        ("max",),
    )


def _split(*convs: Conv) -> Any:
    """Convolutions, the last result of which goes through a wide and a high one."""
    out = nn.HybridSequential(prefix="")
    out.add(_branch(None, *convs))
    both = HybridConcurrent(axis=1, prefix="")
    both.add(_branch(None, (384, (1, 3), 1, (0, 1))), _branch(None, (384, (3, 1), 1, (1, 0))))
    out.add(both)
    return out


def _e(prefix: str) -> HybridConcurrent:
    return _block(
        prefix,
        (None, (320, 1)),
        lambda: _split((384, 1)),
        lambda: _split((448, 1), (384, 3, 1, 1)),
        ("avg", (192, 1)),
    )


class Inception3(Network):
    """Inception v3, for images of 299 × 299.

    Parameters
    ----------
    classes : int
    """

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                _conv(32, 3, 2),
                _conv(32, 3),
                _conv(64, 3, 1, 1),
                nn.MaxPool2D(3, 2),
                _conv(80, 1),
                _conv(192, 3),
                nn.MaxPool2D(3, 2),
                _a(32, "A1_"),
                _a(64, "A2_"),
                _a(64, "A3_"),
                _b("B_"),
                _c(128, "C1_"),
                _c(160, "C2_"),
                _c(160, "C3_"),
                _c(192, "C4_"),
                _d("D_"),
                _e("E1_"),
                _e("E2_"),
                nn.AvgPool2D(8),
                nn.Dropout(0.5),
            )
            self.output = nn.Dense(classes)


def inception_v3(
    pretrained: bool = False, ctx: Any = None, root: str = DEFAULT_ROOT, **kwargs: Any
) -> Inception3:
    """Inception v3, with weights from ``root/inceptionv3.params`` if `pretrained`."""
    return with_weights(Inception3(**kwargs), "inceptionv3", pretrained, root, ctx)
