"""One training step of the demo's network, beside PyTorch where that is installed.

    python benches/python/step.py [--torch-python PATH] [--threads 2]

Forward, backward and the momentum update of a batch of 50 digits. PyTorch may live in another
environment: name its interpreter. The two are timed in turn, several rounds each.
"""

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS, STEPS, BATCH = 5, 20, 50


def timed(step, finish):
    """Median seconds a step over windows of `STEPS`."""
    for _ in range(5):
        step()
    finish()
    windows = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        finish()
        windows.append((time.perf_counter() - start) / STEPS)
    return statistics.median(windows)


def rsnet_step():
    """Seconds a step of our network."""
    import numpy as np

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from lenet import lenet

    import rsnet as mx

    rng = np.random.RandomState(0)
    net = lenet()
    exe = net.simple_bind(ctx=mx.cpu(), data=(BATCH, 1, 28, 28))
    names = [n for n in net.list_arguments() if n not in ("data", "softmax_label")]
    for name in names:
        exe.arg_dict[name][:] = mx.nd.array(rng.normal(0, 0.05, exe.arg_dict[name].shape))
    data = mx.nd.array(rng.normal(size=(BATCH, 1, 28, 28)))
    label = mx.nd.array(rng.randint(0, 10, BATCH))
    sgd = mx.optimizer.SGD(learning_rate=0.01, momentum=0.9, rescale_grad=1 / BATCH)
    updater = mx.optimizer.get_updater(sgd)

    def step():
        exe.forward(is_train=True, data=data, softmax_label=label)
        exe.backward()
        for i, name in enumerate(names):
            updater(i, exe.grad_dict[name], exe.arg_dict[name])

    seconds = timed(step, mx.nd.waitall)
    probabilities = exe.outputs[0].asnumpy()
    assert np.allclose(probabilities.sum(1), 1, atol=1e-4), "the network's answer is wrong"
    return seconds


def torch_step(threads):
    """Seconds a step of the same network in PyTorch."""
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    torch.manual_seed(0)

    class ScaledTanh(nn.Module):
        def forward(self, x):
            return 1.7159 * torch.tanh(x * (2 / 3))

    net = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 256), ScaledTanh(), nn.Dropout(0.5),
        nn.Linear(256, 10),
    )  # fmt: skip
    data, label = torch.randn(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step():
        sgd.zero_grad()
        nn.functional.cross_entropy(net(data), label).backward()
        sgd.step()

    return timed(step, lambda: None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=["rsnet", "torch"], help="time one, print seconds")
    args = parser.parse_args()
    if args.only:
        print(rsnet_step() if args.only == "rsnet" else torch_step(args.threads))
        return
    interpreters = {"rsnet": sys.executable, "torch": args.torch_python}
    if args.torch_python == sys.executable and importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed here: only rsnet is timed (see --torch-python)")
        del interpreters["torch"]
    seconds = {name: [] for name in interpreters}
    for _ in range(ROUNDS):
        for name, python in interpreters.items():
            command = [python, __file__, "--only", name, "--threads", str(args.threads)]
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            seconds[name].append(float(out))
    for name, times in seconds.items():
        print(f"{name}: {statistics.median(times) * 1e3:.2f} ms a step of {BATCH} images")
    if len(seconds) == 2:
        ratio = statistics.median(seconds["rsnet"]) / statistics.median(seconds["torch"])
        print(f"ratio rsnet / torch: {ratio:.2f}")


if __name__ == "__main__":
    main()
