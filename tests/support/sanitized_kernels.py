"""Calls of every family of CUDA kernels on arrays that fill their memory to the last byte.

For the emulated driver with sanitizers: an element beyond an array is then not allocated, and what
touches it ends the program. Prints the number of results that were compared with the host's.
"""

import warnings

import numpy as np

import rsnet as mx
from rsnet import nd

warnings.simplefilter("ignore")


def of(*shape):
    return np.random.RandomState(sum(shape)).standard_normal(shape).astype("float32")


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
    w, g, m = (nd.array(of(8, 16), ctx=mx.gpu(0)) for _ in range(3))
    nd.sgd_mom_update(w, g, m, lr=0.1, momentum=0.9, out=w)
    nd.adam_update(w, g, m, nd.square(m), lr=0.1, out=w)
    nd.Dropout(w, mode="always").wait_to_read()
    nd.random.uniform(shape=(16,), ctx=mx.gpu(0)).wait_to_read()
    nd.waitall()
    print(compared)


if __name__ == "__main__":
    main()
