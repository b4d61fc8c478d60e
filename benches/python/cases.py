"""The same work in rsnet, MXNet and PyTorch, timed in the interpreter that runs this file.

    python benches/python/cases.py --package rsnet|mxnet|torch --out FILE [--only REGEX]

Writes the median seconds of an iteration of every case as JSON. `results.py` runs it for all
packages in turn; only ratios of such runs mean something.
"""

import argparse
import importlib
import json
import os
import re
import statistics
import time

CASES = {}


def case(name, mx, torch):
    """Adds a case: functions of the library and of NumPy's generator that return what to time."""
    CASES[name] = {"mx": mx, "torch": torch}


def rand(rng, *shape):
    return rng.uniform(-1, 1, shape).astype("float32")


def simple(name, shapes, mx, torch):
    """A case of one call on arrays of the given shapes."""

    def run_mx(lib, rng):
        arrays = [lib.nd.array(rand(rng, *s)) for s in shapes]

        def run():
            mx(lib, *arrays)
            lib.nd.waitall()

        return run

    def run_torch(lib, rng):
        arrays = [lib.from_numpy(rand(rng, *s)) for s in shapes]
        return lambda: torch(lib, *arrays)

    case(name, run_mx, run_torch)


def bound(lib, rng, net, train, **shapes):
    """A bound executor's forward pass, or forward and backward."""
    net = lib.sym.MakeLoss(net) if train else net
    exe = net.simple_bind(ctx=lib.cpu(), grad_req="write" if train else "null", **shapes)
    for array in exe.arg_dict.values():
        array[:] = lib.nd.array(rand(rng, *array.shape) * 0.1)

    def run():
        exe.forward(is_train=train)
        if train:
            exe.backward()
        lib.nd.waitall()

    return run


def module_step(lib, module, data):
    """Forward and backward of a PyTorch module."""
    data.requires_grad_()
    one = lib.ones_like(module(data))

    def run():
        data.grad = None
        module.zero_grad()
        module(data).backward(one)

    return run


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


# Shape of the data, filters, kernel, stride, padding, groups.
CONVOLUTIONS = {
    "3x3_64c56_b8": ((8, 64, 56, 56), 64, 3, 1, 1, 1),
    "3x3_256c14_b8": ((8, 256, 14, 14), 256, 3, 1, 1, 1),
    "3x3_16c32_b32": ((32, 16, 32, 32), 16, 3, 1, 1, 1),
    "1x1_256to64_c56_b8": ((8, 256, 56, 56), 64, 1, 1, 0, 1),
    "7x7s2_3to64_224_b8": ((8, 3, 224, 224), 64, 7, 2, 3, 1),
    "dw3x3_256c28_b8": ((8, 256, 28, 28), 256, 3, 1, 1, 256),
    "5x5_20to50_lenet_b64": ((64, 20, 12, 12), 50, 5, 1, 0, 1),
}


def convolutions():
    for name, (shape, filters, kernel, stride, pad, groups) in CONVOLUTIONS.items():

        def symbol(lib, filters=filters, kernel=kernel, stride=stride, pad=pad, groups=groups):
            return lib.sym.Convolution(
                lib.sym.Variable("data"),
                num_filter=filters,
                kernel=(kernel, kernel),
                stride=(stride, stride),
                pad=(pad, pad),
                num_group=groups,
                name="c",
            )

        def module(lib, c=shape[1], args=(filters, kernel, stride, pad), groups=groups):
            return lib.nn.Conv2d(c, *args, groups=groups)

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


def mx_resnet20(sym):
    def norm(x, name):
        return sym.Activation(sym.BatchNorm(x, fix_gamma=False, name=name), act_type="relu")

    def conv(x, filters, kernel, stride, name):
        return sym.Convolution(
            x,
            num_filter=filters,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=(kernel // 2, kernel // 2),
            no_bias=True,
            name=name,
        )

    h = conv(sym.Variable("data"), 16, 3, 1, "conv0")
    for stage, filters in enumerate((16, 32, 64)):
        for unit in range(3):
            name, stride = f"s{stage}u{unit}", 2 if stage and not unit else 1
            first = norm(h, name + "_bn1")
            y = norm(conv(first, filters, 3, stride, name + "_c1"), name + "_bn2")
            short = h if unit else conv(first, filters, 1, stride, name + "_sc")
            h = conv(y, filters, 3, 1, name + "_c2") + short
    h = sym.Pooling(norm(h, "last"), global_pool=True, kernel=(8, 8), pool_type="avg")
    return sym.SoftmaxOutput(sym.FullyConnected(sym.Flatten(h), num_hidden=10), name="softmax")


def torch_resnet20(lib):
    nn = lib.nn

    class Unit(nn.Module):
        def __init__(self, channels, filters, stride, short):
            super().__init__()
            self.first = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
            self.body = nn.Sequential(
                nn.Conv2d(channels, filters, 3, stride, 1, bias=False),
                nn.BatchNorm2d(filters),
                nn.ReLU(),
                nn.Conv2d(filters, filters, 3, 1, 1, bias=False),
            )
            self.short = nn.Conv2d(channels, filters, 1, stride, bias=False) if short else None

        def forward(self, x):
            first = self.first(x)
            return self.body(first) + (self.short(first) if self.short else x)

    modules, channels = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)], 16
    for stage, filters in enumerate((16, 32, 64)):
        for unit in range(3):
            modules.append(Unit(channels, filters, 2 if stage and not unit else 1, not unit))
            channels = filters
    tail = [nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*modules, *tail, nn.Linear(64, 10))


