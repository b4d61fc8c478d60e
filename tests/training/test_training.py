"""Optimizers, schedules, initializers, metrics and iterators."""

import pickle
import sys
import types

import numpy as np
import pytest

import rsnet as mx
from rsnet.ndarray._io import dumps_record

# Three steps from w = [1, -2, 3] with the gradients [.1, -.2, .5] * t, weight decay 0.01 if no
# other is given.
STEPS = [
    ("sgd", {}, [0.9937004, -1.9874009, 2.9691021]),
    ("sgd", {"momentum": 0.9}, [0.9899296, -1.9798592, 2.9507699]),
    ("nag", {"momentum": 0.9}, [0.9846388, -1.9692775, 2.9248030]),
    ("nag", {"momentum": 0.9, "learning_rate": 0.1, "wd": 0.5}, [0.5095230, -1.0190461, 1.2608675]),
    ("adam", {}, [0.9970670, -1.9970671, 2.9970708]),
    ("adagrad", {}, [0.9727408, -1.9724408, 2.9721410]),
    ("rmsprop", {}, [0.9914368, -1.9914367, 2.9914184]),
    ("rmsprop", {"centered": True}, [0.9821057, -1.9821055, 2.9820800]),
    ("adadelta", {}, [0.9325933, -1.9027854, 2.8730540]),
    ("ftrl", {}, [0.0426883, -0.2536513, 0.8659335]),
    ("adamax", {}, [0.9950510, -1.9950510, 2.9950676]),
    ("nadam", {}, [0.9970339, -1.9970340, 2.9970279]),
    ("signum", {}, [0.97, -1.97, 2.97]),
    ("ftml", {}, [0.9751549, -1.9751545, 2.9750981]),
    ("dcasgd", {}, [0.9937005, -1.9874016, 2.9691136]),
]


@pytest.mark.parametrize(("name", "options", "expected"), STEPS)
def test_three_steps(name, options, expected):
    updater = mx.optimizer.get_updater(mx.optimizer.create(name, **{"wd": 0.01} | options))
    weight = mx.nd.array([1.0, -2.0, 3.0])
    for t in (1, 2, 3):
        updater(0, mx.nd.array(np.array([0.1, -0.2, 0.5]) * t), weight)
    np.testing.assert_allclose(weight.asnumpy(), expected, rtol=1e-5)


def test_weight_decay_spares_biases_when_names_are_known():
    sgd = mx.optimizer.SGD(learning_rate=0.5, wd=0.1, param_idx2name={0: "a_weight", 1: "a_bias"})
    updater = mx.optimizer.get_updater(sgd)
    weights = [mx.nd.ones((2,)), mx.nd.ones((2,))]
    for i, w in enumerate(weights):
        updater(i, mx.nd.zeros((2,)), w)
    np.testing.assert_allclose(weights[0].asnumpy(), 0.95)
    np.testing.assert_allclose(weights[1].asnumpy(), 1.0)


def test_multipliers_from_the_symbol():
    data = mx.sym.Variable("data")
    weight = mx.sym.Variable("fc_weight", lr_mult=0.25)
    net = mx.sym.FullyConnected(data, weight, num_hidden=2, name="fc")
    sgd = mx.optimizer.SGD(learning_rate=1.0, sym=net, param_idx2name={0: "fc_weight"})
    w = mx.nd.zeros((2, 2))
    mx.optimizer.get_updater(sgd)(0, mx.nd.ones((2, 2)), w)
    np.testing.assert_allclose(w.asnumpy(), -0.25)


def test_gradient_is_rescaled_then_clipped():
    sgd = mx.optimizer.SGD(learning_rate=1.0, rescale_grad=0.5, clip_gradient=1.0)
    w = mx.nd.zeros((3,))
    mx.optimizer.get_updater(sgd)(0, mx.nd.array([1.0, 4.0, -9.0]), w)
    np.testing.assert_allclose(w.asnumpy(), [-0.5, -1.0, 1.0])


def test_updater_states_survive_a_round_trip():
    def run(updater, times):
        for _ in range(times):
            updater(0, mx.nd.ones((3,)), weight)

    make = lambda: mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))  # noqa: E731
    weight = mx.nd.zeros((3,))
    run(make(), 4)
    expected = weight.asnumpy()
    weight = mx.nd.zeros((3,))
    first, second = make(), make()
    run(first, 2)
    second.set_states(first.get_states())
    run(second, 2)
    np.testing.assert_allclose(weight.asnumpy(), expected, rtol=1e-6)


