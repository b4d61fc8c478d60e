"""Random numbers: classes of a Zipfian distribution, and parameters that are out of range."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd


def test_unique_classes_are_distinct_and_counted():
    mx.random.seed(5)
    classes, tries = nd._internal._sample_unique_zipfian(50, shape=(20, 30))
    assert classes.shape == (20, 30) and tries.shape == (20,)
    assert classes.dtype == np.int64 and tries.dtype == np.int64
    for row, n in zip(classes.asnumpy(), tries.asnumpy(), strict=True):
        assert len(set(row)) == 30 and row.min() >= 0 and row.max() < 50 and n >= 30
    mx.random.seed(5)
    again = nd._internal._sample_unique_zipfian(50, shape=(20, 30))[0]
    np.testing.assert_array_equal(classes.asnumpy(), again.asnumpy())


def test_classes_have_their_probabilities():
    mx.random.seed(7)
    first = nd._internal._sample_unique_zipfian(9, shape=(40_000, 1))[0].asnumpy().ravel()
    drawn = nd.contrib.rand_zipfian(nd.array([0]), 40_000, 9)[0].asnumpy()
    expected = np.log((np.arange(9) + 2) / (np.arange(9) + 1)) / np.log(10)
    for sample in (first, drawn):
        assert np.bincount(sample, minlength=9) / 40_000 == pytest.approx(expected, abs=0.012)


def test_expected_counts():
    mx.random.seed(4)
    arrays = nd.contrib.rand_zipfian(nd.array([3, 0]), 6, 5)
    symbols = mx.sym.Group(mx.sym.contrib.rand_zipfian(mx.sym.var("classes"), 6, 5))
    count = lambda c: 6 * np.log((c + 2) / (c + 1)) / np.log(6)  # noqa: E731
    for samples, true, sampled in (arrays, symbols.eval(classes=nd.array([3, 0]))):
        assert samples.shape == (6,) and samples.dtype == np.int64
        np.testing.assert_allclose(true.asnumpy(), count(np.array([3.0, 0.0])))
        np.testing.assert_allclose(sampled.asnumpy(), count(samples.asnumpy().astype(float)))


def test_unique_classes_have_to_exist():
    for shape in ((1, 6), (3,), (1, 2, 1)):
        with pytest.raises(mx.MXNetError, match="shape"):
            nd._internal._sample_unique_zipfian(5, shape=shape)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("uniform", {"low": 3, "high": 1}),
        ("normal", {"loc": 0, "scale": -1}),
        ("gamma", {"alpha": -1, "beta": 1}),
        ("gamma", {"alpha": 1, "beta": 0}),
        ("exponential", {"lam": -1}),
        ("poisson", {"lam": -1}),
        ("negative_binomial", {"k": -1, "p": 0.5}),
        ("negative_binomial", {"k": 1, "p": 1.5}),
        ("generalized_negative_binomial", {"mu": -1, "alpha": 0.5}),
    ],
)
def test_parameters_out_of_range_surface_at_the_wait(name, params):
    draw = getattr(nd._internal, f"_random_{name}")
    like = getattr(nd.random, f"{name}_like")
    for call in (lambda: draw(shape=(3,), **params), lambda: like(nd.ones((3,)), **params)):
        with pytest.raises(mx.MXNetError, match="invalid"):
            call().asnumpy()


@pytest.mark.parametrize(
    ("name", "valid", "faulty", "message"),
    [
        ("uniform", (0, 1), (3, 1), r"invalid high\[1, 2\] '1': expected at least low, 3"),
        ("normal", (-1, 0), (0, -2), r"invalid sigma\[1, 2\] '-2': expected at least 0"),
        ("gamma", (1, 1), (0, 1), r"invalid alpha\[1, 2\] '0': expected more than 0"),
        ("gamma", (1, 1), (1, -1), r"invalid beta\[1, 2\] '-1': expected more than 0"),
        ("exponential", (1,), (-1,), r"invalid lam\[1, 2\] '-1': expected more than 0"),
        ("poisson", (0,), (-1,), r"invalid lam\[1, 2\] '-1': expected at least 0"),
        ("poisson", (0,), (np.nan,), r"invalid lam\[1, 2\] 'NaN': expected at least 0"),
        ("negative_binomial", (1, 1), (0, 1), r"invalid k\[1, 2\] '0': expected more than 0"),
        ("negative_binomial", (1, 1), (1, 2), r"invalid p\[1, 2\] '2': .* at most 1"),
        ("generalized_negative_binomial", (1, 0), (-1, 0), r"invalid mu\[1, 2\] '-1'"),
        ("generalized_negative_binomial", (1, 0), (1, -1), r"invalid alpha\[1, 2\] '-1'"),
    ],
)
def test_arrays_of_parameters_out_of_range_surface_at_the_wait(name, valid, faulty, message):
    arrays = [np.full((2, 4), number, "float32") for number in valid]
    sample = getattr(nd, f"sample_{name}")
    assert np.isfinite(sample(*map(nd.array, arrays), shape=3).asnumpy()).all()
    for at in ((1, 3), (1, 2)):  # the first one is named
        for array, number in zip(arrays, faulty, strict=True):
            array[at] = number
    drawn = sample(*map(nd.array, arrays), shape=3)
    assert drawn.shape == (2, 4, 3)
    with pytest.raises(mx.MXNetError, match=f"^_sample_{name}: {message}"):
        drawn.asnumpy()
    if not name.endswith("binomial"):
        with pytest.raises(mx.MXNetError, match=message):
            getattr(nd.random, name)(*map(nd.array, arrays)).asnumpy()
    with pytest.raises(mx.MXNetError, match=message.replace("1, 2", "0")):
        sample(*(nd.array(array[1, 2:3]) for array in arrays)).asnumpy()


@pytest.mark.parametrize("draw", [nd.random.exponential, mx.sym.random.exponential])
@pytest.mark.parametrize("scale", [0, "a", None])
def test_the_mean_of_an_exponential_distribution_is_a_number_above_0(draw, scale):
    if draw is mx.sym.random.exponential and scale is None:
        pytest.skip("None stands for the default there")
    with pytest.raises(ValueError, match="invalid scale .*: expected a number above 0"):
        draw(scale, shape=(2,))


def test_samplers_of_symbols_are_listed_and_count_their_arguments():
    likes = [name for name in dir(mx.sym.random) if name.endswith("_like")]
    assert likes == [name for name in dir(nd.random) if name.endswith("_like")] and len(likes) == 7
    with pytest.raises(TypeError, match=r"normal\(\) takes at most 4 positional arguments"):
        mx.sym.random.normal(0, 1, (2,), "float32", 5)


def test_adamw_of_symbols_is_that_of_arrays():
    rng = np.random.default_rng(0)
    values = [rng.uniform(0.5, 1, (3,)) for _ in range(4)]
    names = ["weight", "grad", "mean", "var"]
    options = {"lr": 0.1, "eta": 0.5, "wd": 0.01}
    exact = nd.contrib.adamw_update(*map(nd.array, values), 0.5, **options).asnumpy()
    for factor, more in ((0.5, {}), (mx.sym.var("factor"), {"factor": nd.array([0.5])})):
        step = mx.sym.contrib.adamw_update(*map(mx.sym.var, names), factor, **options)
        given = {**dict(zip(names, map(nd.array, values), strict=True)), **more}
        np.testing.assert_allclose(step.eval(**given)[0].asnumpy(), exact, rtol=1e-6)


def test_densities_check_shapes():
    with pytest.raises(mx.MXNetError, match="sample.*begins like"):
        nd.random_pdf_normal(nd.ones((3,)), nd.ones((2,)), nd.ones((2,)))
    with pytest.raises(mx.MXNetError, match="sample"):
        nd.random_pdf_dirichlet(nd.ones((3, 2)), nd.ones((3,)))
    s = mx.sym.random_pdf_normal(*map(mx.sym.Variable, ("x", "mu", "sigma")))
    assert s.infer_shape(x=(2, 3), mu=(2,)) == ([(2, 3), (2,), (2,)], [(2, 3)], [])


def test_arrays_without_axes_and_without_elements():
    draws = {"uniform": (), "normal": (), "gamma": (), "poisson": (3,), "randint": (2, 9)}
    with mx.util.np_shape(True):
        for name, params in draws.items():
            draw = getattr(nd.random, name)
            dtype = np.int32 if name == "randint" else np.float32
            for shape in ((), (0, 2), (2, 1)):
                drawn = draw(*params, shape=shape)
                assert (drawn.shape, drawn.dtype) == (shape, dtype)
            assert draw(*params).shape == (1,)
        assert nd.random.normal(shape=(), dtype="float64").dtype == np.float64
        assert nd.random.uniform(5, 6, shape=()).asscalar() >= 5


@pytest.mark.parametrize("module", [nd.random, mx.random])
def test_the_result_is_the_array_that_is_written(module):
    x = nd.arange(6)
    assert module.shuffle(x, out=x) is x
    assert sorted(x.asnumpy().tolist()) == [0, 1, 2, 3, 4, 5]
    out, two = nd.zeros((2,)), nd.array([1, 2])
    assert module.uniform(1, 2, out=out) is out and (out.asnumpy() >= 1).all()
    assert module.normal(two, two, out=out) is out
    listed = [out]
    assert module.normal(shape=(2,), out=listed) is listed
    drawn = [nd.zeros((3,), dtype="int32"), nd.zeros((3,))]
    given = {"shape": (3,), "get_prob": True}
    assert module.multinomial(nd.array([0, 1]), **given, out=drawn) is drawn
    assert drawn[0].asnumpy().tolist() == [1, 1, 1] and drawn[1].asnumpy().tolist() == [0, 0, 0]
