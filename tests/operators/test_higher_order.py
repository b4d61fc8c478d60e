"""Derivatives of derivatives: `grad(create_graph=True)` against finite differences of first
gradients.
"""

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, nd

F64 = "float64"
P = np.array([[0.7, 1.9, 2.4], [0.4, 1.3, 3.1]])  # positive
Q = np.array([[1.45, 0.6, 1.1], [2.3, 0.9, 1.7]])
INSIDE = np.array([[-0.8, -0.3, 0.2], [0.7, 0.45, -0.55]])  # inside of (-1, 1)
BIG = P + 1.1
RNG = np.random.RandomState(3)


def rand(*shape):
    return RNG.uniform(-1, 1, shape)


# Functions of one array, by the points at which they are tried.
UNARY = dict.fromkeys(
    "relu sigmoid softsign tanh exp expm1 square negative abs sin cos tan arcsin arccos arctan "
    "sinh cosh arcsinh arctanh degrees radians erf erfinv softmax log_softmax softmin".split(),
    INSIDE,
)
UNARY |= dict.fromkeys("log log2 log10 log1p sqrt rsqrt cbrt rcbrt reciprocal".split(), P)
UNARY["arccosh"] = BIG


def embedding(w):
    return nd.Embedding(nd.array([1, 0, 1]), w, input_dim=2, output_dim=3)


def fc(x, w, b):
    return nd.FullyConnected(x, w, b, num_hidden=4)


def conv(x, w, b):
    return nd.Convolution(x, w, b, kernel=(2, 2), num_filter=2)


def batch_norm(x, gamma, beta, axis=1, **params):
    """With moving averages of its own."""
    c = x.shape[axis]
    mean, var = nd.full((c,), 0.2, dtype=F64), nd.full((c,), 1.5, dtype=F64)
    params = {"fix_gamma": False, "eps": 0.1} | params
    return nd.BatchNorm(x, gamma, beta, mean, var, axis=axis, **params)


def masked(x):
    """Dropout by the same mask whenever it is run."""
    mx.random.seed(5)
    return nd.Dropout(x * x, p=0.5)


def rrelu(x):
    """With the same slopes whenever it is run."""
    mx.random.seed(5)
    return nd.LeakyReLU(x * x * x, act_type="rrelu")[0]


def pool(kind, layout=None, data=lambda x: x * x, **params):
    params = {"kernel": (2, 2), "stride": (1, 1)} | params
    return lambda x: nd.Pooling(data(x), pool_type=kind, layout=layout, **params)


IMAGE = (rand(1, 2, 4, 4), rand(2, 2, 2, 2), rand(2))

