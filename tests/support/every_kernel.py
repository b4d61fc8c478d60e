"""Calls of every CUDA kernel on arrays that fill their memory to the last byte.

For the emulated driver. With sanitizers an element beyond an array is not allocated, and what
touches it ends the program. Prints the number of results that were compared with the host's; an
error if there is a kernel that no call has launched.
"""

import ctypes
import os
import warnings

import numpy as np

import rsnet as mx
from rsnet import _core, nd

warnings.simplefilter("ignore")


def of(*shape):
    return np.random.RandomState(sum(shape)).standard_normal(shape).astype("float32")


def lengths(x):
    return nd.array([4, 2, 1, 3] * 4, ctx=x.context)


def symmetric(x):
    """Positive definite matrices, whose diagonal keeps rounding from growing."""
    return nd.batch_dot(x, x, transpose_b=True) + 8 * nd.eye(x.shape[1], ctx=x.context)


def channels_last(x, w):
    x = nd.Convolution(x, w, kernel=(3, 3), num_filter=16, no_bias=True, layout="NHWC")
    return nd.Pooling(x, kernel=(2, 2), layout="NHWC")


def factors(x):
    a = symmetric(x)
    low = nd.linalg.potrf(a)
    parts = nd.linalg.maketrian(nd.linalg.extracttrian(a)) + nd.linalg.potri(low)
    q, triangle = nd.linalg.gelqf(x)
    solved = nd.linalg.trsm(low, q) + nd.linalg.trmm(low, q) + triangle + nd.linalg.inverse(a)
    sums = nd.linalg.sumlogdiag(a) + nd.linalg.slogdet(a)[1] + nd.linalg.det(a / 8)
    return solved + parts + sums.reshape((-1, 1, 1))


def eigenvalues(x):
    a = symmetric(x) + 4 * nd.linalg.makediag(nd.arange(8, ctx=x.context).reshape((1, 8)))
    vectors, values = nd.linalg.syevd(a)
    return vectors * vectors + values.expand_dims(1)


