"""What `Module.fit` costs beyond bare executor calls, for LeNet and an MLP.

    python benches/python/fit.py [--peer PYTHON]

A window of steps by `fit`, and the same steps written out (forward, backward, the momentum update
of each parameter, the accuracy of the batch), are timed in turn. The target for LeNet is 1.05.

`--peer` is an interpreter with MXNet 1.9: its `fit` of the same networks, data and first weights is
timed in turn with rsnet's, each in a process of its own. Both have to end with the same accuracy.
"""

import argparse
import importlib
import json
import logging
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np

BATCH, BATCHES, WINDOWS = 64, 20, 15
SHAPES = {"mlp": (784,), "lenet": (1, 28, 28)}
OPTIONS = {"learning_rate": 0.01, "momentum": 0.9, "wd": 1e-4}


def network(mx, name):
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


def first_weights(mx, symbol, shape):
    """Small random numbers for each parameter."""
    draw = np.random.default_rng(1)
    shapes, _, _ = symbol.infer_shape(data=shape)
    named = zip(symbol.list_arguments(), shapes)  # MXNet's Python has no `strict`
    return {
        name: mx.nd.array(draw.uniform(-0.05, 0.05, shape))
        for name, shape in named
        if name not in ("data", "softmax_label")
    }


def by_fit(mx, name, x, y, **options):
    """A function that runs the batches once by `fit`, and returns the accuracy."""
    symbol = network(mx, name)
    module = mx.mod.Module(symbol)
    batches = mx.io.NDArrayIter(x, y, batch_size=BATCH)
    weights = first_weights(mx, symbol, (BATCH, *SHAPES[name]))
    metric = mx.metric.Accuracy()

    def run():
        batches.reset()
        module.fit(
            batches,
            eval_metric=metric,
            num_epoch=1,
            optimizer_params=OPTIONS,
            arg_params=weights,
            **options,
        )
        mx.nd.waitall()
        return metric.get()[1]

    return run


def by_hand(mx, name, x, y):
    """A function that runs the batches once by an executor, and returns the accuracy."""
    symbol = network(mx, name)
    exe = symbol.simple_bind(mx.cpu(), data=(BATCH, *SHAPES[name]), softmax_label=(BATCH,))
    batches = mx.io.NDArrayIter(x, y, batch_size=BATCH)
    inputs = {"data", "softmax_label"}
    weights = [
        (w, exe.grad_dict[name], mx.nd.zeros(w.shape))
        for name, w in exe.arg_dict.items()
        if name not in inputs
    ]
    exe.copy_params_from(first_weights(mx, symbol, (BATCH, *SHAPES[name])))
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
        return right / (BATCH * BATCHES)

    return run


def timed(run):
    """Milliseconds of a step, and the accuracy."""
    start = time.perf_counter()
    accuracy = run()
    return (time.perf_counter() - start) / BATCHES * 1e3, accuracy


def serve(module):
    """Runs `fit` of a network for each line that is read, and prints its time and accuracy."""
    logging.getLogger().setLevel(logging.ERROR)
    mx = importlib.import_module(module)
    options = {"progress": False} if module == "rsnet" else {}
    runs = {name: by_fit(mx, name, *data_of(name), **options) for name in SHAPES}
    for line in sys.stdin:
        print(json.dumps(timed(runs[line.strip()])), flush=True)


class Server:
    """A process that runs `serve`."""

    def __init__(self, python, module):
        command = [python, "-W", "ignore", __file__, "--serve", module]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)

    def __call__(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def beside(peer):
    """The table of rsnet's `fit` and MXNet's."""
    print(f"{'network':8s} {'rsnet ms':>8s} {'MXNet ms':>10s} {'ratio':>6s}   (a step)")
    sides = Server(sys.executable, "rsnet"), Server(peer, "mxnet")
    for name in SHAPES:
        times = [[], []]
        for window in range(WINDOWS + 1):
            (ours, accuracy), (theirs, want) = (side(name) for side in sides)
            if window == 0:
                assert abs(accuracy - want) < 0.005, f"accuracies differ: {accuracy}, {want}"
                continue
            times[0].append(ours)
            times[1].append(theirs)
        ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
        ours, theirs = (statistics.median(side) for side in times)
        print(f"{name:8s} {ours:8.2f} {theirs:10.2f} {ratio:6.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve)
    if args.peer:
        return beside(args.peer)
    import rsnet as mx

    # A second `fit` says that it goes on.
    warnings.filterwarnings("ignore", "Parameters already initialized")
    logging.getLogger().setLevel(logging.ERROR)
    print(f"{'network':8s} {'fit ms':>8s} {'by hand ms':>10s} {'ratio':>6s}   (a step)")
    for name in SHAPES:
        x, y = data_of(name)
        runs = by_fit(mx, name, x, y, progress=False), by_hand(mx, name, x, y)
        times = [[], []]
        for window in range(WINDOWS + 1):
            steps, accuracies = zip(*map(timed, runs), strict=True)
            if window == 0:
                assert accuracies[0] == accuracies[1], f"accuracies differ: {accuracies}"
                continue
            for kept, step in zip(times, steps, strict=True):
                kept.append(step)
        ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
        fit, hand = (min(kept) for kept in times)
        print(f"{name:8s} {fit:8.2f} {hand:10.2f} {ratio:6.2f}   ratio of least {fit / hand:.2f}")
    return None


if __name__ == "__main__":
    main()
