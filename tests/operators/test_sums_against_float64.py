"""Sums keep the bound that the reduction kernel states; functions at their limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rsnet as mx
from rsnet import autograd, nd

UNIT = 2.0**-24


def bound(count, size):
    """The stated bound of a float32 sum of `count` numbers whose magnitudes add up to `size`."""
    return (96 + np.log2(max(count, 1))) * UNIT * size


@st.composite
def shapes_and_axes(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 64, 65, 300]), min_size=1, max_size=4))
    while np.prod(shape) > 200_000:
        shape[int(np.argmax(shape))] = 2
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    return tuple(shape), tuple(sorted(axes))


@settings(max_examples=60, deadline=None)
@given(shapes_and_axes(), st.integers(0, 2**31), st.booleans())
def test_sums_and_means_agree_with_float64(case, seed, constant):
    shape, axes = case
    rng = np.random.RandomState(seed % 2**31)
    x = np.full(shape, 0.1, "float32") if constant else rng.randn(*shape).astype("float32")
    exact, array = x.astype("float64"), nd.array(x)
    size = np.abs(exact).sum(axis=axes)
    count = int(np.prod([shape[a] for a in axes]))
    want = exact.sum(axis=axes)
    error = np.abs(nd.sum(array, axis=axes).asnumpy().reshape(want.shape) - want)
    assert np.all(error <= bound(count, size) + 1e-30)
    error = np.abs(nd.mean(array, axis=axes).asnumpy().reshape(want.shape) - want / count)
    assert np.all(error <= (bound(count, size) + 2 * UNIT * np.abs(want)) / count + 1e-30)
    norm = np.sqrt((exact * exact).sum(axis=axes))
    got = nd.norm(array, axis=axes).asnumpy().reshape(norm.shape)
    np.testing.assert_allclose(got, norm, rtol=1e-5)


ROWS = 400_000


def gradient_of(parameter, run, head):
    parameter.attach_grad()
    with autograd.record():
        y = run(parameter)
    y.backward(nd.full(y.shape, head))
    return parameter.grad.asnumpy()


@pytest.mark.parametrize(
    "total",
    [
        lambda: nd.full((ROWS, 2), 0.1).sum(axis=0),
        lambda: nd.full((ROWS, 2), 0.1).mean(axis=0) * ROWS,
        lambda: nd.full((ROWS,), 0.1).sum(),
        lambda: nd.nansum(nd.full((ROWS, 3), 0.1), axis=0),
        lambda: nd.norm(nd.full((ROWS, 2), 0.1), ord=1, axis=0),
        lambda: nd.full((4, ROWS // 4, 2), 0.1).sum(axis=(0, 1)),
        lambda: nd.full((ROWS // 2, 3, 2), 0.1).sum(axis=(0, 2)),
        lambda: nd.Pooling(nd.full((1, 1, 500, 800), 0.1), kernel=(1, 1), global_pool=True) * ROWS,
        lambda: nd.add_n(*[nd.full((2,), 0.1)] * 4000) * 100,
        lambda: (1 / nd.softmax(nd.zeros((ROWS, 2)), axis=0))[0] / 10,
        lambda: (1 / nd.softmax(nd.zeros((2, ROWS)), axis=1))[:, 0] / 10,
        lambda: mx.nd.array(
            gradient_of(nd.zeros((1, 2)), lambda b: nd.broadcast_add(nd.zeros((ROWS, 2)), b), 0.1)
        ),
        lambda: mx.nd.array(
            gradient_of(
                nd.zeros(2),
                lambda b: nd.FullyConnected(nd.ones((ROWS, 1)), nd.ones((2, 1)), b, num_hidden=2),
                0.1,
            )
        ),
        lambda: mx.nd.array(
            gradient_of(nd.zeros(2), lambda b: nd.LayerNorm(nd.ones((ROWS, 2)), nd.ones(2), b), 0.1)
        ),
    ],
)
def test_long_sums_do_not_drift(total):
    want = ROWS * float(np.float32(0.1))
    np.testing.assert_allclose(total().asnumpy(), want, rtol=1e-5)


ROI = nd.array(np.zeros((ROWS // 10, 5)))
DEPTHWISE = {"no_bias": True, "kernel": (1, 1), "num_filter": 2, "num_group": 2}
# The parameter's shape, how it is used, and how many gradients of 0.1 meet in each element.
MEETING = {
    "Embedding": (
        (1, 2), lambda w: nd.Embedding(nd.zeros(ROWS), w, input_dim=1, output_dim=2), ROWS,
    ),
    "take": ((1, 2), lambda w: nd.take(w, nd.zeros(ROWS)), ROWS),
    "take of columns": ((2, 1), lambda w: nd.take(w, nd.zeros(ROWS), axis=1), ROWS),
    "gather_nd": ((1, 2), lambda w: nd.gather_nd(w, nd.zeros((1, ROWS))), ROWS),
    "gather_nd of elements": ((1, 1), lambda w: nd.gather_nd(w, nd.zeros((2, ROWS))), ROWS),
    "indexing": ((1, 2), lambda w: w[nd.zeros(ROWS)], ROWS),
    "depthwise": (
        (2, 1, 1, 1), lambda w: nd.Convolution(nd.ones((1, 2, 500, 800)), w, **DEPTHWISE), ROWS,
    ),
    "depthwise batch": (
        (2, 1, 1, 1), lambda w: nd.Convolution(nd.ones((ROWS // 4, 2, 2, 2)), w, **DEPTHWISE), ROWS,
    ),
    "depthwise transposed": (
        (2, 1, 1, 1), lambda w: nd.Deconvolution(nd.ones((1, 2, 500, 800)), w, **DEPTHWISE), ROWS,
    ),
    "ROIPooling": (
        (1, 2, 1, 1), lambda x: nd.ROIPooling(x, ROI, pooled_size=(1, 1), spatial_scale=1.0),
        ROWS // 10,
    ),
    "UpSampling": (
        (1, 1, 1, 1), lambda x: nd.UpSampling(x, scale=600, sample_type="nearest"), 360_000,
    ),
    "pad": (
        (1, 1, 1, 1),
        lambda x: nd.pad(x, mode="edge", pad_width=(0, 0, 0, 0, 300, 299, 300, 299)), 360_000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEETING)
def test_gradients_that_meet_in_an_element_do_not_drift(name):
    shape, run, count = MEETING[name]
    got = gradient_of(nd.zeros(shape), run, 0.1)
    # A gradient in f64 is rounded once; `depthwise` adds stretches of 64 in float32.
    rtol = 1e-6 if name.startswith("depthwise") else UNIT
    np.testing.assert_allclose(got, count * float(np.float32(0.1)), rtol=rtol)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7), st.integers(1, 300), st.integers(1, 400), st.integers(0, 2**31),
    st.sampled_from(["float32", "float64", "float16", "int32"]),
)  # fmt: skip
def test_gradients_of_lookups_agree_with_float64(rows, width, count, seed, dtype):
    rng = np.random.RandomState(seed % 2**31)
    ids = rng.randint(0, rows, count)
    head = (rng.randn(count, width) * 4).astype(dtype)
    w = nd.zeros((rows, width), dtype=dtype)
    w.attach_grad()
    want = np.zeros((rows, width))
    np.add.at(want, ids, head.astype("float64"))
    for run in (
        lambda: nd.take(w, nd.array(ids, dtype="int32")),
        lambda: nd.gather_nd(w, nd.array(ids[None], dtype="int32")),
        lambda: nd.Embedding(nd.array(ids, dtype="int32"), w, input_dim=rows, output_dim=width),
    ):
        with autograd.record():
            y = run()
        y.backward(nd.array(head, dtype=dtype))
        np.testing.assert_array_equal(w.grad.asnumpy(), want.astype(dtype))


def test_statistics_of_batch_norm_do_not_drift():
    for shape in [(ROWS, 2), (400, 2, 1000)]:
        one = nd.ones(2)
        with autograd.train_mode():
            _, mean, _ = nd.BatchNorm(
                nd.full(shape, 0.1), one, one, nd.zeros(2), one, output_mean_var=True
            )
        np.testing.assert_allclose(mean.asnumpy(), 0.1, rtol=1e-6)


def test_norms_overflow_only_where_the_result_does():
    x = np.array([[1e20, 1e20], [1e-30, 1e-30], [3, 4], [0, 0]], "float32")
    want = np.sqrt((x.astype("float64") ** 2).sum(axis=1))
    np.testing.assert_allclose(nd.norm(nd.array(x), axis=1).asnumpy(), want, rtol=1e-6)
    want = np.sqrt((x.astype("float64") ** 2).sum(axis=0))
    np.testing.assert_allclose(nd.norm(nd.array(x), axis=0).asnumpy(), want, rtol=1e-6)
    assert nd.norm(nd.array([60, 80], dtype="int8")).asscalar() == 100


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("out", ["float16", "float32", "float64", None])
def test_norm_has_an_output_dtype(dtype, out):
    x = nd.array([3, 4], dtype=dtype)
    y = nd.norm(x, out_dtype=out)
    assert np.dtype(y.dtype) == np.dtype(out or dtype)
    assert y.asscalar() == 5
    if dtype.startswith("float"):
        x.attach_grad()
        with autograd.record():
            y = nd.norm(x, out_dtype=out)
        y.backward()
        assert x.grad.dtype == x.dtype
        np.testing.assert_allclose(x.grad.asnumpy(), [0.6, 0.8], rtol=2e-3)


def test_a_norm_is_calculated_in_the_larger_dtype():
    x = nd.full((100,), 60000, dtype="float16")
    assert nd.norm(x, out_dtype="float32").asscalar() == pytest.approx(6e5, rel=1e-3)
    assert nd.norm(nd.array([1e30]), out_dtype="float64").asscalar() == pytest.approx(1e30)


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("function", "at", "want"),
    [
        ("gamma", [1, 5, 0, -1, INF, -INF, NAN], [1, 24, INF, NAN, INF, NAN, NAN]),
        ("gammaln", [0, -1, -2, INF, -INF, NAN], [INF, INF, INF, INF, INF, NAN]),
        ("rint", [8388609, -8388609, 0.5, 1.5, -2.5, INF], [8388609, -8388609, 0, 1, -3, INF]),
        ("arcsinh", [3e38, -3e38, INF, 0], [89.29, -89.29, INF, 0]),
        ("arccosh", [3e38, 1, INF, 0.5, -1e9], [89.29, 0, INF, NAN, NAN]),
    ],
)
def test_functions_have_their_limits(function, at, want):
    got = getattr(nd, function)(nd.array(at)).asnumpy()
    np.testing.assert_allclose(got, np.array(want, "float32"), rtol=1e-6)
    got = getattr(nd, function)(nd.array(at, dtype="float64")).asnumpy()
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_gamma_of_integers_is_exact(dtype):
    assert nd.gamma(nd.array([1, 5, 6], dtype=dtype)).asnumpy().tolist() == [1, 24, 120]


@pytest.mark.parametrize(
    ("function", "at", "want"),
    [
        ("arcsinh", [1e20], [1e-20]),
        ("arccosh", [1e20], [1e-20]),
        ("relu", [NAN, -1, 2], [NAN, 0, 1]),
        ("gammaln", [0, -1], [INF, INF]),
    ],
)
def test_gradients_have_their_limits(function, at, want):
    x = nd.array(at)
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, function)(x)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), want, rtol=1e-5)


def test_clip_asks_for_the_upper_limit_first():
    assert nd.clip(nd.array([0.25, -1, 1]), 0.5, -0.5).asnumpy().tolist() == [-0.5, 0.5, -0.5]


def test_softmax_scales_differences():
    for axis in (0, 1):
        x = nd.array([[1e38, -1e38], [-1e38, 1e38]])
        got = nd.softmax(x, axis=axis, temperature=1e-3).asnumpy()
        assert got.tolist() == [[1, 0], [0, 1]]


HALF = {
    "div": (lambda a, b: a / b, lambda a, b: (1 / b, -a / b**2)),
    "reciprocal": (lambda a, b: 1 / b + 0 * a, lambda a, b: (0 * a, -1 / b**2)),
    "broadcast_div": (nd.broadcast_div, lambda a, b: (1 / b, -a / b**2)),
    "hypot": (nd.broadcast_hypot, lambda a, b: (a / np.hypot(a, b), b / np.hypot(a, b))),
    "rdiv": (lambda a, b: 1000.0 / b + 0 * a, lambda a, b: (0 * a, -1000 / b**2)),
}


@pytest.mark.parametrize("name", HALF)
def test_half_precision_rounds_a_gradient_once(name):
    run, slopes = HALF[name]
    values = np.array([[300, 512, 2], [300, 700, 1000]], "float16")
    a, b = nd.array(values[0], dtype="float16"), nd.array(values[1], dtype="float16")
    a.attach_grad()
    b.attach_grad()
    with autograd.record():
        y = run(a, b)
    y.backward()
    for got, want in zip((a.grad, b.grad), slopes(*values.astype("float64"))):
        np.testing.assert_allclose(got.asnumpy(), want, rtol=2e-3, atol=6e-8)


def test_single_precision_divides_without_overflow():
    a, b = nd.array([1e30]), nd.array([1e20])
    b.attach_grad()
    with autograd.record():
        y = a / b
    y.backward()
    assert b.grad.asscalar() == pytest.approx(-1e-10, rel=1e-5)


def test_means_of_integers_are_exact():
    """Their sums do not fit into the dtype."""
    image = nd.full((2, 3, 4), 200, dtype="uint8")
    for axis in (None, 0, 1, (0, 2), -1):
        assert (image.mean(axis=axis).asnumpy() == 200).all()
    assert nd.full((1000,), -100, dtype="int8").mean().asscalar() == -100
    assert nd.full((300,), 3, dtype="uint8").mean().asscalar() == 3
    assert nd.full((3,), 2**31 - 1, dtype="int32").mean().asscalar() == 2**31 - 1
