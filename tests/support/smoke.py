"""Smoke test of an installed wheel, run from anywhere; prints the versions when all is well."""

import numpy as np

import rsnet as mx


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


if __name__ == "__main__":
    two = mx.nd.ones((2, 3)) + 1
    assert two.asnumpy().tolist() == [[2.0] * 3] * 2
    check_inference()
    check_training()
    print(f"rsnet {mx.__version__} works with NumPy {np.__version__}")