def mx_lenet(sym):
    h = sym.Variable("data")
    for filters in (20, 50):
        h = sym.Activation(sym.Convolution(h, kernel=(5, 5), num_filter=filters), act_type="tanh")
        h = sym.Pooling(h, pool_type="max", kernel=(2, 2), stride=(2, 2))
    h = sym.Activation(sym.FullyConnected(sym.Flatten(h), num_hidden=500), act_type="tanh")
    return sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=10), name="softmax")


def torch_lenet(lib):
    nn, modules = lib.nn, []
    for channels, filters in ((1, 20), (20, 50)):
        modules += [nn.Conv2d(channels, filters, 5), nn.Tanh(), nn.MaxPool2d(2)]
    return nn.Sequential(*modules, nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, 10))


def mx_mlp(sym):
    h = sym.Variable("data")
    for width in (128, 64):
        h = sym.Activation(sym.FullyConnected(h, num_hidden=width), act_type="relu")
    return sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=10), name="softmax")


def torch_mlp(lib):
    nn = lib.nn
    inner = (nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
    return nn.Sequential(*inner, nn.Linear(64, 10))


def mx_step(lib, rng, net, shape):
    """A step of training: forward, backward, update with momentum."""
    label = rng.randint(0, 10, shape[0]).astype("float32")
    given = ("data", "softmax_label")
    names = [n for n in net.list_arguments() if n not in given]
    requests = {n: "null" if n in given else "write" for n in net.list_arguments()}
    exe = net.simple_bind(ctx=lib.cpu(), grad_req=requests, data=shape)
    for name, array in exe.arg_dict.items():
        values = label if name == "softmax_label" else rand(rng, *array.shape) * 0.05
        array[:] = lib.nd.array(values)
    sgd = lib.optimizer.SGD(learning_rate=0.01, momentum=0.9, rescale_grad=1 / shape[0])
    update = lib.optimizer.get_updater(sgd)

    def run():
        exe.forward(is_train=True)
        exe.backward()
        for i, name in enumerate(names):
            update(i, exe.grad_dict[name], exe.arg_dict[name])
        lib.nd.waitall()

    return run


def torch_step(lib, rng, net, shape):
    """The same for a module."""
    x = lib.from_numpy(rand(rng, *shape))
    label = lib.from_numpy(rng.randint(0, 10, shape[0]).astype("int64"))
    sgd = lib.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def run():
        sgd.zero_grad()
        lib.nn.functional.cross_entropy(net(x), label).backward()
        sgd.step()

    return run


def nets():
    for name, mx, torch, shape in (
        ("mlp_b64", mx_mlp, torch_mlp, (64, 784)),
        ("lenet_b64", mx_lenet, torch_lenet, (64, 1, 28, 28)),
        ("resnet20_b32", mx_resnet20, torch_resnet20, (32, 3, 32, 32)),
    ):
        case(
            f"net/{name}_train",
            lambda lib, rng, mx=mx, shape=shape: mx_step(lib, rng, mx(lib.sym), shape),
            lambda lib, rng, torch=torch, shape=shape: torch_step(lib, rng, torch(lib), shape),
        )


def measure(run, budget):
    """Median seconds of an iteration."""
    run()
    run()
    times, stop = [], time.perf_counter() + budget
    while len(times) < 3 or (time.perf_counter() < stop and len(times) < 200):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


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
    for define in (elementwise, products, convolutions, layers, nets):
        define()
    results = {"version": lib.__version__}
    for name, makers in CASES.items():
        if re.search(args.only, name):
            results[name] = measure(makers[kind](lib, np.random.RandomState(0)), args.budget)
    with open(args.out, "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main()
