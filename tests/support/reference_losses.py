"""The NumPy oracle of loss heads, whose gradients are defined, not derived."""

import numpy as np
from reference import REFERENCES, gradient, reference
from reference_nn import softmax_of


@reference("SoftmaxOutput")
def softmax_output(x, label, multi_output=False, preserve_shape=False, **_):
    if preserve_shape:
        return softmax_of(x, -1)
    if multi_output:
        return softmax_of(x, 1)
    return softmax_of(x.reshape(len(x), -1), 1).reshape(x.shape)


@gradient("SoftmaxOutput")
def softmax_output_grad(
    out_grads, x, label, grad_scale=1.0, ignore_label=-1.0, multi_output=False, use_ignore=False,
    preserve_shape=False, normalization="null", out_grad=False, smooth_alpha=0.0,
):  # fmt: skip
    p = softmax_output(x, label, multi_output, preserve_shape)
    axis = 1 if multi_output else -1
    if label.shape == x.shape:
        return [(p - label) * grad_scale, np.zeros(label.shape)]
    classes = x.shape[axis]
    hot = np.moveaxis(
        label.reshape(np.delete(x.shape, axis))[..., None] == np.arange(classes), -1, axis
    )
    smooth = 0.0 if multi_output else smooth_alpha
    target = np.where(hot, 1 - smooth, smooth / (classes - 1))
    counted = np.expand_dims(label.reshape(np.delete(x.shape, axis)) != ignore_label, axis)
    g = (p - target) * (counted if use_ignore else 1)
    positions = int(np.prod(x.shape[2:])) if multi_output else 1
    divisors = {"null": positions, "batch": label.size, "valid": max(counted.sum(), 1)}
    g = g * grad_scale / divisors[normalization]
    return [g * out_grads[0] if out_grad else g, np.zeros(label.shape)]


def regression(forward, slope):
    def grad(out_grads, x, label, grad_scale=1.0):
        y = forward(x)
        per_sample = max(label.size // len(label), 1)
        return [slope(y, label.reshape(x.shape)) * grad_scale / per_sample, np.zeros(label.shape)]

    return grad


HEADS = {
    "LinearRegressionOutput": (lambda x: x, lambda y, t: y - t),
    "LogisticRegressionOutput": (REFERENCES["sigmoid"], lambda y, t: y - t),
    "MAERegressionOutput": (lambda x: x, lambda y, t: np.where(y > t, 1.0, -1.0)),
}
for head, (forward, slope) in HEADS.items():
    reference(head)(lambda x, label, grad_scale=1.0, forward=forward: forward(x))
    gradient(head)(regression(forward, slope))


REFERENCES["SVMOutput"] = lambda x, label, **_: x


@gradient("SVMOutput")
def svm_grad(out_grads, x, label, margin=1.0, regularization_coefficient=1.0, use_linear=False):
    s = np.where(label[..., None] == np.arange(x.shape[-1]), 1.0, -1.0)
    gap = np.maximum(0, margin - s * x)
    g = (gap > 0) * -s if use_linear else 2 * gap * -s
    return [regularization_coefficient * g, np.zeros(label.shape)]


@gradient("MakeLoss")
def make_loss_grad(out_grads, x, grad_scale=1.0, valid_thresh=0.0, normalization="null"):
    by = {"null": 1, "batch": len(x), "valid": max((x > valid_thresh).sum(), 1)}[normalization]
    return [np.full(x.shape, grad_scale / by)]


gradient("make_loss")(lambda out_grads, x: [np.ones(x.shape)])
gradient("BlockGrad")(lambda out_grads, x: [np.zeros(x.shape)])


@reference("softmax_cross_entropy")
def softmax_cross_entropy(x, label):
    chosen = softmax_of(x)[np.arange(len(x)), label.astype("int64")]
    return np.array([-np.log(chosen).sum()])
