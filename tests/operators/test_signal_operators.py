"""Transforms, counts and point processes: what is not a row of the table of cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rsnet as mx
from rsnet import autograd, nd, sym
from rsnet.test_utils import assert_almost_equal


@given(st.integers(1, 200), st.integers(0, 100))
def test_transforms_of_every_length_are_inverse(width, seed):
    x = np.random.default_rng(seed).normal(size=(2, width)).astype("float32")
    y = nd.contrib.fft(nd.array(x))
    exact = np.fft.fft(x.astype("float64"))
    assert_almost_equal(y.asnumpy()[:, ::2], exact.real, rtol=1e-4, atol=1e-4)
    assert_almost_equal(y.asnumpy()[:, 1::2], exact.imag, rtol=1e-4, atol=1e-4)
    assert_almost_equal(nd.contrib.ifft(y).asnumpy() / width, x, rtol=1e-4, atol=1e-4)


def test_shapes_of_transforms_are_inferred_both_ways():
    x = sym.Variable("x")
    assert sym.contrib.fft(x).infer_shape(x=(2, 3, 5))[1] == [(2, 3, 10)]
    assert sym.contrib.ifft(x).infer_shape(x=(2, 10))[1] == [(2, 5)]
    with pytest.raises(mx.MXNetError, match="even number"):
        nd.contrib.ifft(nd.ones((2, 5)))


def test_places_outside_of_a_sketch_are_refused():
    ones = nd.ones((1, 2))
    with pytest.raises(mx.MXNetError, match="place in h '4'"):
        nd.contrib.count_sketch(ones, nd.array([[0, 4]]), ones, out_dim=3).wait_to_read()


def test_bins_are_given_by_their_edges_or_number():
    x = nd.array([0, 1, 2, 2.5, 3, 4, -1, 9])
    counts, edges = nd.histogram(x, bins=nd.array([0, 1, 2.5, 4]))
    assert counts.asnumpy().tolist() == [1, 2, 3]
    assert counts.dtype == np.int64
    assert edges.asnumpy().tolist() == [0, 1, 2.5, 4]
    counts, edges = nd.histogram(x, bins=4, range=(0, 4))
    assert counts.asnumpy().tolist() == [1, 1, 2, 2]
    histogram = nd._internal._histogram
    with pytest.raises(mx.MXNetError, match="both bin_cnt and a range"):
        histogram(x, bin_cnt=3)
    with pytest.raises(mx.MXNetError, match="edges that rise"):
        histogram(x, nd.array([0, 2, 1]))[0].wait_to_read()


def test_set_value_fills_what_it_is_given():
    out = nd.zeros((2, 3), dtype="int32")
    assert nd._internal._set_value(src=4, out=out) is out
    assert out.asnumpy().tolist() == [[4] * 3] * 2


def test_zeros_have_the_dtype_of_a_number():
    assert nd._internal._zeros_without_dtype(shape=(2, 3), dtype="4").dtype == np.int32


def test_dense_arrays_have_one_kind_of_storage():
    with pytest.raises(mx.MXNetError, match="expected 'default'"):
        nd.cast_storage(nd.ones((2, 2)), stype="csr")


def test_gradients_of_point_processes_match_differences():
    rng = np.random.default_rng(0)
    arrays = [
        rng.uniform(0.5, 1.5, (2, 3)), rng.uniform(0.1, 0.5, 3), rng.uniform(0.5, 2, 3),
        rng.uniform(0, 1, (2, 3)), rng.uniform(0.1, 1, (2, 4)), rng.integers(0, 3, (2, 4)),
        np.array([4, 3]), np.array([5.0, 4.0]),
    ]  # fmt: skip
    given = [
        nd.array(value, dtype="int32" if i == 5 else "float64") for i, value in enumerate(arrays)
    ]

    weights = nd.array(rng.uniform(-1, 1, (2, 3)), dtype="float64")

    def value():
        like, state = nd.contrib.hawkesll(*given)
        return like.sum() + (state * weights).sum()

    for array in given[:4]:
        array.attach_grad()
    with autograd.record():
        made = value()
    made.backward()
    for array in given[:4]:
        exact = array.asnumpy()
        for at in np.ndindex(exact.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = exact.copy()
                moved[at] += step
                array[:] = moved
                ends.append(value().asscalar())
            array[:] = exact
            slope = (ends[0] - ends[1]) / 2e-6
            assert abs(slope - array.grad.asnumpy()[at]) < 1e-4 * (1 + abs(slope))


def test_penalties_on_activity_are_added_to_the_gradient():
    x = np.random.default_rng(0).uniform(0.1, 0.9, (4, 3)).astype("float32")
    data = sym.Variable("data")
    out = sym.IdentityAttachKLSparseReg(data, sparseness_target=0.2, penalty=0.01, name="k")
    executor = out.simple_bind(mx.cpu(), data=(4, 3))
    executor.arg_dict["data"][:] = x
    executor.aux_dict["k_moving_avg"][:] = 0.3
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == x.tolist()
    executor.backward(nd.ones((4, 3)))
    mean = 0.9 * 0.3 + 0.1 * x.mean(axis=0)
    slope = 1 + 0.01 * (-0.2 / mean + 0.8 / (1 - mean))
    got = executor.grad_dict["data"].asnumpy()
    assert_almost_equal(got, np.broadcast_to(slope, (4, 3)), rtol=1e-5)
    assert_almost_equal(executor.aux_dict["k_moving_avg"].asnumpy(), mean, rtol=1e-5)


def test_thresholds_cut_off_what_is_rare():
    values = np.random.default_rng(0).standard_t(2, 20000)
    counts, edges = np.histogram(values, 1001, (-40, 40))
    threshold, lost = nd.contrib.calibrate_entropy(nd.array(counts), nd.array(edges))
    assert 5 < threshold.asscalar() < 39
    assert 0 < lost.asscalar() < 0.1
