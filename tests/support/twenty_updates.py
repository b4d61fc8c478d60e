"""Weights after twenty steps of optimizers, by rsnet or by MXNet, as a file.

python tests/support/twenty_updates.py rsnet|mxnet OUT.npz
"""

import importlib
import sys

import numpy as np

SHAPES = [(3, 4), (5,), (2, 3, 2)]
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1, "wd": 0.01},
    "momentum": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, "clip_gradient": 0.3},
    "mixed": {"learning_rate": 0.1, "momentum": 0.9, "multi_precision": True},
    "lamb": {"learning_rate": 0.1, "wd": 0.01, "lower_bound": 0.5, "upper_bound": 2.0},
    "lamb uncorrected": {"learning_rate": 0.1, "bias_correction": False},
    "lamb mixed": {"learning_rate": 0.1, "wd": 0.01, "multi_precision": True},
    "lars": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
}


def trained(mx, kind, together):
    """The weights after twenty steps on the same gradients, all parameters at once or in turn."""
    options = OPTIMIZERS[kind]
    name = kind.split()[0] if kind.split()[0] in ("lamb", "lars") else "sgd"
    updater = mx.optimizer.get_updater(mx.optimizer.create(name, rescale_grad=0.5, **options))
    dtype = "float16" if options.get("multi_precision") else "float32"
    rng = np.random.RandomState(3)
    weights = [mx.nd.array(rng.uniform(-1, 1, s), dtype=dtype) for s in SHAPES]
    for _ in range(20):
        grads = [mx.nd.array(rng.uniform(-1, 1, s), dtype=dtype) for s in SHAPES]
        indices = list(range(len(SHAPES)))
        if together:
            updater(indices, grads, weights)
        else:
            for step in zip(indices, grads, weights, strict=True):
                updater(*step)
    return [w.asnumpy() for w in weights]


if __name__ == "__main__":
    package = importlib.import_module(sys.argv[1])
    found = {
        f"{kind} {i}": w for kind in OPTIMIZERS for i, w in enumerate(trained(package, kind, True))
    }
    np.savez(sys.argv[2], **found)
