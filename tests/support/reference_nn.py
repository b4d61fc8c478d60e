"""NumPy oracles of layers, loss heads and optimizer updates; see `reference.py`."""

import numpy as np
from reference import REFERENCES, reference


@reference("FullyConnected")
def fully_connected(x, weight, bias=None, num_hidden=None, no_bias=False, flatten=True):
    x = x.reshape(len(x), int(np.prod(x.shape[1:]))) if flatten else x
    y = x @ weight.T
    return y if bias is None else y + bias


def tuple_of(value, n, default):
    return tuple(value) if value else (default,) * n


def windows(x, kernel, stride, dilate, pad, fill=0.0, extra=None):
    """Patches of (N, C, spatial...): an array (N, C, out..., kernel...)."""
    n = len(kernel)
    extra = extra or (0,) * n
    widths = [(0, 0), (0, 0)] + [(p, p + e) for p, e in zip(pad, extra, strict=True)]
    x = np.pad(x, widths, constant_values=fill)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilate, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, 2 + n)))
    steps = tuple(slice(None, None, s) for s in stride)
    inside = tuple(slice(None, None, d) for d in dilate)
    return view[(slice(None), slice(None), *steps, *inside)]


def channels_first(x, layout):
    return np.moveaxis(x, -1, 1) if layout and layout.endswith("C") else x


@reference("Convolution", "Convolution_v1")
def convolution(
    x, weight, bias=None, kernel=(), num_filter=None, stride=(), dilate=(), pad=(), num_group=1,
    no_bias=False, layout=None, **_,
):  # fmt: skip
    last = bool(layout) and layout.endswith("C")
    x, weight = channels_first(x, layout), channels_first(weight, layout)
    n = len(kernel)
    stride, dilate, pad = (tuple_of(v, n, d) for v, d in ((stride, 1), (dilate, 1), (pad, 0)))
    patches = windows(x, kernel, stride, dilate, pad)
    outs = []
    for g in range(num_group):
        c, f = x.shape[1] // num_group, num_filter // num_group
        part, w = patches[:, g * c : (g + 1) * c], weight[g * f : (g + 1) * f]
        over = [1, *range(2 + n, 2 + 2 * n)], [1, *range(2, 2 + n)]
        outs.append(np.moveaxis(np.tensordot(part, w, over), -1, 1))
    y = np.concatenate(outs, 1)
    if bias is not None:
        y = y + bias.reshape(-1, *[1] * n)
    return np.moveaxis(y, 1, -1) if last else y


@reference("Deconvolution")
def deconvolution(
    x, weight, bias=None, kernel=(), num_filter=None, stride=(), dilate=(), pad=(), adj=(),
    target_shape=(), num_group=1, no_bias=True, layout=None, **_,
):  # fmt: skip
    n = len(kernel)
    stride, dilate, pad, adj = (
        tuple_of(v, n, d) for v, d in ((stride, 1), (dilate, 1), (pad, 0), (adj, 0))
    )
    size = [
        (i - 1) * s - 2 * p + d * (k - 1) + 1 + a
        for i, s, p, d, k, a in zip(x.shape[2:], stride, pad, dilate, kernel, adj, strict=True)
    ]
    full = np.zeros((len(x), num_filter, *[m + 2 * p for m, p in zip(size, pad, strict=True)]))
    c, f = x.shape[1] // num_group, num_filter // num_group
    for at in np.ndindex(*x.shape[2:]):
        for k in np.ndindex(*kernel):
            to = tuple(i * s + j * d for i, s, j, d in zip(at, stride, k, dilate, strict=True))
            for g in range(num_group):
                part = x[(slice(None), slice(g * c, (g + 1) * c), *at)]
                w = weight[(slice(g * c, (g + 1) * c), slice(None), *k)]
                full[(slice(None), slice(g * f, (g + 1) * f), *to)] += part @ w
    inner = tuple(slice(p, p + m) for p, m in zip(pad, size, strict=True))
    y = full[(slice(None), slice(None), *inner)]
    return y if bias is None else y + bias.reshape(-1, *[1] * n)


