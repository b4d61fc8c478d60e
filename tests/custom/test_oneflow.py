"""OneFlow's names: training of variables, names within a job, what is not there yet."""

import numpy as np
import pytest

import rsnet as mx
import rsnet.oneflow as flow
import rsnet.oneflow.typing as tp
from rsnet import MXNetError, autograd, nd

X = np.array([1, 2, 3], "float32")


@pytest.fixture(autouse=True)
def session():
    flow.clear_default_session()


def product(name, x, y):
    b = flow.user_op_builder(name).Op("multiply").Input("x", [x]).Input("y", [y])
    return b.Output("out").Build().InferAndTryRun().SoleOutputBlob()


def trained(rates, momentum, runs, boundaries=()):
    """The weights after each run of a job whose loss is w·x, with gradient x."""

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        w = flow.get_variable("w", (3,), initializer=flow.constant_initializer(5.0))
        loss = product("loss", w, x)
        scheduler = flow.optimizer.PiecewiseConstantScheduler(list(boundaries), rates)
        flow.optimizer.SGD(scheduler, momentum=momentum).minimize(loss)
        return loss

    @flow.global_function()
    def weights() -> tp.Numpy:
        return flow.get_variable("w", (3,))

    seen = []
    for _ in range(runs):
        job(X)
        seen.append(weights())
    return seen


def test_minimize_updates_the_variables_of_the_job():
    first, second = trained([0.1], 0, 2)
    np.testing.assert_allclose(first, 5 - 0.1 * X, rtol=1e-6)
    np.testing.assert_allclose(second, 5 - 0.2 * X, rtol=1e-6)


def test_momentum_is_kept_between_runs():
    first, second = trained([0.1], 0.9, 2)
    np.testing.assert_allclose(first, 5 - 0.1 * X, rtol=1e-6)
    np.testing.assert_allclose(second, 5 - 0.1 * X - 0.19 * X, rtol=1e-6)


def test_rates_change_at_the_boundaries():
    seen = trained([1.0, 0.5, 0.0], 0, 4, boundaries=[1, 2])
    for got, steps in zip(seen, (1, 1.5, 1.5, 1.5)):
        np.testing.assert_allclose(got, 5 - steps * X, rtol=1e-6)


weight = nd.full((3,), 5)
weight.attach_grad()


def test_arrays_with_gradients_that_the_function_refers_to_are_variables():
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        loss = weight * x
        flow.optimizer.SGD(
            flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0
        ).minimize(loss)
        return loss

    job(X)
    job(X)
    np.testing.assert_allclose(weight.asnumpy(), 5 - 0.2 * X, rtol=1e-6)


def test_a_variable_that_is_not_trained_and_one_that_is_watched():
    seen = []

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        w = flow.get_variable("a", (3,), initializer=flow.ones_initializer())
        b = flow.get_variable(
            "b", (3,), initializer=flow.constant_initializer(2.0), trainable=False
        )
        flow.watch_diff(w, seen.append)
        loss = product("p", product("q", w, x), b)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1.0])).minimize(loss)
        return b

    assert job(X).tolist() == [2, 2, 2] and job(X).tolist() == [2, 2, 2]
    np.testing.assert_allclose(seen, [2 * X, 2 * X])


def in_job(function):
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        return function(x)

    return job(X)


def minimize(loss):
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: (minimize(x * 2), minimize(x)), "expected one call of minimize, got two"),
        (lambda x: flow.get_variable("n"), "expected shape and initializer, as 'n' is new"),
        (lambda x: (flow.get_variable("m", (2,), initializer="zeros"),
                    flow.get_variable("m", (3,))), r"'m' has shape \(2,\)"),
        (lambda x: flow.optimizer.SGD(0.1), "0.1 is not a scheduler"),
        (lambda x: (product("twice", x, x), product("twice", x, x)),
         "invalid name 'twice': expected one that is new in job 'job'"),
    ],
)  # fmt: skip
def test_mistakes_in_jobs(function, says):
    with pytest.raises(MXNetError, match=says):
        in_job(function)


def test_outside_jobs():
    with pytest.raises(MXNetError, match="get_variable: expected a call inside of a job"):
        flow.get_variable("w", (3,))
    x = nd.array(X)
    product("free", x, x)
    product("free", x, x)  # outside a job names may occur again


def test_names_are_unique_in_every_run_apart():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((3,))) -> tp.Numpy:
        return product("once", x, x)

    assert job(X).tolist() == job(X).tolist() == [1, 4, 9]


def run_user(name, *arrays, **attrs):
    return getattr(nd._internal, "_user_" + name)(*arrays, **attrs)


def test_multiply_and_add_n_take_equal_shapes_only():
    with pytest.raises(
        MXNetError, match=r"multiply: invalid shape of 'y' 0 \(1,\): expected \(3,\)"
    ):
        run_user("multiply", nd.ones((3,)), nd.ones((1,)))
    three = [nd.ones((2,)), nd.ones((2,)), nd.ones((1, 2))]
    with pytest.raises(MXNetError, match=r"add_n: invalid shape of 'in' 2 \(1, 2\)"):
        run_user("add_n", *three, num_args=3)
    x = nd.ones((3,))
    x.attach_grad()
    with autograd.record():
        y = run_user("multiply", x, nd.array(X))
    y.backward()
    assert x.grad.asnumpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("shape", "found"), [((3, 2), (3, 2)), ((-1,), (6,)), ((2, -1, 1), (2, 3, 1)), ((6, 1), (6, 1))]
)
def test_reshape(shape, found):
    x = nd.arange(6).reshape((2, 3))
    y = run_user("reshape", x, shape=shape)
    assert y.shape == found and y.asnumpy().ravel().tolist() == [0, 1, 2, 3, 4, 5]
    s = mx.sym._internal._user_reshape(mx.sym.Variable("x"), shape=shape)
    assert s.infer_shape(x=(2, 3))[1] == [found]


@pytest.mark.parametrize("shape", [(4, -1), (-1, -1), (5,), (-2, 3), (0, -1)])
def test_reshapes_that_do_not_fit_are_refused_at_once(shape):
    with pytest.raises(MXNetError, match="expected one of 6 elements"):
        run_user("reshape", nd.ones((6,)), shape=shape)


def test_element_types_by_their_short_names():
    assert (flow.float, flow.double, flow.char) == (flow.float32, flow.float64, flow.int8)
    assert np.zeros(1, flow.float).dtype == np.float32
