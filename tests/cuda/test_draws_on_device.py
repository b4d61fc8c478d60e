"""Numbers of distributions on a device: the host's, from the same counters."""

import numpy as np
import pytest
from conftest import assert_near, first_of

import rsnet as mx
from rsnet import nd


@pytest.fixture(autouse=True)
def nothing_runs_on_the_host():
    before = mx.cuda.operators_on_host()
    yield
    assert mx.cuda.operators_on_host() == before


def both(draw):
    """What `draw` gives on the device and on the host."""
    drawn = []
    for ctx in (mx.gpu(0), mx.cpu(0)):
        mx.random.seed(7)
        drawn.append(draw(ctx))
    return drawn


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gamma", {"alpha": 2.5, "beta": 0.5}),
        ("gamma", {"alpha": 0.3, "beta": 2}),
        ("exponential", {"scale": 3}),
        ("poisson", {"lam": 0}),
        ("poisson", {"lam": 3}),
        ("poisson", {"lam": 90}),
        ("negative_binomial", {"k": 3, "p": 0.4}),
        ("negative_binomial", {"k": 3, "p": 1}),
        ("generalized_negative_binomial", {"mu": 3, "alpha": 0.4}),
        ("generalized_negative_binomial", {"mu": 3, "alpha": 0}),
    ],
)
def test_distributions(name, settings, dtype):
    draw = getattr(nd.random, name)
    got, want = both(lambda ctx: draw(**settings, shape=(700,), ctx=ctx, dtype=dtype))
    assert_near(got.asnumpy(), want.asnumpy())


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-5, 7), (-(2**31), 2**31 - 1)])
def test_whole_numbers(low, high, dtype):
    got, want = both(
        lambda ctx: nd.random.randint(low, high, shape=(300,), ctx=ctx, dtype=dtype).asnumpy()
    )
    np.testing.assert_array_equal(got, want)
    assert got.min() >= low and got.max() < high


def test_the_widest_range_of_whole_numbers():
    low, high = -(2**63), 2**63 - 1
    got, want = both(
        lambda ctx: nd.random.randint(low, high, shape=(300,), ctx=ctx, dtype="int64").asnumpy()
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "dtype", first_of("float32", "float16", "float64", "int64", "int8", "bool")
)
@pytest.mark.parametrize("shape", [(1,), (2, 3), (257,), (5000,), (300, 2, 2)])
def test_rows_are_shuffled_as_on_the_host(shape, dtype):
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    got, want = both(lambda ctx: nd.random.shuffle(nd.array(values, ctx, dtype)).asnumpy())
    np.testing.assert_array_equal(got, want)


def test_an_array_is_shuffled_in_its_memory():
    def draw(ctx):
        x = nd.arange(600, ctx=ctx).reshape((200, 3))
        nd._internal._shuffle(x, out=x)
        return x.asnumpy()

    got, want = both(draw)
    np.testing.assert_array_equal(got, want)
    assert sorted(got[:, 0]) == list(range(0, 600, 3)) and (got[:, 0] != np.arange(0, 600, 3)).any()


@pytest.mark.parametrize("name", ["uniform", "normal", "gamma", "exponential", "poisson"])
def test_arrays_like_others(name):
    draw = getattr(nd.random, f"{name}_like")
    got, want = both(lambda ctx: draw(data=nd.ones((5, 30), ctx=ctx, dtype="float32")))
    assert_near(got.asnumpy(), want.asnumpy())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("normal", ([0, 5, -2], [1, 0, 3])),
        ("gamma", ([0.5, 5, 2], [1, 2, 3])),
        ("exponential", ([0.5, 5, 2],)),
        ("poisson", ([0.5, 50, 0],)),
        ("negative_binomial", ([1, 5, 2], [0.1, 0.5, 1])),
        ("generalized_negative_binomial", ([1, 5, 2], [0.1, 0, 1])),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_in_arrays(name, parameters, dtype):
    draw = getattr(nd, f"sample_{name}")

    def call(ctx):
        return draw(*[nd.array(p, ctx, dtype) for p in parameters], shape=(40,)).asnumpy()

    assert_near(*both(call))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("normal", ([0, 0, 0], [1, -1, np.inf])),
        ("gamma", ([1, -1, 1], [1, 2, 0])),
        ("exponential", ([1, 0, np.nan],)),
        ("poisson", ([1, -1, np.inf],)),
        ("negative_binomial", ([1, 0, 1], [0.5, 0.5, 2])),
        ("generalized_negative_binomial", ([1, -1, 1], [0, 0, -1])),
    ],
)
def test_parameters_in_arrays_that_are_out_of_range_give_nan(name, parameters):
    arrays = [nd.array(p, mx.gpu(0)) for p in parameters]
    drawn = getattr(nd, f"sample_{name}")(*arrays, shape=(40,)).asnumpy()
    assert np.isfinite(drawn[0]).all() and np.isnan(drawn[1:]).all()


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_numbers_with_probabilities(dtype):
    p = np.array([[0.1, 0.2, 0.7], [0, 1, 0], [0.5, 0.5, 0]])

    def call(ctx):
        found = nd.sample_multinomial(nd.array(p, ctx), shape=(50,), get_prob=True, dtype=dtype)
        return [*found, nd.sample_multinomial(nd.array(p, ctx), shape=(50,), dtype=dtype)]

    for got, want in zip(*both(call), strict=True):
        assert_near(got.asnumpy(), want.asnumpy())


@pytest.mark.parametrize(
    ("name", "settings"),
    [("gamma", {"alpha": 0}), ("poisson", {"lam": -1}), ("negative_binomial", {"k": 1, "p": 0})],
)
def test_settings_out_of_range_are_refused(name, settings, gpu):
    with pytest.raises(mx.MXNetError, match="invalid (alpha|lam|p)"):
        getattr(nd.random, name)(**settings, shape=(4,), ctx=gpu).wait_to_read()


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("forward", [True, False])
def test_gradients_of_dropout_are_those_of_the_forward_pass(forward, backward, gpu):
    x = mx.nd.ones((1000,), ctx=gpu)
    x.attach_grad()
    with mx.autograd.record(train_mode=forward):
        y = mx.nd.Dropout(x, p=0.5)
    y.backward(train_mode=backward)
    np.testing.assert_array_equal(x.grad.asnumpy(), y.asnumpy())
