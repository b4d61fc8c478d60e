"""Steps of optimizers on a device, against the host."""

import numpy as np
import pytest
from conftest import assert_near

import rsnet as mx
from rsnet import nd

SHAPES = [(3, 5), (1,), (40, 500)]


@pytest.fixture(autouse=True)
def nothing_runs_on_the_host():
    before = mx.cuda.operators_on_host()
    yield
    assert mx.cuda.operators_on_host() == before


def trained(ctx, name, dtype, steps=3, **params):
    """Weights and states after some steps of an optimizer on several weights."""
    random = np.random.RandomState(7)
    optimizer = mx.optimizer.create(name, multi_precision=dtype == "float16", **params)
    updater = mx.optimizer.get_updater(optimizer)
    weights = [nd.array(random.uniform(-1, 1, s), ctx=ctx, dtype=dtype) for s in SHAPES]
    numbers = list(range(len(SHAPES)))
    for _ in range(steps):
        grads = [nd.array(random.uniform(-2, 2, s), ctx=ctx, dtype=dtype) for s in SHAPES]
        if optimizer.aggregate_num > 1:
            updater(numbers, grads, weights)
        else:
            for i in numbers:
                updater(i, grads[i], weights[i])
    found = [w.asnumpy() for w in weights]

    def states(of):
        if isinstance(of, nd.NDArray):
            found.append(of.asnumpy())
        elif isinstance(of, (tuple, list)):
            [states(each) for each in of]

    states([updater.states[i] for i in numbers])
    return found


OPTIMIZERS = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9, "wd": 0.01, "clip_gradient": 0.5}),
    ("nag", {"momentum": 0.9}),
    ("adam", {"wd": 0.1, "rescale_grad": 0.5}),
    ("rmsprop", {"clip_weights": 0.7}),
    ("rmsprop", {"centered": True, "clip_weights": 0.7}),
    ("signum", {"momentum": 0.0}),
    ("signum", {"momentum": 0.9, "wd_lh": 0.01}),
    ("ftrl", {"wd": 0.1}),
    ("ftml", {}),
    ("lamb", {"wd": 0.01}),
    ("lamb", {"lower_bound": 0.2, "upper_bound": 0.8, "bias_correction": False}),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(("name", "params"), OPTIMIZERS, ids=lambda v: v if type(v) is str else "")
def test_optimizers_step_as_on_the_host(name, params, dtype, gpu):
    got = trained(gpu, name, dtype, learning_rate=0.05, **params)
    for one, other in zip(got, trained(mx.cpu(), name, dtype, learning_rate=0.05, **params)):
        assert_near(one, other)


MANY = [
    ("_multi_adamw_update", 2, {"etas": (1.0, 0.5, 1.0)}, "rescale"),
    ("_multi_lamb_update", 2, {"step_count": (1, 2, 30)}, None),
    ("multi_sgd_update", 0, {}, None),
    ("multi_sgd_mom_update", 1, {"momentum": 0.9}, None),
    ("preloaded_multi_sgd_update", 0, {}, "rates"),
    ("preloaded_multi_sgd_mom_update", 1, {"momentum": 0.9}, "rates"),
]


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("name", "states", "params", "behind"), MANY, ids=lambda v: str(v)[:30])
def test_many_weights_of_several_dtypes(name, states, params, behind, mixed, gpu):
    """One call may have weights in half, single and double precision."""
    if mixed:
        name = name.replace("multi_", "multi_mp_")
    dtypes = ["float16", "float32", "float32"] if mixed else ["float16", "float32", "float64"]
    params = {"num_weights": 3, "clip_gradient": 0.5, **params}
    if "lamb" in name:
        params["num_tensors"] = params.pop("num_weights")
    rates = "learning_rates" if "lamb" in name else "lrs"
    if behind != "rates":
        params.update({rates: (0.1, 0.2, 0.3), "wds": (0.0, 0.1, 0.01)})
    found = []
    for ctx in (mx.cpu(), gpu):
        random, inputs, weights, changed = np.random.RandomState(3), [], [], []
        for shape, dtype in zip(SHAPES, dtypes, strict=True):
            wide = "float32" if mixed else dtype
            kinds = [dtype, dtype] + [wide] * (states + mixed)
            arrays = [nd.array(random.uniform(0.1, 1, shape), ctx=ctx, dtype=d) for d in kinds]
            inputs += arrays
            weights.append(arrays[0])
            changed += arrays[2:]
        if behind == "rescale":
            inputs.append(nd.array([0.5], ctx=ctx))
        elif behind == "rates":
            inputs += [nd.array([0.1, 0.2, 0.3], ctx=ctx), nd.array([0, 0.1, 0.01], ctx=ctx)]
        of = nd if hasattr(nd, name) else nd._internal
        getattr(of, name)(*inputs, out=weights, **params)
        found.append([x.asnumpy() for x in weights + changed])
    for got, want in zip(*found[::-1], strict=True):
        assert_near(got, want)


@pytest.mark.parametrize("scale", [0.0, float("inf"), float("nan")])
def test_a_scale_that_is_no_number_changes_nothing(scale, gpu):
    w, g, out = nd.ones((4,), ctx=gpu), nd.ones((4,), ctx=gpu), nd.zeros((4,), ctx=gpu)
    mean, var = nd.full((4,), 0.5, ctx=gpu), nd.full((4,), 0.25, ctx=gpu)
    scale = nd.array([scale], ctx=gpu)
    nd._internal._adamw_update(w, g, mean, var, scale, lr=0.1, eta=1, out=out)
    for x, value in ((w, 1), (mean, 0.5), (var, 0.25), (out, 1)):
        np.testing.assert_array_equal(x.asnumpy(), np.full(4, value))


@pytest.mark.parametrize("bad", [None, float("inf"), float("-inf"), float("nan")])
def test_whether_every_number_is_finite(bad, gpu):
    x, y = nd.ones((70_000,), ctx=gpu), nd.zeros((3,), ctx=gpu)
    if bad is not None:
        x[69_999] = bad
    expected = float(bad is None)
    assert nd.all_finite(x).asscalar() == expected
    assert nd.multi_all_finite(y, x, num_arrays=2).asscalar() == expected
    flag = nd.ones((1,), ctx=gpu)
    nd.all_finite(x, init_output=False, out=flag)
    nd.all_finite(y, init_output=False, out=flag)
    assert flag.asscalar() == expected


def test_arrays_are_reset(gpu):
    x, y = nd.ones((3, 4), ctx=gpu), nd.ones((2,), ctx=gpu, dtype="int32")
    nd.reset_arrays(x, y, num_arrays=2)
    assert not x.asnumpy().any() and not y.asnumpy().any()


def test_rates_of_lars(gpu):
    found = []
    for ctx in (mx.cpu(), gpu):
        w, g = nd.full((300, 70), 0.1, ctx=ctx), nd.zeros((7,), ctx=ctx)
        squares = nd.multi_sum_sq(w, g, num_arrays=2)
        rates = nd.array([0.1, 0.2], ctx=ctx)
        scaled = nd.multi_lars(rates, squares, squares, nd.zeros_like(rates), eta=0.5, eps=1e-3)
        found.append([squares.asnumpy(), scaled.asnumpy()])
    for got, want in zip(*found[::-1], strict=True):
        assert_near(got, want)
