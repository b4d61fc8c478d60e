"""What `Module.fit` costs beyond bare executor calls, for LeNet and an MLP.

    python benches/python/fit.py

A window of steps by `fit`, and the same steps written out (forward, backward, the momentum update
of each parameter, the accuracy of the batch), are timed in turn. The target for LeNet is 1.05.
"""

import logging
import statistics
import time

import numpy as np

import rsnet as mx

BATCH, BATCHES, WINDOWS = 64, 20, 15
SHAPES = {"mlp": (784,), "lenet": (1, 28, 28)}
OPTIONS = {"learning_rate": 0.01, "momentum": 0.9, "wd": 1e-4}


def network(name):
    sym = mx.sym
    net = sym.Variable("data")
    if name == "lenet":
        for i, filters in enumerate((20, 50)):
            net = sym.Convolution(net, kernel=(5, 5), num_filter=filters, name=f"conv{i}")
            net = sym.Pooling(
                sym.Activation(net, act_type="tanh"), pool_type="max", kernel=(2, 2), stride=(2, 2)
            )
        net = sym.Flatten(net)
    hidden = 500 if name == "lenet" else 128
    net = sym.Activation(sym.FullyConnected(net, num_hidden=hidden, name="fc1"), act_type="tanh")
    net = sym.FullyConnected(net, num_hidden=10, name="fc2")
    return sym.SoftmaxOutput(net, name="softmax")


def data_of(name):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(BATCH * BATCHES, *SHAPES[name])).astype("float32")
    return x, draw.integers(0, 10, BATCH * BATCHES).astype("float32")


def by_fit(name, x, y):
    """A function that runs the batches once by `fit`."""
    module = mx.mod.Module(network(name))
    batches = mx.io.NDArrayIter(x, y, batch_size=BATCH)

    def run():
        batches.reset()
        module.fit(batches, num_epoch=1, optimizer_params=OPTIONS, progress=False)
        mx.nd.waitall()

    return run


def by_hand(name, x, y):
    """A function that runs the batches once by an executor."""
    exe = network(name).simple_bind(mx.cpu(), data=(BATCH, *SHAPES[name]), softmax_label=(BATCH,))
    batches = mx.io.NDArrayIter(x, y, batch_size=BATCH)
    inputs = {"data", "softmax_label"}
    weights = [
        (w, exe.grad_dict[name], mx.nd.zeros(w.shape))
        for name, w in exe.arg_dict.items()
        if name not in inputs
    ]
    init = mx.init.Uniform(0.01)
    for name, weight in exe.arg_dict.items():
        if name not in inputs:
            init(mx.init.InitDesc(name), weight)
    options = {"lr": 0.01, "momentum": 0.9, "wd": 1e-4, "rescale_grad": 1 / BATCH}

    def run():
        batches.reset()
        right = 0
        for batch in batches:
            batch.data[0].copyto(exe.arg_dict["data"])
            batch.label[0].copyto(exe.arg_dict["softmax_label"])
            exe.forward(is_train=True)
            exe.backward()
            for weight, grad, momentum in weights:
                mx.nd.sgd_mom_update(weight, grad, momentum, out=weight, **options)
            predicted = exe.outputs[0].asnumpy().argmax(axis=1)
            right += (predicted == batch.label[0].asnumpy()).sum()
        mx.nd.waitall()

    return run


def main():
    logging.getLogger().setLevel(logging.ERROR)  # a second `fit` says that it goes on
    print(f"{'network':8s} {'fit ms':>8s} {'by hand ms':>10s} {'ratio':>6s}   (a step)")
    for name in SHAPES:
        x, y = data_of(name)
        runs = by_fit(name, x, y), by_hand(name, x, y)
        times = [[], []]
        for window in range(WINDOWS + 1):
            for kept, run in zip(times, runs, strict=True):
                start = time.perf_counter()
                run()
                if window:
                    kept.append((time.perf_counter() - start) / BATCHES * 1e3)
        ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
        fit, hand = (min(kept) for kept in times)
        print(f"{name:8s} {fit:8.2f} {hand:10.2f} {ratio:6.2f}   ratio of least {fit / hand:.2f}")


if __name__ == "__main__":
    main()
