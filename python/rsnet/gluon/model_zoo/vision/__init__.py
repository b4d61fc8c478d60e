"""Networks for images: AlexNet, DenseNet, Inception, MobileNet, ResNet, SqueezeNet, VGG.

``get_model("resnet18_v1", classes=10)`` makes one by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...._class_registry import class_named
from .alexnet import *  # noqa: F403
from .densenet import *  # noqa: F403
from .inception import *  # noqa: F403
from .mobilenet import *  # noqa: F403
from .resnet import *  # noqa: F403
from .squeezenet import *  # noqa: F403
from .vgg import *  # noqa: F403

_OTHER_NAMES = {
    "squeezenet1.0": "squeezenet1_0",
    "squeezenet1.1": "squeezenet1_1",
    "inceptionv3": "inception_v3",
    **{f"mobilenet{m}": f"mobilenet{m.replace('.', '_')}" for m in ("1.0", "0.75", "0.5", "0.25")},
    **{
        f"mobilenetv2_{m}": f"mobilenet_v2_{m.replace('.', '_')}"
        for m in ("1.0", "0.75", "0.5", "0.25")
    },
}
_SAME_NAMES = [
    "alexnet",
    *[f"densenet{n}" for n in (121, 161, 169, 201)],
    *[f"resnet{n}_v{v}" for v in (1, 2) for n in (18, 34, 50, 101, 152)],
    *[f"vgg{n}{bn}" for bn in ("", "_bn") for n in (11, 13, 16, 19)],
]


def _models() -> dict[str, Callable[..., Any]]:
    names = {name: name for name in _SAME_NAMES} | _OTHER_NAMES
    return {name: globals()[function] for name, function in names.items()}


def get_model(name: str, **kwargs: Any) -> Any:
    """The network of this name.

    Parameters
    ----------
    name : str
        Such as 'resnet18_v1' or 'mobilenetv2_1.0'.
    **kwargs
        ``classes``, ``pretrained``, ``root``, ``ctx``, and what its function takes besides.

    Raises
    ------
    ValueError
        There is no such network.
    FileNotFoundError
        ``pretrained=True``, but there is no file of weights in `root`.

    Examples
    --------
    >>> from rsnet.gluon.model_zoo import vision
    >>> net = vision.get_model("resnet18_v1", classes=10)
    >>> net.output
    Dense(512 -> 10, linear)
    """
    return class_named(_models(), "model", name)(**kwargs)