CASES = {
    **{name: (lambda x, f=name: getattr(nd, f)(x), [x]) for name, x in UNARY.items()},
    "softmax axis": (lambda x: nd.softmax(x, axis=0, temperature=2.0), [INSIDE]),
    "add": (lambda a, b: a + b, [P, Q]),
    "sub": (lambda a, b: a - b, [P, Q]),
    "mul": (lambda a, b: a * b, [P, Q]),
    "div": (lambda a, b: a / b, [P, Q]),
    "mod": (lambda a, b: a % b, [P, Q]),
    "power": (lambda a, b: a**b, [P, Q]),
    "maximum": (nd.maximum, [P, Q]),
    "minimum": (nd.minimum, [P, Q]),
    "hypot": (nd.broadcast_hypot, [P, Q]),
    "elemwise_div": (nd.elemwise_div, [P, Q]),
    "elemwise_mul": (nd.elemwise_mul, [P, Q]),
    "add_n": (lambda a, b: nd.add_n(a, b, a), [P, Q]),
    **{f"broadcast_{op}": (getattr(nd, f"broadcast_{op}"), [P, Q[:1]])
       for op in ("add", "sub", "mul", "div", "mod", "power", "maximum", "minimum", "hypot")},
    "column and row": (nd.broadcast_mul, [P[:, :1], Q[0]]),
    "broadcast_div of fewer axes": (nd.broadcast_div, [P, Q[0]]),
    "number right": (lambda x: ((x - 0.5) * 3 + 2) / 4 + x**3 + x % 0.37, [P]),
    "number left": (lambda x: (2 - x) + 3 / x + 2**x + 5 % x, [P]),
    "number maximum": (lambda x: nd.maximum(x, 1.0) * nd.minimum(x, 2.0), [P]),
    "dot": (nd.dot, [P, Q.T]),
    "dot transposed": (lambda a, b: nd.dot(a, b, transpose_a=True, transpose_b=True), [P, Q.T]),
    "dot of three axes": (nd.dot, [rand(2, 3, 2), rand(2, 3)]),
    "batch_dot": (nd.batch_dot, [rand(2, 3, 2), rand(2, 2, 4)]),
    "FullyConnected": (fc, [rand(3, 5), rand(4, 5), rand(4)]),
    "FullyConnected no bias": (
        lambda x, w: nd.FullyConnected(x, w, num_hidden=4, no_bias=True), [rand(3, 5), rand(4, 5)]),
    "Convolution": (conv, list(IMAGE)),
    "Deconvolution": (
        lambda x, w: nd.Deconvolution(x, w, kernel=(2, 2), num_filter=2), list(IMAGE[:2])),
    "det": (nd.linalg.det, [rand(2, 3, 3) + 2 * np.eye(3)]),
    "det of one matrix": (nd.linalg.det, [rand(3, 3) + 2 * np.eye(3)]),
    "slogdet": (lambda x: nd.linalg.slogdet(x)[1], [rand(2, 3, 3) + 2 * np.eye(3)]),
    "moments": (lambda x: sum(nd.moments(x * x, axes=(0, 2))), [rand(2, 2, 3)]),
    "moments keepdims": (lambda x: nd.moments(x, axes=(1,), keepdims=True)[1], [P]),
    "softmax_cross_entropy": (
        lambda x: nd.softmax_cross_entropy(x, nd.array([2, 0], dtype=F64)), [P]),
    "GroupNorm": (lambda x, g, b: nd.GroupNorm(x, g, b, num_groups=2, eps=0.1),
        [rand(2, 4, 3), rand(2), rand(2)]),
    "sum": (lambda x: nd.sum(x * x, axis=1), [P]),
    "sum exclude": (lambda x: nd.sum(x * x, axis=1, exclude=True, keepdims=True), [P]),
    "mean": (lambda x: nd.mean(x * x, axis=0), [P]),
    "prod": (lambda x: nd.prod(x, axis=1), [P]),
    "nansum": (lambda x: nd.nansum(x * x, axis=1), [P]),
    "max": (lambda x: nd.max(x * x, axis=1), [P]),
    "min": (lambda x: nd.min(x * x), [P]),
    "norm": (nd.norm, [P]),
    "norm of rows": (lambda x: nd.norm(x, axis=1, keepdims=True), [P]),
    "norm 1": (lambda x: nd.norm(x * x, ord=1, axis=1), [P]),
    "clip": (lambda x: nd.clip(x * x, 0.5, 4), [P]),
    "smooth_l1": (lambda x: nd.smooth_l1(x * x, scalar=1.0), [P]),
    "hard_sigmoid": (lambda x: nd.hard_sigmoid(x * x), [P]),
    "quadratic": (lambda x: nd.contrib.quadratic(x, a=2, b=3, c=1), [P]),
    **{f"Activation {a}": (lambda x, a=a: nd.Activation(x, act_type=a), [INSIDE])
       for a in ("relu", "sigmoid", "tanh", "softrelu", "softsign")},
    "reshape": (lambda x: nd.reshape(x * x, (3, 2)), [P]),
    "flatten": (lambda x: nd.flatten(x * x), [rand(2, 2, 2)]),
    "expand and squeeze": (lambda x: nd.squeeze(nd.expand_dims(x * x, 1)), [P]),
    "reshape_like": (lambda x: nd.reshape_like(x * x, nd.ones((6,))), [P]),
    "transpose": (lambda x: nd.transpose(x * x, axes=(1, 0)), [P]),
    "swapaxes": (lambda x: nd.swapaxes(x * x, 0, 1), [P]),
    "slice": (lambda x: nd.slice(x * x, begin=(0, 1), end=(2, 3)), [P]),
    "slice_axis": (lambda x: nd.slice_axis(x * x, axis=1, begin=1, end=3), [P]),
    "slice_like": (lambda x: nd.slice_like(x * x, nd.ones((1, 2))), [P]),
    "index": (lambda x: x[1] * x[1], [P]),
    "broadcast_to": (lambda x: nd.broadcast_to(x * x, (2, 3)), [P[:1]]),
    "broadcast_axis": (lambda x: nd.broadcast_axis(x * x, axis=0, size=2), [P[:1]]),
    "broadcast_like": (lambda x: nd.broadcast_like(x * x, nd.ones((2, 3))), [P[:1]]),
    "tile": (lambda x: nd.tile(x * x, reps=(2, 1)), [P]),
    "repeat": (lambda x: nd.repeat(x * x, repeats=2, axis=1), [P]),
    "reverse": (lambda x: nd.reverse(x * x, axis=1), [P]),
    "diag": (lambda x: nd.diag(x * x), [P]),
    "depth_to_space": (lambda x: nd.depth_to_space(x * x, 2), [rand(1, 4, 1, 2)]),
    "space_to_depth": (lambda x: nd.space_to_depth(x * x, 2), [rand(1, 1, 2, 4)]),
    "pad": (lambda x: nd.pad(x * x, mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 0, 2)),
            [rand(1, 1, 2, 2)]),
    "concat": (lambda a, b: nd.concat(a * a, a * b, dim=1), [P, Q]),
    "stack": (lambda a, b: nd.stack(a * b, b * b, axis=1), [P, Q]),
    "split": (lambda x: nd.split(x * x, 3, axis=1)[1], [P]),
    "split_v2": (lambda x: nd.split_v2(x * x, (1,), axis=1)[1], [P]),
    "take": (lambda x: nd.take(x * x, nd.array([1, 0, 1])), [P]),
    "pick": (lambda x: nd.pick(x * x, nd.array([1, 2])), [P]),
    "batch_take": (lambda x: nd.batch_take(x * x, nd.array([1, 2], dtype="int32")), [P]),
    "Embedding": (lambda w: embedding(w * w), [P]),
    "gather_nd": (lambda x: nd.gather_nd(x * x, nd.array([[1, 0], [2, 1]])), [P]),
    "where": (lambda a, b: nd.where(nd.array([[1, 0, 1], [0, 1, 0]]), a * a, a * b), [P, Q]),
    "cast": (lambda x: nd.cast(nd.cast(x * x, "float32"), "float64"), [P]),
    "SequenceMask": (
        lambda x: nd.SequenceMask(x * x, nd.array([1, 2], dtype=F64), use_sequence_length=True),
        [rand(3, 2, 2)]),
    "SequenceLast": (lambda x: nd.SequenceLast(x * x), [rand(3, 2, 2)]),
    "SequenceReverse": (lambda x: nd.SequenceReverse(x * x), [rand(3, 2, 2)]),
    **{f"LeakyReLU {a}": (lambda x, a=a: nd.LeakyReLU(x, act_type=a, slope=0.3), [INSIDE])
       for a in ("leaky", "elu", "selu", "gelu")},
    "Dropout": (masked, [rand(3, 4)]),
    **{f"Pooling {k}": (pool(k), [rand(1, 2, 4, 4)]) for k in ("max", "avg", "sum")},
    "Pooling max NHWC": (pool("max", "NHWC"), [rand(1, 4, 4, 2)]),
    "Pooling max global": (pool("max", global_pool=True), [rand(1, 2, 3, 3)]),
    "Pooling max padded": (
        pool("max", kernel=(3, 3), pad=(1, 1), stride=(2, 2)), [rand(1, 2, 4, 4)]),
    "Pooling_v1": (lambda x: nd.Pooling_v1(x * x, kernel=(2, 2)), [rand(1, 2, 3, 3)]),
    "LayerNorm": (lambda x, g, b: nd.LayerNorm(x, g, b, eps=0.1), [rand(3, 4), rand(4), rand(4)]),
    "LayerNorm axis": (
        lambda x, g, b: nd.LayerNorm(x, g, b, axis=1, eps=0.1), [rand(2, 3, 2), rand(3), rand(3)]),
    "InstanceNorm": (
        lambda x, g, b: nd.InstanceNorm(x, g, b, eps=0.1), [rand(2, 3, 4), rand(3), rand(3)]),
    "BatchNorm": (batch_norm, [rand(3, 2, 2), rand(2), rand(2)]),
    "BatchNorm axis": (lambda x, g, b: batch_norm(x, g, b, -1), [rand(4, 3), rand(3), rand(3)]),
    "BatchNorm global": (
        lambda x, g, b: batch_norm(x, g, b, use_global_stats=True), [rand(3, 2), rand(2), rand(2)]),
    "BatchNorm fixed gamma": (
        lambda x, b: batch_norm(x, nd.zeros(2, dtype=F64), b, fix_gamma=True),
        [rand(3, 2), rand(2)]),
    **{f"L2Normalization {m}": (
        lambda x, m=m: nd.L2Normalization(x, mode=m, eps=0.1), [rand(2, 3, 2)])
       for m in ("instance", "channel", "spatial")},
    "L2Normalization twice": (
        lambda x: nd.L2Normalization(x) * nd.L2Normalization(x * x, mode="channel"),
        [rand(2, 3, 2)]),
    "LRN": (lambda x: nd.LRN(x, nsize=3, alpha=0.5, knorm=1), [rand(2, 4, 2, 1)]),
    "LRN of two axes": (lambda x: nd.LRN(x, nsize=5, alpha=0.7, beta=0.6), [rand(2, 4)]),
    "LeakyReLU prelu": (lambda x, a: nd.LeakyReLU(x, a, act_type="prelu"), [rand(2, 3, 2), P[0]]),
    "LeakyReLU prelu of two axes": (lambda x, a: nd.LeakyReLU(x, a, act_type="prelu"),
        [INSIDE, P[0]]),
    "LeakyReLU prelu, one slope": (
        lambda x, a: nd.LeakyReLU(x, a, act_type="prelu"), [rand(2, 3, 2), P[0, :1]]),
    "LeakyReLU rrelu": (rrelu, [INSIDE]),
    "UpSampling": (lambda x: nd.UpSampling(x * x, scale=2, sample_type="nearest"),
        [rand(1, 2, 2, 2)]),
    "UpSampling of two": (
        lambda x, y: nd.UpSampling(x * y, y, scale=2, sample_type="nearest", num_args=2),
        [rand(1, 2, 2, 2), rand(1, 2, 2, 2)]),
    "UpSampling bilinear": (
        lambda x, w: nd.UpSampling(
            x, w, scale=2, sample_type="bilinear", num_filter=2, num_args=2),
        [rand(1, 2, 2, 2), rand(2, 1, 4, 4)]),
    "make_loss": (lambda x: nd.make_loss(x * x), [P]),
    "cumsum": (lambda x: nd.cumsum(x * x, axis=1), [P]),
    "cumsum of all": (lambda x: nd.cumsum(x * x), [P]),
    "sort": (lambda x: nd.sort(x * x, axis=0), [INSIDE]),
    "sort of all": (lambda x: nd.sort(x * x, axis=None, is_ascend=False), [INSIDE]),
    "AdaptiveAvgPooling2D": (
        lambda x: nd.contrib.AdaptiveAvgPooling2D(x * x, output_size=(2, 3)), [rand(1, 2, 3, 4)]),
    "BilinearResize2D": (
        lambda x: nd.contrib.BilinearResize2D(x * x, height=4, width=3), [rand(1, 2, 3, 2)]),
    "BilinearResize2D like": (
        lambda x: nd.contrib.BilinearResize2D(
            x * x, nd.ones((1, 1, 2, 4), dtype="float64"), mode="like"),
        [rand(1, 2, 3, 2)]),
    "interleaved_matmul_selfatt_qk": (
        lambda x: nd.contrib.interleaved_matmul_selfatt_qk(x, heads=2), [rand(3, 2, 12)]),
    "interleaved_matmul_selfatt_valatt": (
        lambda x, a: nd.contrib.interleaved_matmul_selfatt_valatt(x, a, heads=2),
        [rand(2, 1, 12), rand(2, 2, 2)]),
    "interleaved_matmul_encdec_qk": (
        lambda q, kv: nd.contrib.interleaved_matmul_encdec_qk(q, kv, heads=2),
        [rand(2, 1, 4), rand(3, 1, 8)]),
    "interleaved_matmul_encdec_valatt": (
        lambda kv, a: nd.contrib.interleaved_matmul_encdec_valatt(kv, a, heads=2),
        [rand(3, 1, 8), rand(2, 2, 3)]),
    "sumlogdiag": (nd.linalg.sumlogdiag, [P[:, :2]]),
    "sumlogdiag of a batch": (nd.linalg.sumlogdiag, [np.stack([P[:, :2], Q[:, 1:]])]),
    "khatri_rao": (lambda *m: nd.khatri_rao(*m), [rand(2, 3), rand(3, 3), rand(2, 3)]),
    "khatri_rao of one matrix": (lambda x: nd.khatri_rao(x, x * x), [P]),
    "im2col": (
        lambda x: nd.im2col(x * x, kernel=(2, 2), stride=(2, 1), pad=(1, 0)), [rand(1, 2, 3, 3)]),
    "col2im": (
        lambda x: nd.col2im(x * x, output_size=(3, 2), kernel=(2, 2), pad=(1, 1)),
        [rand(1, 8, 12)]),
    "Crop": (lambda x: nd.Crop(x * x, h_w=(2, 3), offset=(1, 0)), [rand(1, 2, 4, 3)]),
    "Crop like": (
        lambda x: nd.Crop(x * x, nd.ones((1, 1, 2, 2), dtype=F64), center_crop=True),
        [rand(1, 2, 4, 4)]),
    "index_copy": (
        lambda x, y: nd.contrib.index_copy(x * x, nd.array([2, 0]), x[:2] * y),
        [rand(3, 2), rand(2, 2)]),
    "topk": (lambda x: nd.topk(x * x, k=2, ret_typ="value"), [INSIDE]),
    "topk along axis 0": (
        lambda x: nd.topk(x * x, axis=0, k=1, ret_typ="both", is_ascend=True)[0], [INSIDE]),
    "topk of all": (lambda x: nd.topk(x * x, axis=None, k=4, ret_typ="value"), [INSIDE]),
    "gamma": (nd.gamma, [P]),
    "gamma below 0": (nd.gamma, [INSIDE]),
    "gammaln": (nd.gammaln, [P]),
    "gammaln below 0": (nd.gammaln, [INSIDE - 3]),
    "GridGenerator affine": (
        lambda x: nd.GridGenerator(x * x, transform_type="affine", target_shape=(3, 2)),
        [rand(2, 6)]),
    "GridGenerator warp": (
        lambda x: nd.GridGenerator(x * x, transform_type="warp"), [rand(1, 2, 3, 2)]),
    **{f"pdf_{name}, {is_log=}": (
        lambda *a, f=name, is_log=is_log: getattr(nd, f"random_pdf_{f}")(*a, is_log=is_log), arrays)
       for name, arrays in {
           "uniform": [P, np.array([0.1, 0.3]), np.array([4.5, 3.9])],
           "normal": [P, np.array([0.4, 1.1]), np.array([0.8, 1.3])],
           "gamma": [P, np.array([1.6, 2.4]), np.array([0.8, 1.3])],
           "exponential": [P, np.array([0.8, 1.3])],
           "dirichlet": [P / P.sum(1, keepdims=True), np.array([1.6, 2.4, 0.7])],
       }.items() for is_log in (False, True)},
    **{f"pdf_{name}": (
        lambda *a, f=name: getattr(nd, f"random_pdf_{f}")(
            nd.array([[0, 2, 1], [3, 0, 4]], dtype=F64), *a), arrays)
       for name, arrays in {
           "poisson": [np.array([0.8, 1.3])],
           "negative_binomial": [np.array([1.5, 2.2]), np.array([0.3, 0.6])],
           "generalized_negative_binomial": [np.array([1.5, 2.2]), np.array([0.3, 0.6])],
       }.items()},
}  # fmt: skip


