"""The same work in rsnet, MXNet and PyTorch, timed in the interpreter that runs this file.

    python benches/python/cases.py --package rsnet|mxnet|torch --out FILE [--only REGEX]

Writes the median seconds of an iteration of every case as JSON, and the mean size of what cases
calculate from the same numbers in every package, which `results.py` compares. It runs this file for
all packages in turn; only ratios of such runs mean something.
"""

import argparse
import importlib
import json
import os
import re
import statistics
import time

from harness import CASES, bound, case, module_step, rand
from networks import networks


def simple(name, shapes, mx, torch):
    """A case of one call on arrays of the given shapes."""

    def run_mx(lib, rng):
        arrays = [lib.nd.array(rand(rng, *s)) for s in shapes]

        def run():
            answer = mx(lib, *arrays)
            lib.nd.waitall()
            return answer

        return run

    def run_torch(lib, rng):
        arrays = [lib.from_numpy(rand(rng, *s)) for s in shapes]
        return lambda: torch(lib, *arrays)

    case(name, run_mx, run_torch)


def calls():
    """A thousand calls on small arrays: apart, and each on the result of the one before."""

    def apart(a, b):
        for _ in range(1000):
            c = a + b
        return c

    def chained(a, b):
        c = a
        for _ in range(1000):
            c = c + b
        return c

    for name, run in (("add_16", apart), ("chain_16", chained)):
        simple(
            f"op/{name} (x1000)",
            [(4, 4)] * 2,
            lambda _, a, b, run=run: run(a, b),
            lambda _, a, b, run=run: run(a, b),
        )


def elementwise():
    large = (1 << 23,)
    for name in ("relu", "exp", "tanh", "sigmoid"):
        simple(
            f"ew/{name}_8M",
            [large],
            lambda lib, x, name=name: getattr(lib.nd, name)(x),
            lambda lib, x, name=name: getattr(lib, name)(x),
        )
    simple("ew/add_8M", [large] * 2, lambda _, a, b: a + b, lambda _, a, b: a + b)
    simple("ew/square_8M", [large], lambda _, a: a**2, lambda _, a: a**2)
    simple("ew/power_8M", [large], lambda _, a: a**1.7, lambda _, a: a**1.7)
    simple(
        "ew/where_8M",
        [large] * 3,
        lambda lib, c, a, b: lib.nd.where(c, a, b),
        lambda lib, c, a, b: lib.where(c != 0, a, b),
    )
    for axis in (0, 1):
        simple(
            f"red/sum_4096x2048_axis{axis}",
            [(4096, 2048)],
            lambda lib, x, axis=axis: lib.nd.sum(x, axis=axis),
            lambda lib, x, axis=axis: lib.sum(x, axis),
        )
    simple(
        "red/softmax_512x8192",
        [(512, 8192)],
        lambda lib, x: lib.nd.softmax(x),
        lambda lib, x: lib.softmax(x, -1),
    )
    simple(
        "ew/bcast_add_4096x2048+row",
        [(4096, 2048), (1, 2048)],
        lambda lib, a, b: lib.nd.broadcast_add(a, b),
        lambda _, a, b: a + b,
    )
    simple(
        "mem/transpose_2048",
        [(2048, 2048)],
        lambda lib, x: lib.nd.transpose(x),
        lambda _, x: x.t().contiguous(),
    )


def products():
    for m, k, n in ((2048, 2048, 2048), (1024, 1024, 1024), (64, 784, 128), (32, 4096, 1000)):
        simple(
            f"gemm/{m}x{k}x{n}",
            [(m, k), (k, n)],
            lambda lib, a, b: lib.nd.dot(a, b),
            lambda _, a, b: a @ b,
        )
    simple(
        "gemm/32x4096x1000_transposed",
        [(32, 4096), (1000, 4096)],
        lambda lib, a, b: lib.nd.dot(a, b, transpose_b=True),
        lambda _, a, b: a @ b.t(),
    )
    simple(
        "gemm/batch_64x128x64x128",
        [(64, 128, 64), (64, 64, 128)],
        lambda lib, a, b: lib.nd.batch_dot(a, b),
        lambda _, a, b: a @ b,
    )


