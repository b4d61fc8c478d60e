"""Trains an MLP or LeNet by Gluon on handwritten digits.

    python examples/gluon_digits.py [--network lenet] [--epochs 10] [--workers 2]

The last line is `test accuracy 0.xxxx`.
"""

import argparse
import time

import numpy as np
from lenet import digits

import rsnet as mx
from rsnet import autograd, gluon
from rsnet.gluon import nn


def mlp():
    net = nn.HybridSequential()
    net.add(nn.Flatten(), nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"))
    net.add(nn.Dense(10))
    return net


def lenet():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 5, activation="tanh"), nn.MaxPool2D(2, 2))
    net.add(nn.Conv2D(50, 5, activation="tanh"), nn.MaxPool2D(2, 2))
    net.add(nn.Flatten(), nn.Dense(500, activation="tanh"), nn.Dense(10))
    return net


def accuracy(net, loader):
    metric = mx.metric.Accuracy()
    for images, labels in loader:
        metric.update(labels, net(images))
    return metric.get()[1]


def train(network="mlp", epochs=10, batch=50, workers=0, rows=None):
    """Trains a network; returns it, and its accuracy on digits that it has not seen."""
    mx.random.seed(1)
    np.random.seed(1)
    arrays = [array[:rows] for array in digits()]
    seen, unseen = (gluon.data.ArrayDataset(*arrays[i : i + 2]) for i in (0, 2))
    training = gluon.data.DataLoader(seen, batch, shuffle=True, num_workers=workers)
    testing = gluon.data.DataLoader(unseen, batch, num_workers=workers)
    net = {"mlp": mlp, "lenet": lenet}[network]()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    options = {"learning_rate": 0.05, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", options)
    for epoch in range(epochs):
        start, total = time.time(), mx.metric.Loss()
        for images, labels in training:
            with autograd.record():
                loss = loss_of(net(images), labels)
            loss.backward()
            trainer.step(images.shape[0])
            total.update(None, loss)
        seconds = time.time() - start
        print(f"epoch {epoch + 1}: loss {total.get()[1]:.4f}, {seconds:.1f} s", flush=True)
    return net, accuracy(net, testing)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--network", choices=["mlp", "lenet"], default="mlp")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    print(f"test accuracy {train(args.network, args.epochs, workers=args.workers)[1]:.4f}")