def leaves(arrays):
    xs = [nd.array(a, dtype=F64) for a in arrays]
    for x in xs:
        x.attach_grad()
    return xs


def weights(shape):
    """Fixed numbers of a shape, so that no derivative is a plain sum."""
    return nd.array(np.random.RandomState(11).uniform(0.5, 1.5, shape), dtype=F64)


def first(f, arrays):
    """sum over i of <w_i, dL/dx_i>, where L = <w, f(x) ** 2> (so that linear functions have second
    derivatives too), and the leaves."""
    xs = leaves(arrays)
    with autograd.record():
        y = f(*xs)
        loss = (y * y * weights(y.shape)).sum()
        grads = autograd.grad([loss], xs, create_graph=True)
        total = sum((g * weights(g.shape)).sum() for g in grads)
    return total, xs


def numeric(f, arrays, eps=1e-5):
    grads = []
    for k, array in enumerate(arrays):
        grad = np.zeros_like(array)
        for at in np.ndindex(*array.shape):
            ends = []
            for step in (eps, -eps):
                moved = [a.copy() for a in arrays]
                moved[k][at] += step
                ends.append(first(f, moved)[0].asscalar())
            grad[at] = (ends[0] - ends[1]) / (2 * eps)
        grads.append(grad)
    return grads


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_match_finite_differences(name):
    f, arrays = CASES[name]
    total, xs = first(f, arrays)
    total.backward()
    if name == "cast":  # in single precision differences are too coarse
        f = lambda x: x * x  # noqa: E731
    for x, want in zip(xs, numeric(f, arrays), strict=True):
        np.testing.assert_allclose(x.grad.asnumpy(), want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    "name", ["exp", "sigmoid", "tanh", "div", "power", "softmax", "dot", "log"]
)
def test_first_derivatives_are_the_same_with_and_without_a_graph(name):
    f, arrays = CASES[name]
    xs = leaves(arrays)
    with autograd.record():
        loss = (f(*xs) * weights(f(*xs).shape)).sum()
    plain = autograd.grad([loss], xs, retain_graph=True)
    again = autograd.grad([loss], xs, create_graph=True)
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-12)