def test_states_that_mxnet_has_pickled_are_read(monkeypatch):
    """Its arrays are pickled as the class, called with None, and a dict with the bytes."""

    class NDArray:
        def __init__(self, array):
            self.array = array

        def __reduce__(self):
            return NDArray, (None,), {"handle": dumps_record(self.array)}

    module = types.ModuleType("mxnet.ndarray.ndarray")
    NDArray.__module__, NDArray.__qualname__ = module.__name__, "NDArray"
    module.NDArray = NDArray
    for name in ("mxnet", "mxnet.ndarray"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    mean, var = mx.nd.array([1, 2]), mx.nd.array([3, 4])
    written = pickle.dumps({0: (NDArray(mean), NDArray(var)), 1: None})
    for name in ("mxnet", "mxnet.ndarray", module.__name__):
        monkeypatch.delitem(sys.modules, name)
    updater = mx.optimizer.get_updater(mx.optimizer.Adam())
    updater.set_states(written)
    assert [state.asnumpy().tolist() for state in updater.states[0]] == [[1, 2], [3, 4]]
    assert updater.states[1] is None
    updater(0, mx.nd.zeros(2), mx.nd.ones(2))
    assert updater.states[0][0].asnumpy().tolist() == pytest.approx([0.9, 1.8])


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"name": "adam"}])
def test_half_precision_weights_have_copies(options):
    """Steps below the resolution of float16 add up in the float32 copy."""
    options = {"name": "sgd", "learning_rate": 1e-4, "wd": 0.01, **options}
    half = mx.nd.ones((3,), dtype="float16")
    single = mx.nd.ones((3,))
    copied = mx.optimizer.get_updater(mx.optimizer.create(multi_precision=True, **options))
    plain = mx.optimizer.get_updater(mx.optimizer.create(multi_precision=True, **options))
    for _ in range(50):
        copied(0, mx.nd.full((3,), 0.5, dtype="float16"), half)
        plain(0, mx.nd.full((3,), 0.5), single)
    assert half.dtype == np.float16 and half.asnumpy()[0] < 1
    master = copied.states[0][1 if options["name"] == "sgd" else 0]
    assert master.dtype == np.float32
    np.testing.assert_allclose(master.asnumpy(), single.asnumpy(), rtol=1e-6)
    np.testing.assert_array_equal(half.asnumpy(), single.asnumpy().astype("float16"))


def test_unknown_optimizer_is_named():
    with pytest.raises(ValueError, match="invalid optimizer 'nosuch': expected one of"):
        mx.optimizer.create("nosuch")


SCHEDULES = [
    (
        lambda s: s.FactorScheduler(2, 0.5, base_lr=1, warmup_steps=3, warmup_begin_lr=0.1),
        [0.1, 0.4, 0.7, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625],
    ),
    (lambda s: s.MultiFactorScheduler([2, 4], 0.5, base_lr=1), [1, 1, 1, 0.5, 0.5, 0.25]),
    (
        lambda s: s.PolyScheduler(6, base_lr=1, pwr=2, final_lr=0.1, warmup_steps=2),
        [0, 0.5, 1, 0.60625, 0.325, 0.15625, 0.1],
    ),
    (
        lambda s: s.CosineScheduler(6, base_lr=1, final_lr=0.1),
        [1, 0.93971, 0.775, 0.55, 0.325, 0.16029, 0.1],
    ),
]


@pytest.mark.parametrize(("make", "expected"), SCHEDULES)
def test_schedule(make, expected):
    schedule = make(mx.lr_scheduler)
    np.testing.assert_allclose([schedule(n) for n in range(len(expected))], expected, atol=1e-5)


def test_schedule_refuses_bad_parameters():
    with pytest.raises(ValueError, match="expected 0 to 1"):
        mx.lr_scheduler.FactorScheduler(1, factor=2.0)
    with pytest.raises(ValueError, match="increasing"):
        mx.lr_scheduler.MultiFactorScheduler([3, 2])
    with pytest.raises(ValueError, match="at least 1"):
        mx.lr_scheduler.FactorScheduler(0)


