"""Twenty steps of four Gluon networks from fixed weights, for rsnet and MXNet alike.

Run as a program with the name of the package to import; prints the losses of each step as JSON.
"""

import importlib
import json
import sys
import types

import numpy as np

STEPS = 20


def mlp(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(32, activation="relu"), nn.BatchNorm(), nn.Dense(16, activation="tanh"))
        net.add(nn.Dense(5))
    return net, (16, 12)


def lenet(mx):
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(6, 5, activation="tanh"), nn.MaxPool2D(2, 2))
        net.add(nn.Conv2D(8, 3, activation="tanh"), nn.MaxPool2D(2, 2))
        net.add(nn.Flatten(), nn.Dense(20, activation="tanh"), nn.Dense(5))
    return net, (8, 1, 20, 20)


def lstm(mx):
    class Last(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.lstm = mx.gluon.rnn.LSTM(10, num_layers=2, layout="NTC", bidirectional=True)
                self.out = mx.gluon.nn.Dense(5)

        def hybrid_forward(self, F, x):
            return self.out(F.slice_axis(self.lstm(x), axis=1, begin=-1, end=None))

    return Last(), (8, 7, 6)


def resnet20(mx):
    # Smooth: where a value is almost 0, rounding would decide which way a rectifier takes.
    nn = mx.gluon.nn

    def convolution(filters, kernel, stride):
        layers = nn.HybridSequential()
        layers.add(nn.Conv2D(filters, kernel, stride, kernel // 2, use_bias=False), nn.BatchNorm())
        return layers

    class Unit(mx.gluon.HybridBlock):
        def __init__(self, filters, stride):
            super().__init__()
            with self.name_scope():
                self.first = convolution(filters, 3, stride)
                self.second = convolution(filters, 3, 1)
                self.short = convolution(filters, 1, stride) if stride > 1 else None

        def hybrid_forward(self, F, x):
            inner = self.second(F.Activation(self.first(x), act_type="softrelu"))
            return F.Activation(inner + (self.short(x) if self.short else x), act_type="softrelu")

    net = nn.HybridSequential()
    with net.name_scope():
        net.add(convolution(16, 3, 1))
        for stage, filters in enumerate((16, 32, 64)):
            for unit in range(3):
                net.add(Unit(filters, 2 if stage and not unit else 1))
        net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(5))
    return net, (16, 3, 16, 16)


NETWORKS = {"mlp": mlp, "lenet": lenet, "lstm": lstm, "resnet20": resnet20}
RATES = {"adam": 0.01, "resnet20": 0.01}  # at larger ones, rounding errors grow a thousandfold


def fill(net):
    """Weights that depend on nothing but their order and shapes."""
    rng = np.random.RandomState(0)
    for param in net.collect_params().values():
        if param.name.endswith(("weight", "bias")):
            param.set_data(importlib.import_module(PACKAGE).nd.array(rng.randn(*param.shape) * 0.2))


PACKAGE = "rsnet"


def losses(mx, name, hybrid, optimizer="sgd", contexts=None, **more):
    """The mean loss of each step."""
    net, shape = NETWORKS[name](mx)
    rng = np.random.RandomState(1)
    data = rng.randn(STEPS, *shape).astype("float32")
    label = rng.randint(5, size=(STEPS, shape[0])).astype("float32")
    contexts = contexts or [mx.cpu()]
    net.initialize(ctx=contexts)
    if hybrid:
        net.hybridize()
    net(mx.nd.array(data[0], ctx=contexts[0]))
    fill(net)
    rate = RATES.get(optimizer, RATES.get(name, 0.1))
    options = {"learning_rate": rate, "wd": 1e-3}
    if optimizer == "sgd":
        options["momentum"] = 0.9
    trainer = mx.gluon.Trainer(net.collect_params(), optimizer, options, **more)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    found = []
    for x, y in zip(data, label):
        xs = mx.gluon.utils.split_and_load(x, contexts)
        ys = mx.gluon.utils.split_and_load(y, contexts)
        with mx.autograd.record():
            parts = [loss_of(net(a), b) for a, b in zip(xs, ys)]
        mx.autograd.backward(parts)
        trainer.step(shape[0])
        found.append(float(np.mean([part.mean().asscalar() for part in parts])))
    return found


def main(package):
    global PACKAGE
    PACKAGE = package
    mx: types.ModuleType = importlib.import_module(package)
    found = {name: losses(mx, name, hybrid=True) for name in NETWORKS}
    found["mlp adam"] = losses(mx, "mlp", False, "adam")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