@reference("Pooling", "Pooling_v1")
def pooling(
    x, kernel=(), pool_type="max", global_pool=False, pooling_convention="valid", stride=(),
    pad=(), p_value=2, count_include_pad=True, layout=None, **_,
):  # fmt: skip
    last = bool(layout) and layout.endswith("C")
    x = channels_first(x, layout)
    n = x.ndim - 2
    if global_pool:
        kernel, stride, pad = x.shape[2:], (1,) * n, (0,) * n
    stride, pad = tuple_of(stride, n, 1), tuple_of(pad, n, 0)
    extra = full_extra(x, kernel, stride, pad) if pooling_convention == "full" else [0] * n
    inside = tuple(range(2 + n, 2 + 2 * n))
    cut = lambda a, fill: windows(a, kernel, stride, (1,) * n, pad, fill, extra)  # noqa: E731
    if pool_type == "max":
        y = cut(x, -np.inf).max(inside)
    elif pool_type == "lp":
        y = (cut(np.abs(x) ** p_value, 0).sum(inside)) ** (1 / p_value)
    else:
        y = cut(x, 0).sum(inside)
    if pool_type == "avg":
        y = y / pool_sizes(x, kernel, stride, pad, extra, count_include_pad)
    return np.moveaxis(y, 1, -1) if last else y


@reference("_pooling_at_max")
def pooling_at_max(
    values, x, kernel=(), global_pool=False, pooling_convention="valid", stride=(), pad=(),
    layout=None, **_,
):  # fmt: skip
    last = bool(layout) and layout.endswith("C")
    values, x = channels_first(values, layout), channels_first(x, layout)
    n = x.ndim - 2
    if global_pool:
        kernel, stride, pad = x.shape[2:], (1,) * n, (0,) * n
    stride, pad = tuple_of(stride, n, 1), tuple_of(pad, n, 0)
    extra = full_extra(x, kernel, stride, pad) if pooling_convention == "full" else (0,) * n
    cut = lambda a, fill: windows(a, kernel, stride, (1,) * n, pad, fill, extra)  # noqa: E731
    flat = lambda a: a.reshape(*a.shape[: 2 + n], -1)  # noqa: E731
    at = flat(cut(x, -np.inf)).argmax(-1)[..., None]
    y = np.take_along_axis(flat(cut(values, 0)), at, -1)[..., 0]
    return np.moveaxis(y, 1, -1) if last else y


def full_extra(x, kernel, stride, pad):
    """How much each axis is padded at its end so that the last window fits."""
    left = [(x.shape[2 + i] + 2 * pad[i] - k) % stride[i] for i, k in enumerate(kernel)]
    return [(s - rest) % s for s, rest in zip(stride, left, strict=True)]


def pool_sizes(x, kernel, stride, pad, extra, include_pad):
    """How many places each window averages over: those of the image, or with its padding too."""
    n = len(kernel)
    ones = np.ones((1, 1, *x.shape[2:]))
    if include_pad:
        ones = np.pad(ones, [(0, 0), (0, 0)] + [(p, p) for p in pad], constant_values=1)
        pad = (0,) * n
    return windows(ones, kernel, stride, (1,) * n, pad, 0, extra).sum(
        tuple(range(2 + n, 2 + 2 * n))
    )


@reference("UpSampling")
def upsampling(x, *more, scale, sample_type="nearest", num_args=1, **_):
    return x.repeat(scale, 2).repeat(scale, 3)


# ---- activations ---------------------------------------------------------------------------------

ACTIVATIONS = {
    "relu": REFERENCES["relu"],
    "sigmoid": REFERENCES["sigmoid"],
    "tanh": np.tanh,
    "softrelu": lambda x: np.logaddexp(0, x),
    "softsign": REFERENCES["softsign"],
}


@reference("Activation")
def activation(x, act_type):
    return ACTIVATIONS[act_type](x)


@reference("LeakyReLU")
def leaky_relu(x, gamma=None, act_type="leaky", slope=0.25, lower_bound=0.125, upper_bound=0.334):
    if act_type == "prelu":
        return np.where(x > 0, x, x * gamma.reshape(1, -1, *[1] * (x.ndim - 2)))
    if act_type == "gelu":
        return 0.5 * x * (1 + REFERENCES["erf"](x / np.sqrt(2)))
    if act_type == "selu":
        alpha, scale = 1.6732632423543772, 1.0507009873554805
        return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))
    below = slope * np.expm1(np.minimum(x, 0)) if act_type == "elu" else slope * x
    return np.where(x > 0, x, below)