def test_optimizer_follows_its_schedule():
    schedule = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5)
    with pytest.warns(UserWarning, match="replaces base_lr=0.01"):
        sgd = mx.optimizer.SGD(learning_rate=1.0, lr_scheduler=schedule)
    w = mx.nd.zeros((1,))
    updater = mx.optimizer.get_updater(sgd)
    for _ in range(3):
        updater(0, mx.nd.ones((1,)), w)
    np.testing.assert_allclose(w.asnumpy(), -(1 + 0.5 + 0.25))


def filled(init, name="fc_weight", shape=(40, 30)):
    arr = mx.nd.zeros(shape) + 7
    init(mx.init.InitDesc(name), arr)
    return arr.asnumpy()


def test_initializers_by_name_ending():
    init = mx.init.Uniform(0.5)
    assert (filled(init, "fc_bias", (4,)) == 0).all()
    assert (filled(init, "bn_gamma", (4,)) == 1).all()
    assert (filled(init, "bn_beta", (4,)) == 0).all()
    assert (filled(init, "bn_moving_mean", (4,)) == 0).all()
    assert (filled(init, "bn_moving_var", (4,)) == 1).all()
    with pytest.raises(
        ValueError, match="invalid name 'strange' of a variable without initializer: expected"
    ):
        filled(init, "strange")


def test_initializer_spreads():
    uniform = filled(mx.init.Uniform(0.5))
    assert -0.5 <= uniform.min() < -0.45 and 0.45 < uniform.max() <= 0.5
    assert filled(mx.init.Normal(2.0)).std() == pytest.approx(2.0, rel=0.1)
    bound = np.sqrt(3 / 35)
    xavier = filled(mx.init.Xavier())
    assert -bound <= xavier.min() < -0.9 * bound and 0.9 * bound < xavier.max() <= bound
    he = filled(mx.init.MSRAPrelu(factor_type="in", slope=0.0))
    assert he.std() == pytest.approx(np.sqrt(2 / 30), rel=0.1)
    q = filled(mx.init.Orthogonal(scale=1.0), shape=(10, 30))
    np.testing.assert_allclose(q @ q.T, np.eye(10), atol=1e-5)


def test_xavier_refuses_vectors():
    with pytest.raises(ValueError, match="fc_weight"):
        filled(mx.init.Xavier(), shape=(4,))


def test_variable_attribute_decides():
    desc = mx.init.InitDesc("x_bias", {"__init__": mx.init.Constant(3.0).dumps()})
    arr = mx.nd.zeros((2,))
    mx.init.Uniform()(desc, arr)
    assert arr.asnumpy().tolist() == [3.0, 3.0]


def test_initializer_text_round_trip():
    init = mx.init.Xavier("gaussian", "in", 2.0)
    assert mx.init.create(init.dumps()) == init
    assert mx.init.create("xavier", magnitude=2).magnitude == 2.0
    with pytest.raises(ValueError, match="nosuch"):
        mx.init.create("nosuch")


def test_load_and_mixed():
    known = {"arg:a_weight": mx.nd.ones((2, 2))}
    assert (filled(mx.init.Load(known, mx.init.Zero()), "a_weight", (2, 2)) == 1).all()
    with pytest.raises(ValueError, match="a_weight"):
        filled(mx.init.Load(known), "a_weight", (3, 2))
    mixed = mx.init.Mixed(["fc1.*", ".*"], [mx.init.One(), mx.init.Zero()])
    assert (filled(mixed, "fc1_weight") == 1).all()
    assert (filled(mixed, "fc2_weight") == 0).all()


