"""Inference of the demo's network on 8-bit integers beside float32.

    python benches/python/quantized.py [--threads 2]

The quantized network's answers are checked first: its probabilities are near those of float. Then
the two are timed in turn, and with them the layers and conversions that it consists of.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import rsnet as mx
from rsnet import nd
from rsnet.contrib import quantization

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from lenet import lenet

ROUNDS, BATCH = 30, 50


def seconds(call):
    """Seconds until the outputs of a call are there."""
    start = time.perf_counter()
    for output in call():
        output.wait_to_read()
    return time.perf_counter() - start


def in_turn(calls):
    """The median milliseconds of each call; they take turns."""
    found = [[] for _ in calls]
    for _ in range(ROUNDS + 3):
        for call, times in zip(calls, found, strict=True):
            times.append(1e3 * seconds(call))
    return [statistics.median(times[3:]) for times in found]


def bound(symbol, args, aux):
    exe = symbol.simple_bind(mx.cpu(), grad_req="null", data=(BATCH, 1, 28, 28))
    exe.copy_params_from(args, aux)
    return exe


def network():
    """The network in float32 and in int8, as calls on one batch."""
    rng, symbol = np.random.RandomState(0), lenet()
    shapes = symbol.infer_shape(data=(BATCH, 1, 28, 28))[0]
    args = {
        name: nd.array(rng.normal(0, 0.05, shape))
        for name, shape in zip(symbol.list_arguments(), shapes, strict=True)
        if name not in ("data", "softmax_label")
    }
    images = rng.uniform(size=(BATCH, 1, 28, 28)).astype("float32")
    quantized = quantization.quantize_model(
        symbol, args, {}, calib_mode="naive", calib_data=mx.io.NDArrayIter(images, None, BATCH)
    )
    data = nd.array(images)
    executors = [bound(symbol, args, {}), bound(*quantized)]
    calls = [lambda exe=exe: exe.forward(is_train=False, data=data) for exe in executors]
    plain, whole = (call()[0].asnumpy() for call in calls)
    assert abs(plain - whole).max() < 0.02, "the quantized network gives other answers"
    return calls


def layers():
    """By layer: its name, a call in float32 and one in int8, on arrays of the network's size."""
    rng = np.random.RandomState(1)
    quantize = nd.contrib.quantize_v2
    x, w = (
        nd.array(rng.uniform(size=(BATCH, 20, 12, 12))),
        nd.array(rng.normal(size=(50, 20, 5, 5))),
    )
    v, u = nd.array(rng.uniform(size=(BATCH, 800))), nd.array(rng.normal(size=(500, 800)))
    (qx, *rx), (qw, *rw), (qv, *rv), (qu, *ru) = (
        quantize(a, out_type="int8") for a in (x, w, v, u)
    )
    conv = {"kernel": (5, 5), "num_filter": 50, "no_bias": True}
    full = {"num_hidden": 500, "no_bias": True}
    sums = nd.contrib.quantized_conv(qx, qw, *rx, *rw, **conv)
    exact = nd.Convolution(x, w, **conv)
    assert (
        nd.norm(nd.contrib.dequantize(*sums) - exact).asscalar() < 0.02 * nd.norm(exact).asscalar()
    )
    scaled = nd.contrib.requantize(*sums, min_calib_range=-9, max_calib_range=9)
    return [
        ("convolution 5x5", lambda: [nd.Convolution(x, w, **conv)],
         lambda: nd.contrib.quantized_conv(qx, qw, *rx, *rw, **conv)),
        ("fully connected", lambda: [nd.FullyConnected(v, u, **full)],
         lambda: nd.contrib.quantized_fully_connected(qv, qu, *rv, *ru, **full)),
        ("relu, and requantize", lambda: [nd.relu(exact)],
         lambda: nd.contrib.quantized_act(
             *nd.contrib.requantize(*sums, min_calib_range=-9, max_calib_range=9),
             act_type="relu")),
        ("max pooling 2x2",
         lambda: [nd.Pooling(exact, kernel=(2, 2), stride=(2, 2), pool_type="max")],
         lambda: nd.contrib.quantized_pooling(
             *scaled, kernel=(2, 2), stride=(2, 2), pool_type="max")),
    ]  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    mx.engine.set_num_threads(parser.parse_args().threads)
    print(f"{'':24}{'float32':>12}{'int8':>12}{'ratio':>8}")
    for name, *calls in [("LeNet, 50 digits", *network()), *layers()]:
        plain, whole = in_turn(calls)
        print(f"{name:24}{plain:9.2f} ms{whole:9.2f} ms{whole / plain:8.2f}")


if __name__ == "__main__":
    main()