@pytest.mark.parametrize("train", [True, False])
def test_a_recorded_gradient_of_batch_norm_updates_the_moving_averages_once(train):
    x, gamma, beta = leaves([rand(4, 2), rand(2), rand(2)])
    mean, var = nd.zeros((2,), dtype=F64), nd.ones((2,), dtype=F64)
    with autograd.record(train_mode=train):
        y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
        (g,) = autograd.grad([y], [x], create_graph=True, train_mode=train)
        again = nd.BatchNorm(
            x, gamma, beta, nd.zeros_like(mean), nd.ones_like(var), fix_gamma=False
        )
    (plain,) = autograd.grad([again], [x], train_mode=train)
    np.testing.assert_allclose(g.asnumpy(), plain.asnumpy(), atol=1e-12)
    want = 0.1 * x.asnumpy().mean(0) if train else np.zeros(2)
    np.testing.assert_allclose(mean.asnumpy(), want, rtol=1e-6)


def test_any_order():
    """The fifth derivative of x ** 6 and all derivatives of exp."""
    x, y = leaves([np.array([1.5])] * 2)
    with autograd.record():
        p, e = x**6, nd.exp(y)
        for _ in range(5):
            (p,) = autograd.grad([p], [x], create_graph=True)
            (e,) = autograd.grad([e], [y], create_graph=True)
    np.testing.assert_allclose(p.asscalar(), 720 * 1.5, rtol=1e-10)
    np.testing.assert_allclose(e.asscalar(), np.exp(1.5), rtol=1e-12)


