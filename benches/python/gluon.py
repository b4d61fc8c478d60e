"""One training step of hybridized Gluon networks, beside MXNet's Gluon and PyTorch.

    python benches/python/gluon.py [--mxnet-python PATH] [--torch-python PATH] [--threads 2]

Forward, backward and the momentum update of an MLP, LeNet and ResNet-20, batches of 64. MXNet and
PyTorch may live in other environments: name their interpreters. All are timed in turn, several
rounds each, and the least time of each counts.
"""

import argparse
import json
import os
import subprocess
import sys
import time

ROUNDS, WINDOWS, STEPS, BATCH = 3, 30, 5, 64
SHAPES = {"mlp": (BATCH, 784), "lenet": (BATCH, 1, 28, 28), "resnet": (BATCH, 3, 32, 32)}
# Channels and stride of the blocks of a ResNet-20.
BLOCKS = [(width, stride) for width in (16, 32, 64) for stride in (1 if width == 16 else 2, 1, 1)]


def timed(step, finish):
    """Least seconds a step over windows of `STEPS`: what a busy machine disturbs least."""
    for _ in range(10):
        step()
    finish()
    windows = []
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        finish()
        windows.append((time.perf_counter() - start) / STEPS)
    return min(windows)


def gluon_resnet(mx):
    nn = mx.gluon.nn

    class Residual(mx.gluon.HybridBlock):
        def __init__(self, channels, stride, inputs):
            super().__init__()
            self.body, self.short = nn.HybridSequential(), None
            self.body.add(nn.Conv2D(channels, 3, stride, 1, use_bias=False), nn.BatchNorm())
            self.body.add(nn.Activation("relu"))
            self.body.add(nn.Conv2D(channels, 3, 1, 1, use_bias=False), nn.BatchNorm())
            if stride != 1 or inputs != channels:
                self.short = nn.HybridSequential()
                self.short.add(nn.Conv2D(channels, 1, stride, use_bias=False), nn.BatchNorm())

        def hybrid_forward(self, F, x):
            return F.relu(self.body(x) + (x if self.short is None else self.short(x)))

    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, 1, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    inputs = 16
    for channels, stride in BLOCKS:
        net.add(Residual(channels, stride, inputs))
        inputs = channels
    net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    return net


def torch_resnet(nn):
    def pair(inputs, channels, kernel, stride):
        convolution = nn.Conv2d(inputs, channels, kernel, stride, kernel // 2, bias=False)
        return [convolution, nn.BatchNorm2d(channels)]

    class Residual(nn.Module):
        def __init__(self, channels, stride, inputs):
            super().__init__()
            layers = [
                *pair(inputs, channels, 3, stride),
                nn.ReLU(),
                *pair(channels, channels, 3, 1),
            ]
            self.body, self.short = nn.Sequential(*layers), nn.Identity()
            if stride != 1 or inputs != channels:
                self.short = nn.Sequential(*pair(inputs, channels, 1, stride))

        def forward(self, x):
            return nn.functional.relu(self.body(x) + self.short(x))

    layers, inputs = [*pair(3, 16, 3, 1), nn.ReLU()], 16
    for channels, stride in BLOCKS:
        layers.append(Residual(channels, stride, inputs))
        inputs = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def gluon_step(package, name):
    """Seconds a step of rsnet's or MXNet's Gluon."""
    import importlib

    import numpy as np

    mx = importlib.import_module(package)
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    if name == "lenet":
        net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2, 2))
        net.add(nn.Conv2D(50, 5, activation="relu"), nn.MaxPool2D(2, 2))
        net.add(nn.Flatten(), nn.Dense(500, activation="relu"), nn.Dense(10))
    elif name == "resnet":
        net = gluon_resnet(mx)
    else:
        net.add(nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize(static_alloc=True, static_shape=True)
    options = {"learning_rate": 0.01, "momentum": 0.9}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", options)
    rng = np.random.RandomState(0)
    x, y = mx.nd.array(rng.randn(*SHAPES[name])), mx.nd.array(rng.randint(10, size=BATCH))

    def step():
        with mx.autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(BATCH)

    return timed(step, mx.nd.waitall)


def torch_step(name):
    """Seconds a step of PyTorch."""
    import torch
    from torch import nn

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if name == "lenet":
        layers = [nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU()]
        layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU()]
        net = nn.Sequential(*layers, nn.Linear(500, 10))
    elif name == "resnet":
        net = torch_resnet(nn)
    else:
        layers = [nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()]
        net = nn.Sequential(*layers, nn.Linear(64, 10))
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    x, y = torch.randn(*SHAPES[name]), torch.randint(10, (BATCH,))

    def step():
        sgd.zero_grad()
        loss_of(net(x), y).backward()
        sgd.step()

    return timed(step, lambda: None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mxnet-python")
    parser.add_argument("--torch-python")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--networks", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--only", nargs=2, metavar=("PACKAGE", "NETWORK"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        package, name = args.only
        found = torch_step(name) if package == "torch" else gluon_step(package, name)
        print(json.dumps(found))
        return
    sides = {"rsnet": sys.executable, "mxnet": args.mxnet_python, "torch": args.torch_python}
    sides = {package: python for package, python in sides.items() if python}
    threads = {"OMP_NUM_THREADS": args.threads, "MXNET_CPU_WORKER_NTHREADS": args.threads}
    for name in args.networks:
        best: dict = {}
        for _ in range(ROUNDS):
            for package, python in sides.items():
                command = [python, __file__, "--only", package, name]
                done = subprocess.run(
                    command, check=True, capture_output=True, text=True, env=os.environ | threads
                )
                seconds = json.loads(done.stdout.splitlines()[-1])
                best[package] = min(seconds, best.get(package, seconds))
        line = ", ".join(f"{package} {1e6 * s:.0f} us" for package, s in best.items())
        ratios = ", ".join(
            f"{package} / rsnet {s / best['rsnet']:.2f}"
            for package, s in best.items()
            if package != "rsnet"
        )
        print(f"{name}: {line}; {ratios}")


if __name__ == "__main__":
    main()