# Extents are such that arrays have 64, 128, 256 or 512 bytes, sizes that the pool does not round.
CALLS = [
    (lambda x: nd.relu(x) + nd.exp(x) * 2, [of(4, 32)]),
    (lambda x, y: nd.broadcast_mul(x, y), [of(4, 32), of(4, 4)[:, :1] + of(4, 1)]),
    (lambda x: nd.sum(x, axis=1) + nd.max(x, axis=0).sum(), [of(16, 8)]),
    (lambda x: nd.norm(x, axis=0), [of(8, 16)]),
    (lambda x: nd.argmax(x, axis=1), [of(16, 8)]),
    (lambda x, y: nd.dot(x, y), [of(16, 8), of(8, 16)]),
    (lambda x, y: nd.dot(x, y, transpose_a=True), [of(8, 16), of(8, 16)]),
    (lambda x, w, b: nd.FullyConnected(x, w, b, num_hidden=16), [of(8, 16), of(16, 16), of(16)]),
    (
        lambda x, w: nd.Convolution(x, w, kernel=(3, 3), pad=(1, 1), num_filter=16, no_bias=True),
        [of(2, 1, 8, 8), of(16, 1, 3, 3)],
    ),
    (lambda x: nd.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"), [of(2, 1, 8, 8)]),
    (lambda x: nd.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="avg"), [of(2, 1, 8, 8)]),
    (channels_last, [of(2, 8, 8, 1), of(16, 3, 3, 1)]),
    (factors, [of(2, 8, 8)]),
    (eigenvalues, [of(1, 8, 8)]),
    (lambda x: nd.softmax(x, lengths(x)[:8].astype("int32"), use_length=True), [of(8, 16)]),
    (lambda x: nd.LeakyReLU(x, act_type="rrelu", lower_bound=0.3, upper_bound=0.3)[0], [of(8, 16)]),
    (lambda x, g: nd.BilinearSampler(x, g), [of(2, 1, 4, 8), of(2, 2, 4, 8)]),
    (
        lambda x, loc: nd.SpatialTransformer(
            x, loc / 4, target_shape=(4, 8), transform_type="affine", sampler_type="bilinear"
        ),
        [of(8, 1, 4, 4), of(8, 6)],
    ),
    (
        lambda x: nd.GridGenerator(x, transform_type="affine", target_shape=(4, 4)),
        [of(8, 6)],
    ),
    (lambda x: nd.GridGenerator(x, transform_type="warp"), [of(2, 2, 4, 8)]),
    (
        lambda x: nd.contrib.ROIAlign(
            x, nd.array([[0, 1, 1, 6, 5], [1, 0, 2, 9, 9]], x.context), (2, 2), 0.8
        ),
        [of(2, 1, 8, 8)],
    ),
    (lambda x: nd.contrib.box_nms(x, overlap_thresh=0.1, valid_thresh=-1), [of(2, 8, 8)]),
    (lambda x: nd.softmax(x, axis=0) + nd.log_softmax(x), [of(8, 16)]),
    (lambda x, g, b: nd.LayerNorm(x, g, b), [of(8, 16), of(16), of(16)]),
    (
        lambda x, g, b: nd.BatchNorm(x, g, b, nd.zeros_like(g), nd.ones_like(g), fix_gamma=False),
        [of(8, 16), of(16), of(16)],
    ),
    (lambda x: nd.LeakyReLU(x, act_type="elu") + nd.Activation(x, "softrelu"), [of(8, 16)]),
    (lambda x: nd.transpose(x) + 1, [of(8, 16)]),
    (lambda x: nd.concat(x[:, 8:], x[:, :8], dim=1), [of(8, 16)]),
    (lambda x: nd.tile(x, (2, 2)), [of(4, 16)]),
    (lambda x: nd.take(x, nd.array([0, 7, 3, 3] * 4, ctx=x.context)), [of(8, 16)]),
    (lambda x: nd.clip(x, -1, 1).astype("float16"), [of(8, 16)]),
    (lambda x: nd.where(x > 0, x, nd.zeros_like(x)), [of(8, 16)]),
    (lambda x: nd.pick(x, nd.array([0, 3, 1, 7] * 4, ctx=x.context)), [of(16, 8)]),
    (lambda x: nd.smooth_l1(x, scalar=1.5) + nd.make_loss(x), [of(16, 8)]),
    (lambda x, y: nd.LinearRegressionOutput(x, y), [of(16, 8), of(8, 16).T.copy()]),
    (lambda x, y: nd.where(x > y, x, y), [of(16, 8), of(8, 16).T.copy()]),
    (lambda x: nd.sort(x, axis=0) + nd.sort(x, is_ascend=False), [of(8, 16)]),
    (lambda x: nd.topk(x, k=4, ret_typ="value"), [of(8, 16)]),
    (lambda x: nd._internal._np_cumsum(x, axis=0), [of(8, 16)]),
    (lambda x, g, b: nd.GroupNorm(x, g, b, num_groups=2), [of(2, 4, 16), of(2), of(2)]),
    (lambda x, g, b: nd.InstanceNorm(x, g, b), [of(2, 4, 16), of(4), of(4)]),
    (lambda x: nd.L2Normalization(x, mode="channel") + nd.LRN(x, nsize=3), [of(2, 4, 4, 4)]),
    (lambda x: nd.gather_nd(x, nd.array([[0, 7, 3, 3] * 4], ctx=x.context)), [of(8, 16)]),
    (
        lambda x: nd.scatter_nd(x, nd.array([[0, 7, 3, 5]], ctx=x.context), shape=(8, 16)),
        [of(4, 16)],
    ),
    (
        lambda x: nd.SequenceMask(x, lengths(x), True) + nd.SequenceReverse(x, lengths(x), True),
        [of(4, 16, 2)],
    ),
    (lambda x: nd.SequenceLast(x, lengths(x), True), [of(4, 16, 2)]),
    (
        lambda x: nd.Pad(x, mode="reflect", pad_width=(0, 0, 0, 0, 2, 2, 2, 2)),
        [of(2, 2, 4, 4)],
    ),
    (lambda x: nd.Crop(x, h_w=(4, 4), offset=(4, 4)), [of(2, 1, 8, 8)]),
    (lambda x: nd.UpSampling(x, scale=2, sample_type="nearest"), [of(2, 2, 4, 4)]),
    (
        lambda x, w: nd.UpSampling(x, w, scale=2, sample_type="bilinear", num_filter=4, num_args=2),
        [of(2, 4, 4, 4), of(4, 1, 4, 4)],
    ),
    (
        lambda a, b, c: nd.linalg.gemm(a, b, c, alpha=2, beta=3) + nd.linalg.syrk(a),
        [of(8, 8), of(8, 8), of(8, 8)],
    ),
    (
        lambda x: nd.contrib.interleaved_matmul_selfatt_valatt(
            x, nd.contrib.interleaved_matmul_selfatt_qk(x, heads=2), heads=2
        ),
        [of(4, 2, 3 * 2 * 8)],
    ),
    (
        lambda x: nd.CTCLoss(x, nd.array([[1, 2, 3, 0], [3, 3, 1, 2]] * 8, ctx=x.context)),
        [of(8, 16, 4)],
    ),
    (
        lambda x: nd.ROIPooling(
            x,
            nd.array([[0, 0, 0, 7, 7, 0], [1, 2, 1, 9, 5, 0]], ctx=x.context)[:, :5],
            pooled_size=(4, 4),
            spatial_scale=1,
        ),
        [of(2, 2, 8, 8)],
    ),
    (lambda x: nd.hard_sigmoid(x), [of(8, 16)]),
    (lambda x, s: nd.LeakyReLU(x, s, act_type="prelu"), [of(4, 16, 2), of(16)]),
    (lambda x: 2 - x + 3 / (x * x + 1) + x**2, [of(8, 16)]),
    (lambda x, y: nd.maximum(x, y) * nd.elemwise_add(x, y), [of(8, 16), of(8, 16) + of(16, 8).T]),
    (lambda x, y: nd.add_n(x, y, x), [of(8, 16), of(8, 16)]),
    (
        lambda x, w, b: nd.Convolution(x, w, b, kernel=(2, 2), stride=(2, 2), num_filter=16),
        [of(2, 8, 4, 4), of(16, 8, 2, 2), of(16)],
    ),
    (
        lambda x, w, b: nd.Deconvolution(
            x, w, b, kernel=(2, 2), stride=(2, 2), num_filter=16, no_bias=False
        ),
        [of(2, 8, 4, 4), of(8, 16, 2, 2), of(16)],
    ),
    (
        lambda x: nd.SoftmaxOutput(
            x, nd.array([0, 3, 1, 15] * 4, ctx=x.context), normalization="valid", use_ignore=True
        ),
        [of(16, 16)],
    ),
    (
        lambda w: nd.Embedding(
            nd.array([0, 7, 3, 3] * 4, ctx=w.context), w, input_dim=8, output_dim=16
        ),
        [of(8, 16)],
    ),
    *(
        (
            lambda *x, mode=mode: nd.RNN(*x, mode=mode, state_size=8, num_layers=1),
            [of(4, 2, 8), of(gates * 8 * 18), *([of(1, 2, 8)] * (2 if mode == "lstm" else 1))],
        )
        for mode, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1))
    ),
    (
        lambda x, w, h, c: nd.RNN(
            x,
            w,
            h,
            c,
            nd.array([4, 2] * 8, ctx=x.context),
            mode="lstm",
            state_size=4,
            projection_size=2,
            num_layers=2,
            p=0.5,
            use_sequence_length=True,
        ),
        [of(4, 16, 4), of(16 * (4 + 2 + 2 + 2) + 2 * 8 + 64), of(2, 16, 2), of(2, 16, 4)],
    ),
]


