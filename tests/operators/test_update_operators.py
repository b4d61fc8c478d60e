"""Operators on many arrays: what numbers in a table of cases do not show."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_finite_finds_one_number_among_many(dtype, bad):
    x = nd.ones((10_001,), dtype=dtype)
    assert nd.all_finite(x).asscalar() == 1
    x[7_777] = bad
    assert nd.all_finite(x).asscalar() == 0
    assert nd.multi_all_finite(nd.ones((2,), dtype=dtype), x, num_arrays=2).asscalar() == 0


def test_calls_can_share_a_flag():
    flag = nd.ones((1,))
    nd.all_finite(nd.array([NAN]), out=flag)
    nd.all_finite(nd.ones((2,)), init_output=False, out=flag)
    assert flag.asscalar() == 0
    nd.all_finite(nd.ones((2,)), out=flag)
    nd.multi_all_finite(nd.ones((2,)), nd.ones((1,)), num_arrays=2, init_output=False, out=flag)
    assert flag.asscalar() == 1


def test_a_flag_that_goes_on_has_to_be_given():
    x = nd.ones((2,))
    for call in (
        lambda: nd.all_finite(x, init_output=False),
        lambda: nd.multi_all_finite(x, x, num_arrays=2, init_output=False),
    ):
        with pytest.raises(mx.MXNetError, match="all_finite: .*expected out="):
            call()
    net = mx.sym.all_finite(mx.sym.var("x"), init_output=False, name="flag")
    with pytest.raises(mx.MXNetError, match="all_finite 'flag'.*out"):
        net.simple_bind(mx.cpu(), x=(2,))


def test_errors_of_shapes_name_the_argument():
    w, other = nd.ones((2,)), nd.ones((3,))
    half = w.astype("float16")
    with pytest.raises(mx.MXNetError, match="argument 'var' has shape"):
        nd.contrib.mp_adamw_update(half, half, w, other, w, 1.0, lr=0.1, eta=1.0)
    with pytest.raises(mx.MXNetError, match="argument 'g' has shape"):
        nd.lamb_update_phase2(w, other, nd.ones((1,)), nd.ones((1,)), lr=0.1)


@pytest.mark.parametrize("factor", [0.0, INF, NAN])
def test_adamw_skips_a_step_without_a_loss_scale(factor):
    w, g, mean, var = nd.ones((3,)), nd.ones((3,)), nd.zeros((3,)), nd.zeros((3,))
    out = nd.contrib.adamw_update(w, g, mean, var, factor, lr=0.1, eta=1.0, wd=0.1)
    half = w.astype("float16")
    nd.contrib.mp_adamw_update(half, half, mean, var, w, factor, lr=0.1, eta=1.0, out=half)
    nd.contrib.multi_adamw_update([w], [g], [mean], [var], factor, (0.1,), (0,), (1,), out=[w])
    nd.contrib.multi_mp_adamw_update(
        [half], [half], [mean], [var], [w], factor, (0.1,), (0,), (1,), out=[half]
    )
    for same in (w, out, half):
        assert same.asnumpy().tolist() == [1, 1, 1]
    assert not mean.asnumpy().any() and not var.asnumpy().any()


def test_lists_are_checked():
    w = nd.ones((2,))
    with pytest.raises(mx.MXNetError, match="lrs.*expected 2 numbers"):
        nd.multi_sgd_update(w, w, w, w, lrs=(0.1,), wds=(0, 0), num_weights=2)
    with pytest.raises(mx.MXNetError, match="multi_sgd_update"):
        nd.multi_sgd_update(w, w, w, lrs=(0.1, 0.1), wds=(0, 0), num_weights=2)
    with pytest.raises(mx.MXNetError, match="grad_1"):
        nd.multi_sgd_update(w, w, w, nd.ones((3,)), lrs=(0.1, 0.1), wds=(0, 0), num_weights=2)
    with pytest.raises(mx.MXNetError, match="weight32_0"):
        nd.multi_mp_sgd_update(w, w, w.astype("float64"), lrs=(0.1,), wds=(0,))
    with pytest.raises(ValueError, match="expected one length"):
        nd.contrib.multi_lamb_update([w], [w, w], [w], [w], (1,), (0.1,), (0,))


def test_weights_are_inferred_in_every_direction():
    names = ["w", "g", "m", "v"]
    s = mx.sym._internal._multi_lamb_update(
        *map(mx.sym.Variable, names), learning_rates=(0.1,), wds=(0,), step_count=(1,)
    )
    assert s.list_auxiliary_states() == ["m", "v"]
    for known in ("w", "g"):
        args, outs, aux = s.infer_shape(**{known: (3, 4)})
        assert args == [(3, 4)] * 2 and outs == [(3, 4)] and aux == [(3, 4)] * 2


def test_results_do_not_depend_on_threads():
    x = nd.random.uniform(-1, 1, (300, 301))
    want = nd.multi_sum_sq(x, num_arrays=1).asscalar()
    assert want == pytest.approx(np.square(x.asnumpy().astype("float64")).sum(), rel=1e-6)
    assert nd.multi_sum_sq(x, x, num_arrays=2).asnumpy().tolist() == [want, want]


def test_states_are_named_as_in_mxnet():
    weight, grad = nd.ones((2,)), nd.full((2,), 0.5)
    state = [nd.ones((2,)), nd.zeros((2,)), nd.zeros((2,))]
    named = dict(zip(("n", "g", "delta"), (s.copy() for s in state), strict=True))
    want = nd.rmspropalex_update(weight, grad, *state, lr=0.1)
    got = nd.rmspropalex_update(weight=weight, grad=grad, **named, lr=0.1)
    assert (got.asnumpy() == want.asnumpy()).all()
    assert (named["g"].asnumpy() == state[1].asnumpy()).all() and state[1].asnumpy().all()
