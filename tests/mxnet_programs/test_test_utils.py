"""The helpers that users' own tests import."""

import inspect

import numpy as np
import pytest

import rsnet as mx
from rsnet import test_utils as tu


def product():
    return mx.sym.Variable("a") * mx.sym.Variable("b")


A, B = np.array([[1.0, 2.0]], "float32"), np.array([[3.0, -4.0]], "float32")


def test_tolerances_by_dtype():
    assert tu.default_rtols()[np.dtype("float32")] == 1e-4
    assert tu.default_atols()[np.dtype("int32")] == 0
    assert tu.default_numeric_eps()[np.dtype("float16")] == 2.0**-6
    half = np.array([1.0], "float16")
    assert tu.almost_equal(half, np.array([1.05], "float64"))
    assert not tu.almost_equal(np.array([1.0]), np.array([1.0001]))


def test_assert_almost_equal_tells_where():
    a = np.zeros((2, 3), "float32")
    b = a.copy()
    b[1, 2] = 1
    with pytest.raises(AssertionError, match=r"Location of maximum error: \(1, 2\)"):
        tu.assert_almost_equal(a, b)
    tu.assert_almost_equal_with_err(a, b, etol=0.2)
    with pytest.raises(AssertionError, match="Location of maximum error"):
        tu.assert_almost_equal(a, a * np.nan)
    tu.assert_almost_equal_ignore_nan(a, a * np.nan)


def test_check_symbolic_forward():
    outputs = tu.check_symbolic_forward(product(), [A, B], [A * B])
    tu.assert_almost_equal(outputs[0], A * B)
    with pytest.raises(AssertionError, match="Location of maximum error"):
        tu.check_symbolic_forward(product(), {"a": A, "b": B}, [A + B])
    with pytest.raises(ValueError, match="location"):
        tu.check_symbolic_forward(product(), {"a": A}, [A])


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_check_symbolic_backward(req):
    tu.check_symbolic_backward(product(), [A, B], [2 * A], [2 * A * B, 2 * A * A], grad_req=req)


def test_check_symbolic_backward_notices():
    with pytest.raises(AssertionError, match="Location of maximum error"):
        tu.check_symbolic_backward(product(), [A, B], [A], [A * B, B * B])


def test_check_numeric_gradient():
    data = mx.sym.Variable("data")
    tu.check_numeric_gradient(mx.sym.tanh(data), [A], rtol=1e-2, atol=1e-3)
    wrong = mx.sym.BlockGrad(mx.sym.tanh(data))
    with pytest.raises(AssertionError, match="Location of maximum error"):
        tu.check_numeric_gradient(wrong, [A / 4], rtol=1e-2, atol=1e-3)


def test_half_precision_gradients_are_checked_fairly():
    data = mx.sym.Variable("data")
    for seed in range(5):
        np.random.seed(seed)
        x = np.random.rand(3, 4) + 1
        tu.check_numeric_gradient(mx.sym.square(data), [x], dtype=np.float16)
    with pytest.raises(AssertionError, match="Location of maximum error"):
        wrong = mx.sym.square(data) + 0.5 * mx.sym.BlockGrad(data)
        tu.check_numeric_gradient(wrong, [x], dtype=np.float16)


@pytest.mark.parametrize("other", [-np.inf, 1e30, 1.0, np.nan])
@pytest.mark.parametrize("wrap", [np.array, mx.nd.array])
def test_infinity_is_near_itself_only(other, wrap):
    a, b = wrap([np.inf, 1.0]), wrap([other, 1.0])
    tu.assert_almost_equal(a, a)
    for one, two in ((a, b), (b, a)):
        assert not tu.almost_equal(one, two)
        with pytest.raises(AssertionError, match="Location of maximum error"):
            tu.assert_almost_equal(one, two)
    if not np.isnan(other):
        with pytest.raises(AssertionError, match="Location of maximum error"):
            tu.assert_almost_equal_ignore_nan(a, b)


def test_check_consistency():
    settings = [
        {"ctx": mx.cpu(), "a": (2, 3), "b": (2, 3), "type_dict": {"a": t, "b": t}}
        for t in (np.float64, np.float32)
    ]
    tu.check_consistency(product(), settings)


def test_simple_forward_and_speed():
    np.testing.assert_allclose(tu.simple_forward(product(), a=A, b=B), A * B)
    assert tu.check_speed(product(), location={"a": A, "b": B}, N=2) > 0


def test_same_array():
    x = mx.nd.zeros((3, 2))
    assert tu.same_array(x, x)
    assert not tu.same_array(x, x.copy())


def test_same_symbol_structure():
    assert tu.same_symbol_structure(product(), product())
    assert not tu.same_symbol_structure(product(), mx.sym.Variable("a") + mx.sym.Variable("b"))


