"""Smoke test of an installed wheel, run from anywhere; prints the versions when all is well."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import rsnet as mx

ROOT = Path(__file__).parents[2]


def check_inference() -> None:
    """Unknown extents are found from both sides."""
    a, b = mx.sym.Variable("a", shape=(2, 0)), mx.sym.Variable("b")
    c = mx.sym.Variable("c", shape=(0, 3))
    found = (a * b + b * c).infer_shape()
    assert found == ([(2, 3)] * 3, [(2, 3)], []), found


def check_training() -> None:
    """A two-layer network learns to tell the sign of a sum."""
    mx.random.seed(0)
    rng = np.random.RandomState(0)
    x = rng.uniform(-1, 1, (64, 8)).astype("float32")
    y = (x.sum(1) > 0).astype("float32")
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=2, name="fc2"), name="softmax")
    exe = net.simple_bind(ctx=mx.cpu(), data=x.shape)
    init = mx.init.Xavier()
    names = [n for n in net.list_arguments() if n not in ("data", "softmax_label")]
    for name in names:
        init(mx.init.InitDesc(name), exe.arg_dict[name])
    sgd = mx.optimizer.SGD(learning_rate=0.5, momentum=0.9, rescale_grad=1 / 64)
    updater = mx.optimizer.get_updater(sgd)
    for _ in range(60):
        exe.forward(is_train=True, data=x, softmax_label=y)
        exe.backward()
        for i, name in enumerate(names):
            updater(i, exe.grad_dict[name], exe.arg_dict[name])
    right = float((exe.outputs[0].asnumpy().argmax(1) == y).mean())
    assert right > 0.95, right


def check_plugins() -> str:
    """Libraries by the C header, OneFlow's names and MXNet's, compiled with the package's headers
    by the commands of the guide.
    """
    if shutil.which("g++") is None or shutil.which("gcc") is None:
        return "without compiled operators (no g++)"
    asked = [sys.executable, "-m", "rsnet.sysconfig"]
    flags = subprocess.run([*asked, "--cflags"], capture_output=True, text=True, check=True)
    include = subprocess.run([*asked, "--include"], capture_output=True, text=True, check=True)
    c = ["gcc", "-std=c99", f"-I{include.stdout.strip()}", "-fPIC"]
    cpp = ["g++", *flags.stdout.split()]
    x = mx.nd.array([-3.0, 0.5])
    with tempfile.TemporaryDirectory() as folder:
        for command, source, name, params, want in [
            (c, "tests/plugin/sources/scale.c", "c_scale", {"by": 3}, [-9.0, 1.5]),
            (cpp, "examples/plugin/swish.cpp", "swish", {"beta": 0}, [-1.5, 0.25]),
            (cpp, "examples/plugin/huber.cc", "huber", {"delta": 1}, [2.5, 0.125]),
        ]:
            library = f"{folder}/lib{name}.so"
            subprocess.run([*command, "-shared", str(ROOT / source), "-o", library], check=True)
            assert name in mx.load_library(library)
            x.attach_grad()
            with mx.autograd.record():
                y = getattr(mx.nd, name)(x, **params)
            y.backward()
            assert y.asnumpy().tolist() == want, (name, y.asnumpy())
            assert np.isfinite(x.grad.asnumpy()).all()
    return "with compiled operators in C, by OneFlow's and by MXNet's names"


if __name__ == "__main__":
    two = mx.nd.ones((2, 3)) + 1
    assert two.asnumpy().tolist() == [[2.0] * 3] * 2
    check_inference()
    check_training()
    compiled = check_plugins()
    print(f"rsnet {mx.__version__} works with NumPy {np.__version__}, {compiled}")
