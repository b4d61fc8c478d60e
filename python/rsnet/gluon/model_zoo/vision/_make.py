"""What all networks share: features followed by an output layer, and loading of weights."""

from __future__ import annotations

from typing import Any

from ....context import cpu
from ...hybrid_block import HybridBlock
from ..model_store import DEFAULT_ROOT as DEFAULT_ROOT
from ..model_store import load_weights


class Network(HybridBlock):
    """Images (N, 3, H, W) to scores (N, classes): `features`, then `output`."""

    features: Any
    output: Any

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def with_weights(
    net: Any, name: str, pretrained: bool, root: str = DEFAULT_ROOT, ctx: Any = None
) -> Any:
    """The network, with weights from the file of this name if asked for."""
    if pretrained:
        load_weights(net, name, root, cpu() if ctx is None else ctx)
    return net
