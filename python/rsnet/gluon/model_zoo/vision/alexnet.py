"""AlexNet (Krizhevsky et al. 2012; this form: Krizhevsky 2014)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ._make import DEFAULT_ROOT, Network, with_weights

__all__ = ["AlexNet", "alexnet"]


class AlexNet(Network):
    """AlexNet.

    Parameters
    ----------
    classes : int
    """

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                self.features.add(
                    nn.Conv2D(64, 11, 4, 2, activation="relu"),
                    nn.MaxPool2D(3, 2),
                    nn.Conv2D(192, 5, padding=2, activation="relu"),
                    nn.MaxPool2D(3, 2),
                    nn.Conv2D(384, 3, padding=1, activation="relu"),
                    nn.Conv2D(256, 3, padding=1, activation="relu"),
                    nn.Conv2D(256, 3, padding=1, activation="relu"),
                    nn.MaxPool2D(3, 2),
                    nn.Flatten(),
                    nn.Dense(4096, activation="relu"),
                    nn.Dropout(0.5),
                    nn.Dense(4096, activation="relu"),
                    nn.Dropout(0.5),
                )
            self.output = nn.Dense(classes)


def alexnet(
    pretrained: bool = False, ctx: Any = None, root: str = DEFAULT_ROOT, **kwargs: Any
) -> AlexNet:
    """AlexNet, with weights from ``root/alexnet.params`` if `pretrained`."""
    return with_weights(AlexNet(**kwargs), "alexnet", pretrained, root, ctx)
