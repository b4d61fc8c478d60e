"""Runs every operator case, forward and backward, and a small network; saves all results.

    python tests/support/run_cases.py OUT.npz

`test_engines_agree.py` compares what different engines, thread counts and memory plans give.
"""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES
from operators import function, head_gradients, host, known_operators, place, run_executor

import rsnet as mx


def results():
    """Arrays by name."""
    found = {}
    existing = known_operators()
    for op, op_cases in CASES.items():
        if op not in existing:
            continue
        for case in op_cases:
            if "float32" not in case.dtypes:
                continue
            arrays = case.arrays("float32")
            out = function(mx.nd, op)(*[place(a) for a in arrays], **case.params)
            outs = out if isinstance(out, (list, tuple)) else [out]
            found.update({f"{case.id} out{i}": host(o) for i, o in enumerate(outs)})
            if case.grad != "none" and all(a.size for a in arrays):
                heads = head_gradients(case, arrays)
                grads, _ = run_executor(case, arrays, heads, "write")
                found.update({f"{case.id} grad{i}": host(g) for i, g in grads.items()})
    found.update(trained())
    return found


def network():
    """Branches, a shared weight and a dropout, so that a memory plan has something to decide."""
    data, weight = mx.sym.Variable("data"), mx.sym.Variable("w")
    net = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=4, name="conv")
    left = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn"), act_type="relu")
    net = mx.sym.Pooling(left + mx.sym.tanh(net), kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.Dropout(mx.sym.Flatten(net), p=0.25)
    one = mx.sym.FullyConnected(net, weight, num_hidden=6, no_bias=True, name="fc1")
    two = mx.sym.FullyConnected(net * 0.5, weight, num_hidden=6, no_bias=True, name="fc2")
    return mx.sym.SoftmaxOutput(one * mx.sym.sigmoid(two), name="softmax")


def trained():
    """Parameters after a few steps of training."""
    mx.random.seed(3)
    rng = np.random.RandomState(3)
    net = network()
    exe = net.simple_bind(ctx=mx.cpu(), data=(8, 3, 6, 6))
    names = [n for n in net.list_arguments() if n not in ("data", "softmax_label")]
    for name in names:
        exe.arg_dict[name][:] = mx.nd.array(rng.normal(0, 0.3, exe.arg_dict[name].shape))
    update = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    for _ in range(4):
        data = rng.normal(size=(8, 3, 6, 6)).astype("float32")
        label = rng.randint(0, 6, 8).astype("float32")
        exe.forward(is_train=True, data=mx.nd.array(data), softmax_label=mx.nd.array(label))
        exe.backward()
        for i, name in enumerate(names):
            update(i, exe.grad_dict[name], exe.arg_dict[name])
    return {f"trained {n}": host(exe.arg_dict[n]) for n in names} | {
        f"trained {n}": host(a) for n, a in exe.aux_dict.items()
    }


if __name__ == "__main__":
    if "RUN_CASES_THREADS" in os.environ:
        mx.engine.set_num_threads(int(os.environ["RUN_CASES_THREADS"]))
    np.savez(sys.argv[1], **results())
