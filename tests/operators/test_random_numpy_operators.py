"""Random numbers of MXNet's NumPy interface: moments, shapes, gradients, and what is refused."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, sym

F = nd._internal
EULER = 0.5772156649015329

# By distribution: parameters, mean, standard deviation.
MOMENTS = {
    "uniform": ({"low": -1, "high": 3}, 1, 4 / 12**0.5),
    "normal": ({"loc": 1, "scale": 2}, 1, 2),
    "gamma": ({"shape": 2, "scale": 3}, 6, 18**0.5),
    "gumbel": ({"loc": 1, "scale": 2}, 1 + 2 * EULER, 2 * np.pi / 6**0.5),
    "logistic": ({"loc": 1, "scale": 2}, 1, 2 * np.pi / 3**0.5),
    "exponential": ({"scale": 2}, 2, 2),
    "rayleigh": ({"scale": 2}, 2 * (np.pi / 2) ** 0.5, 2 * (2 - np.pi / 2) ** 0.5),
    "weibull": ({"a": 2}, np.pi**0.5 / 2, (1 - np.pi / 4) ** 0.5),
    "pareto": ({"a": 5}, 1 / 4, (5 / (16 * 3)) ** 0.5),
    "powerd": ({"a": 2}, 2 / 3, (1 / 18) ** 0.5),
    "bernoulli": ({"prob": 0.3, "logit": None, "is_logit": False}, 0.3, 0.21**0.5),
    "uniform_n": ({"low": 0, "high": 1}, 0.5, 12**-0.5),
    "normal_n": ({"loc": -1, "scale": 1}, -1, 1),
}


@pytest.fixture(autouse=True)
def with_np_shape():
    with mx.np_shape(True):
        yield


@pytest.mark.parametrize("name", MOMENTS)
def test_draws_have_their_moments(name):
    params, mean, std = MOMENTS[name]
    draw = getattr(F, f"_npi_{name}")
    n = 40000
    mx.random.seed(5)
    first = draw(size=(n,), **params)
    assert first.shape == (n,) and first.dtype == np.float32
    values = first.asnumpy().astype("float64")
    assert values.mean() == pytest.approx(mean, abs=5 * std / n**0.5)
    assert values.std() == pytest.approx(std, rel=0.06)
    mx.random.seed(5)
    np.testing.assert_array_equal(draw(size=(n,), **params).asnumpy(), values)


def test_parameters_are_broadcast_to_the_draws():
    loc, scale = nd.array([[0], [100]]), nd.array([0, 0, 0])
    x = F._npi_normal(loc, scale, loc=None, scale=None)
    assert x.asnumpy().tolist() == [[0, 0, 0], [100, 100, 100]]
    assert F._npi_normal(loc, loc=None, scale=0, size=(3, 2, 4)).shape == (3, 2, 4)
    assert F._npi_normal_n(loc, loc=None, scale=0, size=(3,)).shape == (3, 2, 1)
    assert F._npi_uniform(low=0, high=1).shape == ()
    assert F._npi_uniform(low=0, high=1, dtype="float64").dtype == np.float64
    with pytest.raises(mx.MXNetError, match="size"):
        F._npi_normal(loc, loc=None, scale=0, size=(3,))


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("normal", ("loc", "scale")),
        ("gumbel", ("loc", "scale")),
        ("logistic", ("scale",)),
        ("exponential", ("scale",)),
        ("rayleigh", ("scale",)),
        ("weibull", ("a",)),
        ("pareto", ("a",)),
    ],
)
def test_gradients_are_those_of_the_draws(name, arrays):
    """The draws of one seed are a function of the parameters: differences of that function."""
    given = {key: value for key, value in MOMENTS[name][0].items()}
    params = [nd.array([given[key], given[key] + 0.5]) for key in arrays]
    for p in params:
        p.attach_grad()

    def draws(values):
        mx.random.seed(3)
        rest = {**given, **dict.fromkeys(arrays)}
        return getattr(F, f"_npi_{name}")(*values, size=(500, 2), **rest)

    with mx.autograd.record():
        out = draws(params)
    out.backward()
    for at, p in enumerate(params):
        step = 1e-2
        low, high = ([q + d * (i == at) for i, q in enumerate(params)] for d in (-step, step))
        change = (draws(high) - draws(low)).asnumpy().sum(0) / (2 * step)
        np.testing.assert_allclose(p.grad.asnumpy(), change, rtol=2e-2, atol=0.5)


def test_choices():
    mx.random.seed(2)
    drawn = F._npi_choice(a=4, size=(40000,))
    assert drawn.dtype == np.int64
    share = np.bincount(drawn.asnumpy(), minlength=4) / 40000
    np.testing.assert_allclose(share, 0.25, atol=0.015)
    weights = nd.array([0.1, 0, 0.9])
    share = F._npi_choice(weights, a=3, size=(40000,), weighted=True).asnumpy()
    np.testing.assert_allclose(np.bincount(share, minlength=3) / 40000, [0.1, 0, 0.9], atol=0.015)
    places = F._npi_choice(a=50, size=(50,), replace=False).asnumpy()
    assert sorted(places) == list(range(50)) and list(places) != list(range(50))
    few = F._npi_choice(a=10**12, size=(5,), replace=False).asnumpy()
    assert len(set(few)) == 5
    some = F._npi_choice(weights, a=3, size=(2,), weighted=True, replace=False).asnumpy()
    assert sorted(some) == [0, 2]
    assert F._npi_choice(nd.ones((4,)), a=None, size=None).shape == ()
    with pytest.raises(mx.MXNetError, match="invalid size '4': expected at most 3"):
        F._npi_choice(a=3, size=(4,), replace=False).asnumpy()
    with pytest.raises(mx.MXNetError, match="invalid a '0': expected at least 1"):
        F._npi_choice(a=0, size=(1,)).asnumpy()


def test_counts_of_results():
    mx.random.seed(4)
    counts = F._npi_multinomial(nd.array([0.2, 0.3, 0.5]), n=1000, size=(300,))
    assert counts.shape == (300, 3) and counts.dtype == np.int64
    found = counts.asnumpy()
    assert (found.sum(1) == 1000).all()
    np.testing.assert_allclose(found.mean(0), [200, 300, 500], rtol=0.02)
    np.testing.assert_allclose(found.var(0), [160, 210, 250], rtol=0.4)
    great = F._npi_multinomial(n=10**15, pvals=(0.5, 0.5)).asnumpy()
    assert great.sum() == 10**15 and abs(great[0] / 10**15 - 0.5) < 1e-6
    with pytest.raises(mx.MXNetError, match="pvals"):
        F._npi_multinomial(n=1, pvals=(0.9, 0.9)).asnumpy()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("uniform", {"low": 3, "high": 1}),
        ("normal", {"loc": 0, "scale": -1}),
        ("gamma", {"shape": -1, "scale": 1}),
        ("exponential", {"scale": -1}),
        ("weibull", {"a": 0}),
        ("bernoulli", {"prob": 1.5, "logit": None, "is_logit": False}),
    ],
)
def test_parameters_outside_of_the_domain_are_errors(name, params):
    with pytest.raises(mx.MXNetError, match="invalid parameters"):
        getattr(F, f"_npi_{name}")(size=(2,), **params).asnumpy()


def test_symbols_are_saved_and_run():
    x = sym.Variable("x")
    made = sym._internal._npi_normal(x, loc=None, scale=1.0, size=None)
    loaded = sym.load_json(made.tojson())
    assert loaded.tojson() == made.tojson() and len(loaded.list_outputs()) == 1
    exe = loaded.simple_bind(mx.cpu(), x=(2, 3))
    assert exe.forward(True, x=nd.ones((2, 3)) * 1e6)[0].asnumpy() == pytest.approx(1e6, rel=1e-4)
    exe.backward([nd.ones((2, 3))])
    assert exe.grad_dict["x"].asnumpy().tolist() == [[1, 1, 1], [1, 1, 1]]
