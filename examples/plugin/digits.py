"""Trains digits with operators of three kinds: compiled, written in Python, and built in.

    python examples/plugin/digits.py [--epochs 5]

`swish.cpp` beside this file is compiled at the first run. The last line is the test accuracy.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import rsnet as mx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from lenet import digits  # noqa: E402 - which registers ScaledTanh, an operator in Python

BATCH = 50


def network(classes):
    """Two hidden layers: the first with a compiled activation, the second with one in Python."""
    net = mx.sym.Flatten(mx.sym.Variable("data"))
    net = mx.sym.FullyConnected(net, num_hidden=128, name="fc1")
    net = mx.sym.swish(net, beta=1.5, name="swish1")
    net = mx.sym.FullyConnected(net, num_hidden=64, name="fc2")
    net = mx.sym.ScaledTanh(net, name="tanh2")
    net = mx.sym.FullyConnected(net, num_hidden=classes, name="fc3")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def train(images, labels, test_images, test_labels, epochs=5):
    """The trained module and its accuracy on the test images."""
    mx.load_library(mx.build_extension(HERE / "swish.cpp", verbose=False))
    module = mx.mod.Module(network(int(labels.max()) + 1))
    module.fit(
        mx.io.NDArrayIter(images, labels, BATCH, shuffle=True),
        num_epoch=epochs,
        initializer=mx.init.Xavier(),
        optimizer_params={"learning_rate": 0.05, "momentum": 0.9},
    )
    found = module.score(mx.io.NDArrayIter(test_images, test_labels, BATCH), "acc")
    return module, found[0][1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    mx.random.seed(1)
    np.random.seed(1)
    _, accuracy = train(*digits(), epochs=parser.parse_args().epochs)
    print(f"test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
