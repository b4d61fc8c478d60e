"""Every operator against its NumPy reference and against numerical gradients.

Driven by the tables in `cases.py` and `cases_nn.py`. Each case is tried with several dtypes, with
a fresh and with an overwritten output, and its gradient with every request, by executor and by
autograd.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from operators import (
    EXISTING,
    RANDOM,
    described,
    function,
    head_gradients,
    host,
    numeric_gradient,
    place,
    reference_outputs,
    run_executor,
)
from reference import GRADIENTS, REFERENCES

import rsnet as mx

TOLERANCE = {  # by dtype: relative, absolute
    "float16": (2e-2, 2e-2),
    "float32": (2e-4, 2e-5),
    "float64": (1e-6, 1e-7),  # parameters of type float are rounded to float32
}
TABLE = [c for op, cs in CASES.items() if op in EXISTING for c in cs]
TRIED = [(c, d) for c in TABLE for d in c.dtypes]


def ids(value):
    return value.id if hasattr(value, "id") else str(value)


def close(got, expected, dtype, what, loosen=1.0):
    got, expected = host(got), np.asarray(expected)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    rtol, atol = TOLERANCE.get(np.dtype(dtype).name, (0, 0))
    wide = "float64" if got.dtype.kind == "f" else "int64"
    np.testing.assert_allclose(
        got.astype(wide), expected.astype(wide), rtol * loosen, atol * loosen, err_msg=what
    )


@pytest.mark.parametrize(("case", "dtype"), TRIED, ids=ids)
def test_forward_matches_reference(case, dtype):
    arrays = case.arrays(dtype)
    inputs = [place(a) for a in arrays]
    f = function(mx.nd, case.op)
    with mx.autograd.train_mode():
        out = f(*inputs, **case.params)
    outs = list(out) if isinstance(out, (list, tuple)) else [out]
    expected = reference_outputs(case, arrays)
    states = expected[len(expected) - len(case.mutates) :]
    for i, (got, want) in enumerate(zip(outs, expected, strict=False)):
        close(got, want, got.dtype if dtype != "float16" else dtype, f"output {i}")
    for i, want in zip(case.mutates, states, strict=True):
        close(inputs[i], want, dtype, f"state {i}")
    for i, (before, after) in enumerate(zip(arrays, inputs, strict=True)):
        if i not in case.mutates:
            np.testing.assert_array_equal(host(after), before, f"input {i} was changed")


@pytest.mark.parametrize("case", TABLE, ids=ids)
def test_output_given_is_overwritten(case):
    """`out=` a fresh array full of NaN, and `out=` an input of the right shape."""
    if not case.dtypes:
        pytest.skip("the case is for gradients only")
    dtype = case.dtypes[0]
    arrays = case.arrays(dtype)
    f = function(mx.nd, case.op)
    first = f(*[place(a) for a in arrays], **case.params)
    if isinstance(first, (list, tuple)):
        pytest.skip("several outputs")
    given = place(np.full(first.shape, 77, first.dtype))
    assert f(*[place(a) for a in arrays], out=given, **case.params) is given
    np.testing.assert_array_equal(host(given), host(first))
    if arrays and first.shape == arrays[0].shape and first.dtype == arrays[0].dtype:
        inputs = [place(a) for a in arrays]
        f(*inputs, out=inputs[0], **case.params)
        np.testing.assert_array_equal(host(inputs[0]), host(first), "in place")


def expected_gradients(case, arrays, heads):
    """Gradients of the differentiated inputs, in float64."""
    wrt = case.differentiated()
    if case.grad == "zero":
        return {i: np.zeros(arrays[i].shape) for i in wrt}
    wide = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
    if case.grad == "own":
        own = GRADIENTS[case.op](heads, *wide, **case.params)
        return {i: own[i] for i in wrt}
    return {i: numeric_gradient(case, wide, i, heads) for i in wrt}


NUMPY_RANDOM = [
    *("_npi_uniform", "_npi_uniform_n", "_npi_normal", "_npi_normal_n", "_npi_gamma"),
    *("_npi_gumbel", "_npi_logistic", "_npi_exponential", "_npi_rayleigh", "_npi_weibull"),
    *("_npi_pareto", "_npi_powerd", "_npi_bernoulli", "_npi_choice", "_npi_multinomial"),
]
DIFFERENTIABLE = [c for c in TABLE if c.grad != "none" and not any(0 in x.shape for x in c.inputs)]


# Numbers of a case that are moved one by one, at two evaluations of the reference each.
MANY = 150


def moved(case):
    shapes = [case.inputs[i].shape for i in case.differentiated()]
    return sum(int(np.prod(shape)) for shape in shapes) if case.grad == "numeric" else 0


def slow_if(slow, *values):
    return pytest.param(*values, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("case", [slow_if(moved(c) > MANY, c) for c in DIFFERENTIABLE], ids=ids)
def test_gradient(case):
    """All requests through an executor: write replaces, add adds, null leaves alone."""
    drawn = case.arrays("float32")
    heads = head_gradients(case, drawn)
    expected = expected_gradients(case, drawn, heads)  # slow, and the same for all dtypes
    tried = {"float64": ("write", "add", "null"), "float32": ("write",)}
    for dtype, req in ((d, r) for d, reqs in tried.items() if d in case.dtypes for r in reqs):
        arrays = [
            a if spec.dtype else a.astype(dtype) for a, spec in zip(drawn, case.inputs, strict=True)
        ]
        grads, before = run_executor(case, arrays, heads, req)
        for i, want in expected.items():
            target = {"write": want, "add": want + before[i], "null": before[i]}[req]
            loosen = 1 if dtype == "float64" else 10
            close(grads[i], target, dtype, f"{dtype}, {req}: gradient of input {i}", loosen)


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=ids)
def test_autograd_agrees_with_executor(case):
    dtype = "float64" if "float64" in case.dtypes else case.dtypes[0]
    arrays = case.arrays(dtype)
    heads = head_gradients(case, arrays)
    grads, _ = run_executor(case, arrays, heads, "write")
    inputs = [place(a) for a in arrays]
    for i in case.differentiated():
        inputs[i].attach_grad()
    with mx.autograd.record():
        out = function(mx.nd, case.op)(*inputs, **case.params)
    outs = list(out) if isinstance(out, (list, tuple)) else [out]
    mx.autograd.backward(outs, [place(h.astype(o.dtype)) for h, o in zip(heads, outs, strict=True)])
    for i in case.differentiated():
        close(inputs[i].grad, host(grads[i]), dtype, f"gradient of input {i}")


@pytest.mark.parametrize("op", [op for op in RANDOM if op in EXISTING])
def test_random_numbers_have_their_moments(op):
    params, mean, std = RANDOM[op]
    n = 40000
    f = function(mx.nd, op)
    mx.random.seed(7)
    draws = host(f(shape=(n,), **params)).astype("float64")
    assert draws.mean() == pytest.approx(mean, abs=5 * std / np.sqrt(n))
    assert draws.std() == pytest.approx(std, rel=0.05)
    mx.random.seed(7)
    np.testing.assert_array_equal(host(f(shape=(n,), **params)), draws, "same seed")
    assert not np.array_equal(host(f(shape=(n,), **params)), draws)


# Parameters of two distributions each, with their means and standard deviations.
SAMPLED = {
    "_sample_uniform": ([[0, 2], [1, 6]], [0.5, 4], [1 / 12**0.5, 4 / 12**0.5]),
    "_sample_normal": ([[0, -2], [1, 3]], [0, -2], [1, 3]),
    "_sample_gamma": ([[2, 5], [3, 0.5]], [6, 2.5], [18**0.5, 1.25**0.5]),
    "_sample_exponential": ([[2, 0.25]], [0.5, 4], [0.5, 4]),
    "_sample_poisson": ([[1, 9]], [1, 9], [1, 3]),
    "_sample_negative_binomial": ([[3, 4], [0.5, 0.8]], [3, 1], [6**0.5, 1.25**0.5]),
    "_sample_generalized_negative_binomial": ([[2, 4], [0.5, 0]], [2, 4], [2, 2]),
}


@pytest.mark.parametrize("op", SAMPLED)
def test_samples_have_the_moments_of_their_parameters(op):
    params, mean, std = SAMPLED[op]
    arrays = [mx.nd.array(p) for p in params]
    n = 40000
    mx.random.seed(11)
    draws = host(function(mx.nd, op)(*arrays, shape=(n,)))
    assert draws.shape == (2, n)
    for row, m, s in zip(draws.astype("float64"), mean, std, strict=True):
        assert row.mean() == pytest.approx(m, abs=5 * s / np.sqrt(n))
        assert row.std() == pytest.approx(s, rel=0.06)
    mx.random.seed(11)
    np.testing.assert_array_equal(host(function(mx.nd, op)(*arrays, shape=(n,))), draws)


def test_multinomial_draws_and_their_probabilities():
    p = np.array([[0.1, 0.2, 0.7], [1, 0, 0]], "float32")
    draws, logs = mx.nd.random.multinomial(mx.nd.array(p), shape=20000, get_prob=True)
    draws = host(draws)
    for row, want in zip(draws, p, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 20000, want, atol=0.02)
    want = np.log(np.take_along_axis(p, draws, 1))
    np.testing.assert_allclose(host(logs), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_logarithms_of_draws_have_gradients(dtype):
    """Each draw adds its gradient, over the probability, where it fell."""
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0]])
    x = mx.nd.array(p, dtype="float64")
    x.attach_grad()
    with mx.autograd.record():
        draws, logs = mx.nd.random.multinomial(x, shape=9, get_prob=True, dtype=dtype)
    heads = np.arange(18.0).reshape(2, 9)
    logs.backward(mx.nd.array(heads, dtype="float64"))
    want = np.zeros_like(p)
    for row, (places, slopes) in enumerate(zip(host(draws).astype(int), heads, strict=True)):
        np.add.at(want[row], places, slopes / p[row, places])
    np.testing.assert_allclose(host(x.grad), want)


def test_shuffle_moves_whole_rows():
    x = np.arange(300, dtype="float32").reshape(100, 3)
    y = host(mx.nd.random.shuffle(mx.nd.array(x)))
    assert not np.array_equal(y, x)
    np.testing.assert_array_equal(y[y[:, 0].argsort()], x)


def test_faces_of_samplers_agree():
    """The same call means the same with arrays as with symbols."""
    for name, params in (
        ("exponential", {"scale": 4.0}),
        ("gamma", {"alpha": 2.0, "beta": 3.0}),
        ("negative_binomial", {"k": 3, "p": 0.5}),
    ):
        mx.random.seed(3)
        now = getattr(mx.nd.random, name)(shape=(50,), **params)
        exe = getattr(mx.sym.random, name)(shape=(50,), **params).simple_bind(ctx=mx.cpu())
        mx.random.seed(3)
        np.testing.assert_array_equal(host(exe.forward()[0]), host(now))


def test_random_numbers_like_an_array():
    x = mx.nd.zeros((200, 100), dtype="float64")
    for f, params, mean, std in (
        (mx.nd.random.uniform_like, {"low": 1.0, "high": 3.0}, 2.0, 2 / np.sqrt(12)),
        (mx.nd.random.normal_like, {"loc": 1.0, "scale": 2.0}, 1.0, 2.0),
        *(
            (function(mx.nd, f"{op}_like"), *RANDOM[op])
            for op in RANDOM
            if f"{op}_like" in EXISTING and op not in ("_random_uniform", "_random_normal")
        ),
    ):
        y = f(x, **params)
        assert y.shape == x.shape and y.dtype == x.dtype
        assert host(y).mean() == pytest.approx(mean, abs=0.1)
        assert host(y).std() == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize(
    ("dtype", "values", "low", "high", "want"),
    [
        ("uint8", [1, 200], 0, 256, [1, 200]),
        ("uint8", [1, 200], -500, 100, [1, 100]),
        ("uint8", [1, 200], 300, 400, [255, 255]),
        ("int8", [1, 100], -500, 300, [1, 100]),
        ("int8", [-100, 100], -300, 50, [-100, 50]),
        ("int32", [-5, 2**31 - 1], -1e12, 1e12, [-5, 2**31 - 1]),
    ],
)
def test_limits_beyond_the_dtype_do_not_wrap(dtype, values, low, high, want):
    x = mx.nd.array(values, dtype=dtype)
    assert host(mx.nd.clip(x, low, high)).tolist() == want
    by_steps = mx.nd.minimum(mx.nd.maximum(x, low), high)
    assert host(by_steps).tolist() == want
    x.attach_grad()
    for f in (lambda: mx.nd.clip(x, -500, 10**12), lambda: mx.nd.maximum(x, -(10**12))):
        with mx.autograd.record():
            y = f()
        y.backward()
        assert host(x.grad).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 0), (1000, 1001), (0.1, 0.11)])
def test_uniform_stays_below_its_bound(dtype, low, high):
    mx.random.seed(5)
    x = mx.nd.random.uniform(low, high, shape=(300_000,), dtype=dtype)
    array = lambda v: mx.nd.array([v], dtype=dtype)  # noqa: E731
    y = mx.nd.random.uniform(array(low), array(high), shape=(100_000,), dtype=dtype)
    z = mx.nd.random.uniform_like(mx.nd.zeros((100_000,), dtype=dtype), low=low, high=high)
    for drawn in map(host, (x, y, z)):
        assert drawn.dtype == dtype
        assert drawn.min() >= np.dtype(dtype).type(low)
        assert drawn.max() < np.dtype(dtype).type(high)


@pytest.mark.parametrize("pool_type", ["max", "avg"])
def test_pooling_ignores_numbers_beyond_the_axes_of_the_kernel(pool_type):
    x = mx.nd.array(np.random.RandomState(0).rand(1, 2, 7, 6))
    some = {"kernel": (3, 3), "pool_type": pool_type}
    more = mx.nd.Pooling(x, **some, pad=(1, 1, 1, 1), stride=(2, 1, 5))
    np.testing.assert_array_equal(
        host(more), host(mx.nd.Pooling(x, **some, pad=(1, 1), stride=(2, 1)))
    )
    with pytest.raises(mx.MXNetError, match="'pad' has value .1,., expected 2 numbers"):
        mx.nd.Pooling(x, **some, pad=(1,))


def test_dropout():
    x = mx.nd.ones((200, 100))
    np.testing.assert_array_equal(host(mx.nd.Dropout(x, p=0.3)), 1.0)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Dropout(x, p=0.3)
    y.backward()
    values, counts = np.unique(host(y), return_counts=True)
    np.testing.assert_allclose(values, [0, 1 / 0.7], rtol=1e-6)
    assert counts[0] / y.size == pytest.approx(0.3, abs=0.02)
    np.testing.assert_array_equal(host(x.grad), host(y))
    shared = mx.nd.Dropout(mx.nd.ones((50, 40)), p=0.5, mode="always", axes=(1,))
    assert (host(shared).std(1) == 0).all() and host(shared).std() > 0


def test_batch_norm_moving_statistics():
    x = np.random.RandomState(0).normal(2, 3, (64, 3)).astype("float32")
    sym = mx.sym.BatchNorm(mx.sym.Variable("x"), name="bn", momentum=0.75, fix_gamma=False)
    exe = sym.simple_bind(ctx=mx.cpu(), x=x.shape)
    exe.arg_dict["bn_gamma"][:] = 1
    exe.aux_dict["bn_moving_var"][:] = 1
    exe.forward(is_train=False, x=x)
    np.testing.assert_allclose(host(exe.outputs[0]), x / np.sqrt(1.001), rtol=1e-4)
    exe.forward(is_train=True, x=x)
    exe.backward([mx.nd.ones(x.shape)])
    np.testing.assert_allclose(host(exe.aux_dict["bn_moving_mean"]), 0.25 * x.mean(0), rtol=1e-4)
    np.testing.assert_allclose(
        host(exe.aux_dict["bn_moving_var"]), 0.75 + 0.25 * x.var(0), rtol=1e-4
    )


RANDOM_COLOURS = [op for op in EXISTING if op.startswith("_image_random_")]

# Operators whose tests are not rows of the table, and where they are.
ELSEWHERE = {
    "Dropout": test_dropout,
    "BatchNorm": test_batch_norm_moving_statistics,
    **dict.fromkeys((f"{op}_like" for op in RANDOM), test_random_numbers_like_an_array),
    "_sample_unique_zipfian": "test_random_operators.py",
    "_no_gradient": "test_executor_gradients.py",
    "Custom": "test_operator_custom.py",
    "_Native": "test_operator_custom.py",
    "_NDArray": "test_operator_custom.py",
    **dict.fromkeys(SAMPLED, test_samples_have_the_moments_of_their_parameters),
    "_sample_multinomial": test_multinomial_draws_and_their_probabilities,
    **dict.fromkeys(("_foreach", "_while_loop", "_cond"), "test_loops_and_conditions.py"),
    **dict.fromkeys(NUMPY_RANDOM, "test_random_numpy_operators.py"),
    **dict.fromkeys(("_npi_eig", "_npi_eigvals"), "test_eigenvalues.py"),
    "_set_value": "test_signal_operators.py",
    "_contrib_boolean_mask": "test_cached_op.py",
    "_shuffle": test_shuffle_moves_whole_rows,
    **dict.fromkeys(RANDOM_COLOURS, "test_image_operators.py"),
}
# What programs call operators by that have no function of their name.
CALLED = {"_Native": "NumpyOp", "_NDArray": "NDArrayOp"}


@pytest.mark.parametrize(("op", "file"), [(o, f) for o, f in ELSEWHERE.items() if type(f) is str])
def test_a_file_that_is_named_mentions_the_operator(op, file):
    (path,) = Path(__file__).parents[1].rglob(file)
    assert CALLED.get(op, re.sub("^_(image_|contrib_|npi_)?", "", op)) in path.read_text()


# Operators that Python registered are tested where they are defined.
BUILT_IN = sorted(op for op in EXISTING if not op.startswith("_user_"))


@pytest.mark.parametrize("op", BUILT_IN)
def test_complete(op):
    """An operator without documentation, cases or a reference is not finished."""
    info = EXISTING[op]
    missing = []
    if len(info["doc"].split()) < 3:
        missing.append("documentation")
    texts = described(op)
    missing += [f"documentation of input {n}" for n in info["arrays"] if not texts.get(n)]
    missing += [f"documentation of parameter {n}" for n, doc in info["params"] if not doc.strip()]
    if op not in CASES and op not in RANDOM and op not in ELSEWHERE:
        missing.append("cases in tests/support/cases.py")
    if op not in REFERENCES and op not in RANDOM and op not in ELSEWHERE:
        missing.append("a reference in tests/support/reference.py")
    assert not missing, f"{op} lacks " + ", ".join(missing)


@pytest.mark.parametrize("act_type", ["relu", "sigmoid", "tanh", "softrelu", "softsign"])
def test_gradients_of_activations_at_nan_are_nan(act_type):
    check_gradient_at_nan(lambda x: mx.nd.Activation(x, act_type=act_type))


def test_the_gradient_of_smooth_l1_at_nan_is_nan():
    check_gradient_at_nan(lambda x: mx.nd.smooth_l1(x, scalar=1.0))


def check_gradient_at_nan(function):
    x = mx.nd.array([float("nan"), -float("nan"), 2.0])
    x.attach_grad()
    with mx.autograd.record():
        y = function(x)
    y.backward()
    assert np.isnan(x.grad.asnumpy()).tolist() == [True, True, False]
