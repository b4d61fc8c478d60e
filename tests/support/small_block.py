"""A small Gluon block for tests."""

from rsnet import gluon
from rsnet.gluon import nn


class Net(gluon.HybridBlock):
    """Children, a container with a prefix of its own, and a parameter."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.a = nn.Dense(3)
            self.b = nn.HybridSequential(prefix="seq_")
            with self.b.name_scope():
                self.b.add(nn.Dense(2), nn.Dense(2))
            self.w = self.params.get("w", shape=(2,), init="ones")

    def hybrid_forward(self, F, x, w):
        return F.broadcast_mul(self.b(self.a(F.relu(x))), w)


NAMES = [
    "net_w",
    "net_dense0_weight",
    "net_dense0_bias",
    "net_seq_dense0_weight",
    "net_seq_dense0_bias",
    "net_seq_dense1_weight",
    "net_seq_dense1_bias",
]


def made(**kwargs):
    net = Net(prefix="net_", **kwargs)
    net.initialize()
    return net
