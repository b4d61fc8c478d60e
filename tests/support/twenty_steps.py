"""Trains a network for twenty steps by `Module.fit`, and prints the loss of each as JSON.

    python -m rsnet.as_mxnet tests/support/twenty_steps.py NETWORK

Data and initial weights are NumPy's, the same for every library that is imported as `mxnet`.
"""

import json
import sys

import mxnet as mx
import numpy as np

STEPS, ROWS, CLASSES = 20, 16, 10
RATE = {"resnet20": 0.01}  # at larger ones, rounding errors grow a thousandfold


def mlp():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=32, name="fc1")
    net = mx.sym.Activation(net, act_type="relu")
    return mx.sym.FullyConnected(net, num_hidden=CLASSES, name="fc2"), (20,)


def lenet():
    net = mx.sym.Variable("data")
    for i, filters in enumerate((6, 16)):
        net = mx.sym.Convolution(net, kernel=(5, 5), num_filter=filters, name=f"conv{i}")
        net = mx.sym.Activation(net, act_type="tanh")
        net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=32, name="fc1")
    net = mx.sym.Activation(net, act_type="tanh")
    return mx.sym.FullyConnected(net, num_hidden=CLASSES, name="fc2"), (1, 28, 28)


def lstm():
    cell = mx.rnn.SequentialRNNCell()
    cell.add(mx.rnn.LSTMCell(16, prefix="lstm0_"))
    cell.add(mx.rnn.LSTMCell(16, prefix="lstm1_"))
    outputs, _ = cell.unroll(6, mx.sym.Variable("data"), layout="NTC")
    return mx.sym.FullyConnected(outputs[-1], num_hidden=CLASSES, name="fc"), (6, 8)


def resnet20():
    # Smooth: where a value is almost 0, rounding would decide which way a rectifier takes.
    def convolution(net, filters, kernel, stride, name):
        pad = (kernel // 2, kernel // 2)
        net = mx.sym.Convolution(
            net, num_filter=filters, kernel=(kernel, kernel), stride=(stride, stride), pad=pad,
            no_bias=True, name=name + "_conv",
        )  # fmt: skip
        return mx.sym.BatchNorm(net, fix_gamma=False, eps=2e-5, momentum=0.9, name=name + "_bn")

    net = convolution(mx.sym.Variable("data"), 16, 3, 1, "first")
    for stage, filters in enumerate((16, 32, 64)):
        for unit in range(3):
            name, stride = f"s{stage}u{unit}", 2 if stage and not unit else 1
            inner = mx.sym.Activation(
                convolution(net, filters, 3, stride, name + "a"), act_type="softrelu"
            )
            inner = convolution(inner, filters, 3, 1, name + "b")
            short = net if stride == 1 else convolution(net, filters, 1, stride, name + "s")
            net = mx.sym.Activation(inner + short, act_type="softrelu")
    net = mx.sym.Pooling(net, global_pool=True, pool_type="avg", kernel=(1, 1))
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=CLASSES, name="fc")
    return net, (3, 16, 16)


def weights(net, shapes, random):
    """Values of all parameters, drawn in the order of their names."""
    arguments, _, states = net.infer_shape(**shapes)
    found = []
    for names, extents in (
        (net.list_arguments(), arguments),
        (net.list_auxiliary_states(), states),
    ):
        values = {}
        for name, shape in sorted(zip(names, extents)):
            if name in shapes:
                continue
            scale = (2.0 / max(np.prod(shape[1:]), 1)) ** 0.5
            value = random.normal(size=shape) * scale
            if name.endswith(("gamma", "moving_var")):
                value = np.ones(shape)
            elif len(shape) == 1:
                value = np.zeros(shape)
            values[name] = mx.nd.array(value)
        found.append(values)
    return found


def prepared(network):
    """The network with its loss, shapes, first weights, and the batches of all steps."""
    net, shape = globals()[network]()
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    random = np.random.RandomState(7)
    shapes = {"data": (ROWS, *shape), "softmax_label": (ROWS,)}
    params = weights(net, shapes, random)
    batches = []
    for _ in range(STEPS):
        x = random.normal(size=shapes["data"]).astype("float32")
        batches.append((x, random.randint(0, CLASSES, ROWS)))
    return net, params, batches


def losses(network):
    """Cross-entropies of twenty steps of SGD with momentum by `Module.fit`."""
    net, (arg_params, aux_params), batches = prepared(network)
    x, y = (np.concatenate(parts) for parts in zip(*batches))
    found = []

    def note(param):
        chances = module.get_outputs()[0].asnumpy().astype("float64")
        labels = batches[param.nbatch][1]
        found.append(float(-np.log(chances[np.arange(ROWS), labels]).mean()))

    module = mx.mod.Module(net)
    module.fit(
        mx.io.NDArrayIter(x, y, ROWS),
        num_epoch=1,
        optimizer_params={"learning_rate": RATE.get(network, 0.05), "momentum": 0.9, "wd": 1e-4},
        arg_params=arg_params,
        aux_params=aux_params,
        batch_end_callback=note,
    )
    return found


if __name__ == "__main__":
    print(json.dumps(losses(sys.argv[1])))