def test_a_gradient_penalty_trains():
    """A loss that contains the norm of a gradient, differentiated with respect to the weights."""
    x, w = leaves([rand(4, 3), rand(2, 3)])

    def penalty():
        y = nd.tanh(nd.FullyConnected(x, w, no_bias=True, num_hidden=2)).sum()
        (g,) = autograd.grad([y], [x], create_graph=True)
        return ((nd.norm(g, axis=1) - 1) ** 2).sum()

    losses = []
    for _ in range(60):
        with autograd.record():
            loss = penalty()
        loss.backward()
        w[:] = w - 0.02 * w.grad
        losses.append(loss.asscalar())
    assert losses[-1] < 0.5 * losses[0]


def test_an_operator_that_ends_the_chain_says_so():
    x = leaves([rand(1, 1, 4, 4)])[0]
    with autograd.record():
        y = nd.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="lp", p_value=2).sum()
        (g,) = autograd.grad([y], [x], create_graph=True)
        z = (g * g).sum()
    with pytest.raises(mx.MXNetError, match="_backward_Pooling.*non-differentiable"):
        z.backward()


def test_half_precision_normalisations_have_second_derivatives():
    """Against single precision, which they calculate in."""
    rng = np.random.RandomState(2)
    data = rng.uniform(-1, 1, (8, 4))

    def second(f, dtype):
        x = nd.array(data, dtype=dtype)
        x.attach_grad()
        with autograd.record():
            y = f(x, dtype)
            (g,) = autograd.grad([(y * y * y).sum()], [x], create_graph=True)
            loss = (g * g).sum()
        loss.backward()
        return g.asnumpy().astype("float64"), x.grad.asnumpy().astype("float64")

    def layer_norm(x, dtype):
        return nd.LayerNorm(x, nd.ones(4, dtype=dtype), nd.zeros(4, dtype=dtype), eps=0.1)

    def batch_norm(x, dtype):
        of = [nd.ones(4), nd.zeros(4), nd.zeros(4), nd.ones(4)]
        return nd.BatchNorm(x, *of, eps=0.1, fix_gamma=False)

    for f in (layer_norm, batch_norm):
        for half, single in zip(second(f, "float16"), second(f, "float32"), strict=True):
            scale = np.abs(single).max()
            assert scale > 0.01
            np.testing.assert_allclose(half, single, atol=0.02 * scale)