def steps_of_optimizers(ctx):
    """Arrays after steps of every kind."""
    arrays = [nd.array(np.abs(of(8, 16)) + 0.1, ctx=ctx) for _ in range(5)]
    w, g, *states = arrays
    one, lr = nd.ones((16,), ctx=ctx), {"lr": 0.1}
    for name, count in (("sgd", 0), ("sgd_mom", 1), ("nag_mom", 1), ("adam", 2), ("rmsprop", 1)):
        getattr(nd, f"{name}_update")(w, g, *states[:count], out=w, **lr)
    for name, count in (("rmspropalex", 3), ("signsgd", 0), ("signum", 1), ("ftrl", 2)):
        getattr(nd, f"{name}_update")(w, g, *states[:count], out=w, **lr)
    nd.ftml_update(w, g, *states, t=2, out=w, **lr)
    own = nd._internal
    own._adamw_update(w, g, *states[:2], one[:1], eta=1, out=w, **lr)
    many = {"learning_rates": (0.1,), "wds": (0.1,), "step_count": (2,), "num_tensors": 1}
    own._multi_lamb_update(w, g, *states[:2], out=w, **many)
    u = nd.lamb_update_phase1(w, g, *states[:2], t=1, wd=0.1)
    nd.lamb_update_phase2(w, u, nd.norm(w), nd.norm(u), out=w, **lr)
    history = nd.ones((8, 1), ctx=ctx)
    nd.contrib.group_adagrad_update(w, g, history, lr=0.1, out=w)
    squares = nd.multi_sum_sq(*[w] * 16, num_arrays=16)
    rates = nd.multi_lars(one, squares, squares, one, eta=0.5, eps=0.1)
    return [*arrays, history, rates, nd.all_finite(w)]