# Shape of the data, filters, kernel, stride, padding, groups. One number stands for all axes.
CONVOLUTIONS = {
    "3x3_64c56_b8": ((8, 64, 56, 56), 64, 3, 1, 1, 1),
    "3x3_256c14_b8": ((8, 256, 14, 14), 256, 3, 1, 1, 1),
    "3x3_16c32_b32": ((32, 16, 32, 32), 16, 3, 1, 1, 1),
    "1x1_256to64_c56_b8": ((8, 256, 56, 56), 64, 1, 1, 0, 1),
    "7x7s2_3to64_224_b8": ((8, 3, 224, 224), 64, 7, 2, 3, 1),
    "dw3x3_256c28_b8": ((8, 256, 28, 28), 256, 3, 1, 1, 256),
    "5x5_20to50_lenet_b64": ((64, 20, 12, 12), 50, 5, 1, 0, 1),
    "1d5_64c1000_b16": ((16, 64, 1000), 64, 5, 1, 2, 1),
    "3d3x3x3_64c8x28_b2": ((2, 64, 8, 28, 28), 64, 3, 1, 1, 1),
    "3d3x1x1_64c8x28_b2": ((2, 64, 8, 28, 28), 64, (3, 1, 1), 1, (1, 0, 0), 1),
}


def convolutions():
    for name, (shape, filters, *window, groups) in CONVOLUTIONS.items():
        axes = len(shape) - 2
        kernel, stride, pad = (n if isinstance(n, tuple) else (n,) * axes for n in window)

        def symbol(lib, filters=filters, kernel=kernel, stride=stride, pad=pad, groups=groups):
            return lib.sym.Convolution(
                lib.sym.Variable("data"),
                num_filter=filters,
                kernel=kernel,
                stride=stride,
                pad=pad,
                num_group=groups,
                name="c",
            )

        def module(lib, shape=shape, args=(filters, kernel, stride, pad), groups=groups):
            layer = getattr(lib.nn, f"Conv{len(shape) - 2}d")
            return layer(shape[1], *args, groups=groups)

        def infer_torch(lib, rng, module=module, shape=shape):
            net, x = module(lib), lib.from_numpy(rand(rng, *shape))

            def run():
                with lib.inference_mode():
                    net(x)

            return run

        case(
            f"conv/{name}_fwd",
            lambda lib, rng, s=symbol, shape=shape: bound(lib, rng, s(lib), False, data=shape),
            infer_torch,
        )
        case(
            f"conv/{name}_fwdbwd",
            lambda lib, rng, s=symbol, shape=shape: bound(lib, rng, s(lib), True, data=shape),
            lambda lib, rng, module=module, shape=shape: module_step(
                lib, module(lib), lib.from_numpy(rand(rng, *shape))
            ),
        )


def layers():
    shape = (32, 64, 56, 56)
    case(
        "norm/batchnorm_32x64x56_fwdbwd",
        lambda lib, rng: bound(
            lib, rng, lib.sym.BatchNorm(lib.sym.Variable("data"), fix_gamma=False), True, data=shape
        ),
        lambda lib, rng: module_step(
            lib, lib.nn.BatchNorm2d(64), lib.from_numpy(rand(rng, *shape))
        ),
    )
    image = (32, 64, 112, 112)
    for kind, module in (("max", "MaxPool2d"), ("avg", "AvgPool2d")):
        case(
            f"pool/{kind}3x3s2_32x64x112_fwdbwd",
            lambda lib, rng, kind=kind: bound(
                lib,
                rng,
                lib.sym.Pooling(
                    lib.sym.Variable("data"),
                    kernel=(3, 3),
                    stride=(2, 2),
                    pad=(1, 1),
                    pool_type=kind,
                ),
                True,
                data=image,
            ),
            lambda lib, rng, module=module: module_step(
                lib, getattr(lib.nn, module)(3, 2, 1), lib.from_numpy(rand(rng, *image))
            ),
        )


def mean_size(array):
    """The mean of the absolute values of an array of any package, but for those without a value."""
    import numpy as np

    return float(np.nanmean(abs(array.asnumpy() if hasattr(array, "asnumpy") else array.numpy())))


def measure(run, budget):
    """Median seconds of an iteration, and the mean size of its answer if it has one."""
    run()
    answer = run()
    size = None if answer is None else mean_size(answer)
    del answer
    times, stop = [], time.perf_counter() + budget
    while len(times) < 3 or (time.perf_counter() < stop and len(times) < 200):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times), size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", required=True, choices=["rsnet", "mxnet", "torch"])
    parser.add_argument("--only", default="", help="a regular expression on names of cases")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds a case")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, str(args.threads))
    import numpy as np

    lib = importlib.import_module(args.package)
    kind = "torch" if args.package == "torch" else "mx"
    if kind == "torch":
        lib.set_num_threads(args.threads)
    for define in (calls, elementwise, products, convolutions, layers, networks):
        define()
    seconds, answers = {}, {}
    for name, makers in CASES.items():
        if re.search(args.only, name):
            run = makers[kind](lib, np.random.RandomState(0))
            seconds[name], answers[name] = measure(run, args.budget)
    with open(args.out, "w") as file:
        json.dump({"version": lib.__version__, "seconds": seconds, "answers": answers}, file)


if __name__ == "__main__":
    main()