def test_bilinear_kernel():
    kernel = filled(mx.init.Bilinear(), shape=(1, 1, 4, 4))[0, 0]
    row = np.array([0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(kernel, np.outer(row, row), atol=1e-6)


def test_accuracy_and_top_k():
    label = mx.nd.array([0, 1, 2, 2])
    pred = mx.nd.array([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1]])
    accuracy = mx.metric.create("acc")
    accuracy.update([label], [pred])
    assert accuracy.get() == ("accuracy", 0.5)
    top = mx.metric.TopKAccuracy(top_k=2)
    top.update([label], [pred])
    assert top.get() == ("top_k_accuracy_2", 0.75)
    ties, narrow = mx.metric.TopKAccuracy(2), mx.metric.TopKAccuracy(5)
    ties.update([mx.nd.array([0, 2])], [mx.nd.array([[0.3, 0.4, 0.3]] * 2)])
    assert ties.get()[1] == 0.5  # either of the two, not both
    narrow.update([label], [pred])
    assert narrow.get()[1] == 1.0


def test_metric_local_and_global():
    metric = mx.metric.Accuracy()
    assert np.isnan(metric.get()[1])
    metric.update([mx.nd.array([1])], [mx.nd.array([1])])
    metric.reset_local()
    metric.update([mx.nd.array([1])], [mx.nd.array([0])])
    assert metric.get()[1] == 0.0
    assert metric.get_global()[1] == 0.5


def test_composite_and_custom_metric():
    def most(label, pred):
        return float(np.abs(label - pred).max())

    metric = mx.metric.create(["mse", most, "mae"])
    metric.update([mx.nd.array([1.0, 2.0])], [mx.nd.array([1.0, 4.0])])
    assert dict(metric.get_name_value()) == {"mse": 2.0, "most": 2.0, "mae": 1.0}


def test_cross_entropy():
    metric = mx.metric.CrossEntropy()
    metric.update([mx.nd.array([1, 0])], [mx.nd.array([[0.5, 0.5], [0.25, 0.75]])])
    assert metric.get()[1] == pytest.approx(-np.log([0.5, 0.25]).mean())


def test_binary_scores():
    batches = [
        ([1, 0, 1, 1], [[0.2, 0.8], [0.4, 0.6], [0.9, 0.1], [0.3, 0.7]]),
        ([0, 0], [[0.9, 0.1], [0.2, 0.8]]),
    ]
    f1, mcc = 2 * 2 / (2 * 2 + 1 + 1), (0 * 2 - 1 * 1) / np.sqrt(1 * 3 * 3 * 1)
    all_f1, all_mcc = 2 * 2 / (2 * 2 + 2 + 1), (1 * 2 - 2 * 1) / np.sqrt(2 * 4 * 3 * 3)
    for name, first, average, micro in (
        ("f1", f1, (f1 + 0) / 2, all_f1),
        ("mcc", mcc, (mcc + 0) / 2, all_mcc),
    ):
        for how, want in (("macro", average), ("micro", micro)):
            metric = mx.metric.create(name, average=how)
            for i, (label, pred) in enumerate(batches):
                metric.update([mx.nd.array(label)], [mx.nd.array(pred)])
                assert i or metric.get()[1] == pytest.approx(first)
            assert metric.get() == (name, pytest.approx(want))
            metric.reset_local()
            assert np.isnan(metric.get()[1])
            assert metric.get_global() == (name, pytest.approx(want))
    with pytest.raises(ValueError, match="metric 'f1': invalid label 2: expected 0 or 1"):
        mx.metric.F1().update([mx.nd.array([2])], [mx.nd.array([[0.1, 0.9]])])
    with pytest.raises(ValueError, match=r"'mcc': invalid shape of predictions \(1, 3\): expected"):
        mx.metric.MCC().update([mx.nd.array([1])], [mx.nd.array([[0.1, 0.9, 0]])])


def test_likelihoods():
    label, pred = mx.nd.array([1, 0, 2]), mx.nd.array([[0.5, 0.5, 0], [0.25, 0.75, 0], [1, 0, 0]])
    metric = mx.metric.create("nll_loss")
    metric.update([label], [pred])
    want = -np.log(np.array([0.5, 0.25, 0]) + 1e-12).mean()
    assert metric.get() == ("nll-loss", pytest.approx(want, rel=1e-5))
    metric = mx.metric.create("perplexity", ignore_label=2)
    metric.update([label], [pred])
    assert metric.get() == ("perplexity", pytest.approx(np.sqrt(2 * 4)))
    metric = mx.metric.Perplexity()
    metric.update([mx.nd.array([2, -1])], [mx.nd.array([[0.25, 0.75], [0.5, 0.5]])])
    assert metric.get()[1] == pytest.approx((0.75 * 0.5) ** -0.5)
    with pytest.raises(IndexError, match="'cross-entropy': invalid label 2: expected 0 to 1"):
        mx.metric.CrossEntropy().update([mx.nd.array([2])], [mx.nd.array([[0.25, 0.75]])])
    metric = mx.metric.Perplexity(axis=0)
    metric.update([label], [pred.T])
    assert metric.get()[1] == pytest.approx((2 * 4 * 1e10) ** (1 / 3), rel=1e-5)


def test_metrics_of_numpy_functions():
    assert mx.metric.np(lambda label, pred: 0).name == "custom(<lambda>)"
    metric = mx.metric.np(lambda label, pred: np.abs(label - pred).max(), name="worst")
    metric.update([mx.nd.array([1, 2])], [mx.nd.array([1.5, 2])])
    assert metric.get() == ("worst", 0.5)


def test_registering_bare_and_with_aliases(monkeypatch):
    for home in (mx.init.base, mx.metric.base, mx.optimizer.base):
        monkeypatch.setattr(home, "_REGISTRY", dict(home._REGISTRY))

    @mx.init.register
    class Sevens(mx.init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = 7

    @mx.init.register("eights")
    class Eight(Sevens):
        pass

    @mx.metric.register
    class Always(mx.metric.Loss):
        pass

    @mx.metric.register("never")
    class Other(mx.metric.Loss):
        pass

    @mx.optimizer.Optimizer.register
    class Idle(mx.optimizer.SGD):
        pass

    assert isinstance(mx.init.create("sevens"), Sevens)
    assert isinstance(mx.init.create("eights"), Eight)
    assert isinstance(mx.init.create("eight"), Eight)
    assert isinstance(mx.metric.create("always"), Always)
    assert isinstance(mx.metric.create("never"), Other)
    assert isinstance(mx.optimizer.Optimizer.create_optimizer("idle"), Idle)


def test_seed_takes_numbers_of_numpy():
    mx.random.seed(np.int64(3))
    x = mx.nd.random.uniform(shape=(4,)).asnumpy()
    mx.random.seed(3)
    assert (mx.nd.random.uniform(shape=(4,)).asnumpy() == x).all()
    with pytest.raises(ValueError, match=r"2\.5"):
        mx.random.seed(2.5)


def test_metric_refuses_lengths_that_differ():
    with pytest.raises(ValueError, match="invalid number of labels"):
        mx.metric.Accuracy().update([mx.nd.array([1, 2])], [mx.nd.array([[0.1, 0.9]])])


def epochs(batches, count):
    out = []
    for _ in range(count):
        out.append([(b.data[0].asnumpy().astype(int).tolist(), b.pad) for b in batches])
        batches.reset()
    return out


def test_iterator_pads():
    it = mx.io.NDArrayIter(np.arange(3), batch_size=8)
    assert epochs(it, 2) == [[([0, 1, 2, 0, 1, 2, 0, 1], 5)]] * 2


def test_iterator_discards():
    it = mx.io.NDArrayIter(np.arange(10), batch_size=4, last_batch_handle="discard")
    assert epochs(it, 2) == [[([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0)]] * 2


def test_iterator_rolls_over():
    it = mx.io.NDArrayIter(np.arange(10), batch_size=4, last_batch_handle="roll_over")
    assert epochs(it, 3) == [
        [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0)],
        [([8, 9, 0, 1], 2), ([2, 3, 4, 5], 0), ([6, 7, 8, 9], 0)],
        [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0)],
    ]
    it = mx.io.NDArrayIter(np.arange(9), batch_size=4, last_batch_handle="roll_over")
    assert [epoch[0] for epoch in epochs(it, 4)] == [
        ([0, 1, 2, 3], 0),
        ([8, 0, 1, 2], 1),  # pad: the rows of the epoch before
        ([7, 8, 0, 1], 2),
        ([6, 7, 8, 0], 3),
    ]


def test_iterator_shuffles_rows_together():
    np.random.seed(0)
    data = np.arange(12).reshape(6, 2)
    it = mx.io.NDArrayIter(data, data[:, 0], batch_size=2, shuffle=True)
    seen = []
    for batch in it:
        rows = batch.data[0].asnumpy()
        np.testing.assert_array_equal(rows[:, 0], batch.label[0].asnumpy())
        seen += rows[:, 0].astype(int).tolist()
    assert sorted(seen) == [0, 2, 4, 6, 8, 10] and seen != sorted(seen)


def test_iterator_descriptions():
    it = mx.io.NDArrayIter({"b": np.zeros((4, 3)), "a": np.zeros((4, 2))}, np.zeros(4), 2)
    assert [tuple(d) for d in it.provide_data] == [("a", (2, 2)), ("b", (2, 3))]
    assert [tuple(d) for d in it.provide_label] == [("softmax_label", (2,))]
    with pytest.raises(ValueError, match="invalid numbers of rows"):
        mx.io.NDArrayIter(np.zeros((3, 2)), np.zeros(4))


# Weights after eight steps of MXNet 1.9.1 with gradients that grow, two parameters, wd = 0.01.
LARGE_BATCH = [
    ("lamb", {}, [0.9829477, -1.9827747, 2.982602], [0.49682915, 0.25314662]),
    ("lamb", {"lower_bound": 0.1, "upper_bound": 2.0, "bias_correction": False},
     [0.99078155, -1.9907627, 2.9907436], [0.4968387, 0.25315627]),
    ("lars", {"momentum": 0.9}, [0.9998011, -1.9996022, 2.9990218], [0.49984765, 0.25004992]),
    ("lars", {}, [0.99994487, -1.9998897, 2.9997275], [0.49995756, 0.25001395]),
    ("lbsgd", {}, [0.9632085, -1.926417, 2.8176422], [0.3916253, 0.28579164]),
    ("lbsgd", {"momentum": 0.9, "batch_scale": 3, "updates_per_epoch": 2, "warmup_epochs": 2},
     [0.9747266, -1.9494532, 2.8751829], [0.42611703, 0.27430478]),
    ("lbsgd", {"batch_scale": 4, "warmup_strategy": "power2", "updates_per_epoch": 3},
     [0.9846139, -1.9692278, 2.9236827], [0.45460838, 0.2650028]),
    ("lbsgd", {"batch_scale": 4, "warmup_strategy": "sqrt", "updates_per_epoch": 3},
     [0.9723143, -1.9446286, 2.8627195], [0.41837785, 0.27696824]),
    ("lbsgd", {"batch_scale": 2, "warmup_strategy": "lars"},
     [0.97306675, -1.9461335, 2.8669603], [0.47894767, 0.25692502]),
    ("ccsgd", {"momentum": 0.9}, [0.89584374, -1.7916875, 2.4849641], [0.19471267, 0.35056558]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "first", "second"), LARGE_BATCH)
def test_optimizers_of_large_batches_step_as_mxnet(name, options, first, second):
    update = mx.optimizer.get_updater(mx.optimizer.create(name, **{"wd": 0.01} | options))
    w, b = mx.nd.array([1, -2, 3]), mx.nd.array([0.5, 0.25])
    for t in range(1, 9):
        update(0, mx.nd.array([0.1, -0.2, 0.5]) * t, w)
        update(1, mx.nd.array([0.3, -0.1]) * t, b)
    np.testing.assert_allclose(w.asnumpy(), first, rtol=2e-6)
    np.testing.assert_allclose(b.asnumpy(), second, rtol=2e-6)


def test_langevin_dynamics_sample_around_the_minimum():
    """For the energy w²/2 samples are distributed as N(0, 1)."""
    update = mx.optimizer.get_updater(mx.optimizer.SGLD(learning_rate=0.1))
    w = mx.nd.zeros((4000,))
    for _ in range(100):
        update(0, w, w)
    values = w.asnumpy()
    assert abs(values.mean()) < 0.1 and abs(values.std() - 1) < 0.1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"warmup_steps": -1}, "invalid warmup_steps -1: expected at least 0"),
        ({"base_lr": 0.1, "warmup_begin_lr": 1}, "invalid warmup_begin_lr 1: expected at most"),
        ({"warmup_mode": "x"}, "invalid warmup_mode 'x': expected 'linear' or 'constant'"),
    ],
)
def test_warm_ups_that_cannot_be(options, says):
    with pytest.raises(ValueError, match=says):
        mx.lr_scheduler.CosineScheduler(5, **options)