def without_gradients(ctx):
    """Results of operators that have none, and of inference."""
    x, large = nd.array(of(8, 16), ctx=ctx), nd.array(of(8, 1024), ctx=ctx)
    g, whole = nd.array(of(16), ctx=ctx), nd.arange(16, ctx=ctx).astype("int32")
    numbers = nd.array([0, 7, 3, 3] * 4, ctx=ctx)
    mx.random.seed(1)
    corners = nd.sort(nd.array(of(1, 16, 2, 2), ctx=ctx), axis=2).reshape((1, 16, 4))
    label = nd.concat(
        nd.abs(nd.array(of(2, 4, 1), ctx=ctx)), corners[:, :8].reshape((2, 4, 4)), dim=2
    )
    mx.random.seed(1)
    return [
        nd.contrib.box_iou(corners, corners[0]),
        nd.contrib.box_decode(x.reshape((2, 16, 4)), corners),
        *nd.contrib.box_encode(
            *(nd.ones((1, 16), ctx=ctx), numbers.reshape((1, 16)), corners, corners),
            *(g[:4], nd.ones((4,), ctx=ctx)),
        ),
        nd.contrib.MultiBoxPrior(x.reshape((1, 2, 8, 8)), sizes=(0.5, 0.2)),
        *nd.contrib.MultiBoxTarget(
            corners, label, nd.array(of(2, 4, 16), ctx=ctx), negative_mining_ratio=1
        ),
        nd.contrib.MultiBoxDetection(
            nd.softmax(nd.array(of(2, 4, 16), ctx=ctx), axis=1), x.reshape((2, 64)), corners
        ),
        nd.random.shuffle(x),
        *nd.contrib.quantize_v2(x),
        *nd.contrib.requantize(whole, -nd.ones((1,), ctx=ctx), nd.ones((1,), ctx=ctx)),
        nd.contrib.dequantize(whole, -nd.ones((1,), ctx=ctx), nd.ones((1,), ctx=ctx)),
        nd.argsort(x),
        *nd.topk(x, k=4, ret_typ="both"),
        nd.topk(x, k=4, ret_typ="mask"),
        nd.argmin(x, axis=0),
        nd.sort(large.reshape((1, -1))),
        nd.sum(large),
        nd.max(large, axis=0),
        nd._internal._arange(start=0, stop=16, ctx=str(ctx)),
        nd.one_hot(numbers, 8),
        nd.abs(whole) + whole,
        nd.full((16,), 3, ctx=ctx),
        nd.random.normal(shape=(16,), ctx=ctx),
        nd.random.uniform(shape=(16,), ctx=ctx),
        nd.random.gamma(2, 3, shape=(16,), ctx=ctx),
        nd.random.poisson(40, shape=(16,), ctx=ctx),
        nd.random.randint(-5, 5, shape=(16,), ctx=ctx),
        nd.sample_gamma(nd.abs(g), nd.abs(g)),
        nd.sample_multinomial(nd.softmax(x), shape=2),
        nd._internal._scatter_set_nd(g, g[:4], numbers[:4].reshape((1, 4)), shape=(16,)),
        nd.norm(nd.array(of(8, 16), ctx=ctx, dtype="float64")),
        nd.BatchNorm(x, g, g, nd.zeros_like(g), nd.ones_like(g)),
    ]


def run(call, arrays, ctx):
    arrays = [nd.array(a, ctx=ctx) for a in arrays]
    for a in arrays:
        a.attach_grad()
    with mx.autograd.record():
        out = call(*arrays)
    out.backward()
    return [out.asnumpy()] + [a.grad.asnumpy() for a in arrays]


def main():
    compared = 0
    for call, arrays in CALLS:
        for got, want in zip(
            run(call, arrays, mx.gpu(0)), run(call, arrays, mx.cpu()), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
            compared += 1
    for results in (steps_of_optimizers, without_gradients):
        for got, want in zip(results(mx.gpu(0)), results(mx.cpu()), strict=True):
            np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=1e-3, atol=1e-3)
            compared += 1
    x = nd.array(of(8, 16), ctx=mx.gpu(0))
    x.attach_grad()
    with mx.autograd.record():
        y = nd.Dropout(x)
    y.backward()
    nd.waitall()
    driver = ctypes.CDLL(os.environ["RSNET_LIBCUDA"])
    names = {name.split("<")[0] for _, _, name in _core.cuda_functions()}
    never = sorted(n for n in names if not driver.emulated_was_launched(n.encode()))
    assert not never, never
    print(compared)


if __name__ == "__main__":
    main()