def test_a_tiny_variance_in_half_precision_does_not_overflow():
    x = nd.array([[1.0, 1.001, 1.0, 0.999]], dtype="float16")
    x.attach_grad()
    gamma, beta = nd.ones(4, dtype="float16"), nd.zeros(4, dtype="float16")
    with autograd.record():
        y = (
            nd.LayerNorm(x, gamma, beta, eps=1e-7) * nd.array([[1, 2, 3, 4]], dtype="float16")
        ).sum()
    (plain,) = autograd.grad([y], [x], retain_graph=True)
    (composed,) = autograd.grad([y], [x], create_graph=True)
    assert np.isfinite(composed.asnumpy()).all()
    np.testing.assert_allclose(composed.asnumpy(), plain.asnumpy(), rtol=2e-3, atol=2e-3)


def test_parameters_are_rounded_as_kernels_round_them():
    x = nd.array([0.3, 1.7, -0.4], dtype=F64)
    x.attach_grad()
    with autograd.record():
        y = nd.LeakyReLU(x, slope=0.1) + nd.smooth_l1(x, scalar=0.7)
        z = nd.LayerNorm(
            nd.reshape(x, (1, 3)), nd.ones(3, dtype=F64), nd.zeros(3, dtype=F64), eps=0.1
        )
        loss = y.sum() + (z * z * z).sum()
    (plain,) = autograd.grad([loss], [x], retain_graph=True)
    (again,) = autograd.grad([loss], [x], create_graph=True)
    np.testing.assert_allclose(plain.asnumpy(), again.asnumpy(), rtol=1e-13, atol=1e-13)