def softmax_of(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def within(x, length, axis, use_length):
    """Which places along the axis a softmax over `length` elements counts."""
    if not use_length:
        return np.ones(x.shape, dtype=bool)
    at = np.arange(x.shape[axis]).reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    return at < np.expand_dims(length, axis)


@reference("softmax")
def softmax(x, length=None, axis=-1, temperature=None, dtype=None, use_length=False):
    x = x / (temperature or 1.0)
    mask = within(x, length, axis, use_length)
    return np.where(mask, softmax_of(np.where(mask, x, -np.inf), axis), 0)


@reference("log_softmax")
def log_softmax(x, axis=-1, temperature=None, dtype=None, use_length=False):
    return np.log(softmax_of(x / (temperature or 1.0), axis))


@reference("softmin")
def softmin(x, axis=-1, temperature=None, dtype=None, use_length=False):
    return softmax(-x, None, axis, temperature)


@reference("SoftmaxActivation")
def softmax_activation(x, mode="instance"):
    if mode == "channel":
        return softmax_of(x, 1)
    return softmax_of(x.reshape(len(x), -1), 1).reshape(x.shape)


# ---- normalization -------------------------------------------------------------------------------


def scaled(x, mean, var, eps, gamma, beta, shape):
    y = (x - mean) / np.sqrt(var + eps)
    return y * gamma.reshape(shape) + beta.reshape(shape)


@reference("BatchNorm", "BatchNorm_v1")
def batch_norm(
    x, gamma, beta, moving_mean, moving_var, eps=1e-3, momentum=0.9, fix_gamma=True,
    use_global_stats=False, output_mean_var=False, axis=1, is_train=True, **_,
):  # fmt: skip
    shape = [1] * x.ndim
    shape[axis] = -1
    over = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    gamma = np.ones_like(gamma) if fix_gamma else gamma
    if is_train and not use_global_stats:
        mean, var = x.mean(over), x.var(over)
    else:
        mean, var = moving_mean, moving_var
    y = scaled(x, mean.reshape(shape), var.reshape(shape), eps, gamma, beta, shape)
    return (y, mean, 1 / np.sqrt(var + eps)) if output_mean_var else y


@reference("LayerNorm")
def layer_norm(x, gamma, beta, axis=-1, eps=1e-5, output_mean_var=False):
    shape = [1] * x.ndim
    shape[axis] = -1
    mean, var = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
    y = scaled(x, mean, var, eps, gamma, beta, shape)
    return (y, mean, np.sqrt(var + eps)) if output_mean_var else y


@reference("InstanceNorm")
def instance_norm(x, gamma, beta, eps=1e-3):
    over = tuple(range(2, x.ndim))
    mean, var = x.mean(over, keepdims=True), x.var(over, keepdims=True)
    return scaled(x, mean, var, eps, gamma, beta, (1, -1, *[1] * (x.ndim - 2)))


@reference("GroupNorm")
def group_norm(x, gamma, beta, num_groups=1, eps=1e-5, output_mean_var=False):
    groups = x.reshape(len(x), num_groups, -1)
    mean, var = groups.mean(2, keepdims=True), groups.var(2, keepdims=True)
    return scaled(groups, mean, var, eps, gamma, beta, (1, -1, 1)).reshape(x.shape)


@reference("L2Normalization")
def l2_normalization(x, eps=1e-10, mode="instance"):
    over = {"instance": tuple(range(1, x.ndim)), "channel": 1, "spatial": tuple(range(2, x.ndim))}
    return x / np.sqrt((x * x).sum(over[mode], keepdims=True) + eps)


@reference("LRN")
def lrn(x, nsize, alpha=1e-4, beta=0.75, knorm=2.0):
    half = nsize // 2
    squares = np.pad(x * x, [(0, 0), (half, half)] + [(0, 0)] * (x.ndim - 2))
    total = sum(squares[:, i : i + x.shape[1]] for i in range(nsize))
    return x / (knorm + alpha / nsize * total) ** beta


# ---- optimizer updates: the new weight, then the new states --------------------------------------


def clipped(g, bound):
    return np.clip(g, -bound, bound) if bound >= 0 else g


@reference("sgd_update")
def sgd_update(w, g, lr, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0, lazy_update=True):
    return w - lr * (clipped(g * rescale_grad, clip_gradient) + wd * w)


@reference("sgd_mom_update")
def sgd_mom_update(
    w, g, m, lr, momentum=0.0, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0, lazy_update=True
):
    m = momentum * m - lr * (clipped(g * rescale_grad, clip_gradient) + wd * w)
    return w + m, m


@reference("mp_sgd_update")
def mp_sgd_update(w, g, w32, **params):
    w32 = sgd_update(w32, g, **params)
    return w32, w32


@reference("mp_sgd_mom_update")
def mp_sgd_mom_update(w, g, m, w32, **params):
    w32, m = sgd_mom_update(w32, g, m, **params)
    return w32, m, w32


@reference("nag_mom_update")
def nag_mom_update(w, g, m, lr, momentum=0.0, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0):
    step = lr * (clipped(g * rescale_grad, clip_gradient) + wd * w)
    m = momentum * m - step
    return w + momentum * m - step, m


@reference("signsgd_update")
def signsgd_update(w, g, lr, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0):
    return (1 - lr * wd) * w - lr * np.sign(clipped(g * rescale_grad, clip_gradient))


@reference("signum_update")
def signum_update(
    w, g, m, lr, momentum=0.0, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0, wd_lh=0.0
):
    m = momentum * m - (1 - momentum) * (wd * w + clipped(g * rescale_grad, clip_gradient))
    return (1 - lr * wd_lh) * w + lr * np.sign(m), m


@reference("adam_update")
def adam_update(
    w, g, m, v, lr, beta1=0.9, beta2=0.999, epsilon=1e-8, wd=0.0, rescale_grad=1.0,
    clip_gradient=-1.0, lazy_update=True,
):  # fmt: skip
    g = clipped(g * rescale_grad + wd * w, clip_gradient)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    return w - lr * m / (np.sqrt(v) + epsilon), m, v


@reference("rmsprop_update")
def rmsprop_update(
    w, g, n, lr, gamma1=0.95, epsilon=1e-8, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0,
    clip_weights=-1.0,
):  # fmt: skip
    g = clipped(g * rescale_grad + wd * w, clip_gradient)
    n = (1 - gamma1) * g * g + gamma1 * n
    return clipped(w - lr * g / np.sqrt(n + epsilon), clip_weights), n


@reference("rmspropalex_update")
def rmspropalex_update(
    w, g, n, mean, delta, lr, gamma1=0.95, gamma2=0.9, epsilon=1e-8, wd=0.0, rescale_grad=1.0,
    clip_gradient=-1.0, clip_weights=-1.0,
):  # fmt: skip
    g = clipped(g * rescale_grad + wd * w, clip_gradient)
    n = (1 - gamma1) * g * g + gamma1 * n
    mean = (1 - gamma1) * g + gamma1 * mean
    delta = gamma2 * delta - lr * g / np.sqrt(n - mean * mean + epsilon)
    return clipped(w + delta, clip_weights), n, mean, delta


@reference("ftml_update")
def ftml_update(
    w, g, d, v, z, lr, t, beta1=0.6, beta2=0.999, epsilon=1e-8, wd=0.0, rescale_grad=1.0,
    clip_grad=-1.0,
):  # fmt: skip
    g = clipped(g * rescale_grad + wd * w, clip_grad)
    v = beta2 * v + (1 - beta2) * g * g
    new = (1 - beta1**t) / lr * (np.sqrt(v / (1 - beta2**t)) + epsilon)
    z = beta1 * z + (1 - beta1) * g - (new - beta1 * d) * w
    return -z / new, new, v, z


@reference("ftrl_update")
def ftrl_update(
    w, g, z, n, lr, lamda1=0.01, beta=1.0, wd=0.0, rescale_grad=1.0, clip_gradient=-1.0
):
    g = clipped(g * rescale_grad, clip_gradient)
    z = z + g - (np.sqrt(n + g * g) - np.sqrt(n)) * w / lr
    n = n + g * g
    new = (np.sign(z) * lamda1 - z) / ((beta + np.sqrt(n)) / lr + wd) * (np.abs(z) > lamda1)
    return new, z, n


def heads_of(x, heads, of):
    """Projections (of, B * heads, L, d) of an array (L, B, heads * of * d)."""
    length, batch, width = x.shape
    d = width // (heads * of)
    return (
        x.reshape(length, batch, heads, of, d).transpose(3, 1, 2, 0, 4).reshape(of, -1, length, d)
    )


def scores(q, k):
    return q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[2])


def joined(y, heads):
    """(L, B, heads * d) of heads (B * heads, L, d)."""
    n, length, d = y.shape
    return y.reshape(-1, heads, length, d).transpose(2, 0, 1, 3).reshape(length, n // heads, -1)


@reference("_contrib_interleaved_matmul_selfatt_qk")
def self_attention_scores(x, heads=1):
    q, k, _ = heads_of(x, heads, 3)
    return scores(q, k)


@reference("_contrib_interleaved_matmul_selfatt_valatt")
def self_attention_values(x, attention, heads=1):
    return joined(attention @ heads_of(x, heads, 3)[2], heads)


@reference("_contrib_interleaved_matmul_encdec_qk")
def attention_scores(queries, keys_values, heads=1):
    return scores(heads_of(queries, heads, 1)[0], heads_of(keys_values, heads, 2)[0])


@reference("_contrib_interleaved_matmul_encdec_valatt")
def attention_values(keys_values, attention, heads=1):
    return joined(attention @ heads_of(keys_values, heads, 2)[1], heads)