def test_random_data():
    assert all(1 <= n <= 4 for n in tu.rand_shape_nd(5, dim=4))
    assert tu.rand_ndarray((3, 2)).shape == (3, 2)
    assert [a.shape for a in tu.random_arrays((2,), (3, 1))] == [(2,), (3, 1)]
    assert len(set(tu.random_sample(range(10), 4))) == 4
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(tu.np_reduce(x, 1, True, np.sum), x.sum(1, keepdims=True))
    np.testing.assert_array_equal(tu.collapse_sum_like(x, (3, 1)), x.sum(1, keepdims=True))


def test_environment_is_restored(monkeypatch):
    import os

    monkeypatch.setenv("RSNET_TEST_A", "old")
    with tu.environment({"RSNET_TEST_A": None, "RSNET_TEST_B": "new"}):
        assert "RSNET_TEST_A" not in os.environ and os.environ["RSNET_TEST_B"] == "new"
    assert os.environ["RSNET_TEST_A"] == "old" and "RSNET_TEST_B" not in os.environ


def test_retry():
    calls = []

    @tu.retry(3)
    def flaky():
        calls.append(1)
        assert len(calls) == 3

    flaky()
    assert len(calls) == 3


def test_generator_checks():
    rng = np.random.RandomState(0)
    assert tu.mean_check(lambda n: rng.normal(1, 2, n), 1, 2, 10000)
    assert not tu.mean_check(lambda n: rng.normal(1.5, 2, n), 1, 2, 10000)
    assert tu.var_check(lambda n: rng.normal(1, 2, n), 2, 10000)
    buckets, probs = tu.gen_buckets_probs_with_ppf(lambda q: q, 4)
    assert buckets[1] == (0.25, 0.5) and probs == [0.25] * 4


SIGNATURES = {
    "same": "a b",
    "almost_equal": "a b rtol atol equal_nan use_broadcast",
    "assert_almost_equal": "a b rtol atol names equal_nan use_broadcast mismatches",
    "assert_almost_equal_with_err": "a b rtol atol etol names equal_nan mismatches",
    "assert_allclose": "a b rtol atol equal_nan",
    "check_symbolic_forward": (
        "sym location expected rtol atol aux_states ctx equal_nan dtype"
    ),
    "check_symbolic_backward": (
        "sym location out_grads expected rtol atol aux_states grad_req ctx grad_stypes equal_nan "
        "dtype"
    ),
    "check_numeric_gradient": (
        "sym location aux_states numeric_eps rtol atol grad_nodes use_forward_train ctx "
        "grad_stype_dict dtype"
    ),
    "numeric_grad": "executor location aux_states eps use_forward_train dtype",
    "check_speed": "sym location ctx N grad_req typ shapes",
    "simple_forward": "sym ctx is_train inputs",
    "rand_ndarray": (
        "shape stype density dtype modifier_func shuffle_csr_indices distribution ctx"
    ),
    "set_default_context": "ctx",
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_have_the_order_that_suites_rely_on(name):
    wanted = SIGNATURES[name].split()
    assert list(inspect.signature(getattr(tu, name)).parameters)[: len(wanted)] == wanted
    assert name in tu.__all__


def test_older_tolerances_bound_reldiff():
    assert tu.almost_equal(A, A * 1.01, threshold=0.01)
    tu.assert_almost_equal(A, A * 1.01, threshold=0.01)
    with pytest.raises(AssertionError, match="reldiff"):
        tu.assert_almost_equal(A, A * 1.1, threshold=0.01)
    with pytest.raises(AssertionError, match="reldiff"):
        tu.assert_almost_equal(A, A * np.nan, threshold=0.01)
    tu.check_symbolic_forward(product(), [A, B], [A * B * 1.01], check_eps=0.01)
    tu.check_symbolic_backward(product(), [A, B], [A], [A * B * 1.01, A * A], check_eps=0.01)
    tu.check_numeric_gradient(product(), [A, B], check_eps=0.01)
    with pytest.raises(AssertionError, match="reldiff"):
        tu.check_symbolic_forward(product(), [A, B], [A * B * 1.1], check_eps=0.01)


def test_shapes_and_places_are_reported():
    tu.checkShapes(A, A + 1)
    with pytest.raises(AssertionError, match=r"a\.shape = \(.*\) and b\.shape = \(2,\)"):
        tu.checkShapes(A, mx.nd.ones((2,)))
    a, b = np.ones((1, 2)), np.full((1, 2), 2.0)
    said = "Location of error: (0, 1), new=1.00000000, old=2.00000000"
    assert tu.locationError(a, b, (0, 1), ("new", "old")) == said
    assert "Location of maximum error: (0, 1), " in tu.locationError(a, b, (0, 1), "ab", True)


def test_default_context_can_be_set():
    assert tu.default_dtype() is np.float32 and tu.default_context() == mx.current_context()
    tu.set_default_context(mx.cpu(1))
    try:
        assert tu.check_symbolic_forward(product(), [A, B], [A * B])[0].context == mx.cpu(1)
    finally:
        tu.set_default_context(None)
    assert tu.same(A, mx.nd.array(A)) and not tu.same(A, B)
