"""Optimizers with rates of their own, under a schedule: the numbers of MXNet 1.9.1."""

import pickle

import numpy as np
import pytest

import rsnet as mx

LARS = {"momentum": 0.9, "eta": 0.1}
HALF = {"dtype": "float16", "scheduled": False}

# Name, options, how it is called, and three of five parameters after eight steps of MXNet 1.9.1.
TRAINED = [
    ("lars", LARS, {}, [[0.85237753, -1.8997934, 2.3620937],
     [0.713458, -0.68039614, 4.4673777], [0.15251546, 4.7798767, 2.7625785]]),
    ("lars", LARS, {"together": True}, [[0.85237753, -1.8997934, 2.3620937],
     [0.84125888, -1.2620001, 5.1526828], [0.15251546, 4.7798767, 2.7625785]]),
    ("lars", LARS | {"momentum_correction": False}, {}, [[0.73325729, -1.8131857, 1.8531007],
     [0.713458, -0.68039614, 4.4673777], [0.15251546, 4.7798767, 2.7625785]]),
    ("lars", LARS, {"dtype": "float64"}, [[0.85237748, -1.8997935, 2.3620939],
     [0.71345797, -0.68039629, 4.4673777], [0.15251553, 4.7798757, 2.7625777]]),
    ("lbsgd", {"momentum": 0.9, "batch_scale": 2}, {}, [[0.6180017, -1.7826985, 1.3073099],
     [0.6180017, -0.14261311, 3.9813578], [0.72442222, 0.20462215, 5.6221113]]),
    ("lbsgd", {"momentum": 0.9, "batch_scale": 2, "multi_precision": True}, HALF,
     [[0.16088867, -1.640625, -0.83740234], [0.16088867, 2.3183594, 1.6230469],
      [0.3269043, 3.3847656, 3.6347656]]),
    ("lbsgd", {"batch_scale": 2, "begin_num_update": 150}, {"scheduled": False},
     [[0.55348003, -1.8400346, 0.92736584], [0.55348003, 0.35918862, 3.687418],
      [0.62625003, 0.99000013, 5.1312504]]),
    ("ftrl", {"lamda1": 0.1}, {}, [[-0.039236132, 0.0, 0.088547394],
     [-0.039236132, -0.028978461, 0.30808818], [-0.039279025, -0.055218805, 0.38612857]]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "call", "expected"), TRAINED)
def test_steps_are_those_of_mxnet(name, options, call, expected):
    call = {"together": False, "dtype": "float32", "scheduled": True} | call
    rate = {"learning_rate": 0.2}
    if call["scheduled"]:
        rate = {"lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.2)}
    names = dict(enumerate(["a_weight", "b_weight", "c_weight", "d_weight", "e_bias"]))
    optimizer = mx.optimizer.create(name, param_idx2name=names, wd=0.1, **options, **rate)
    update = mx.optimizer.get_updater(optimizer)
    weights = [mx.nd.array([1, -2, 3 + i], dtype=call["dtype"]) for i in range(5)]
    for t in range(1, 9):
        grads = [mx.nd.array([0.1, -0.2 * i, 0.5], dtype=call["dtype"]) * t for i in range(5)]
        if call["together"]:
            update(list(range(5)), grads, weights)
            continue
        for i in range(5):
            update(i, grads[i], weights[i])
    found = [weights[i].asnumpy() for i in (0, 3, 4)]
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_a_schedule_keeps_the_rate_of_ftrl():
    schedule = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.2)
    assert mx.optimizer.create("ftrl", lr_scheduler=schedule).learning_rate == 0.2
    assert mx.optimizer.create("ftrl").learning_rate == 0.1
    with pytest.raises(TypeError, match="optimizer Ftrl: invalid learning_rate 'x'"):
        mx.optimizer.create("ftrl", learning_rate="x")


def test_lars_takes_weights_of_any_device():
    weights = [mx.nd.ones((2,), ctx=mx.cpu(1)) for _ in range(2)]
    update = mx.optimizer.get_updater(mx.optimizer.LARS(momentum=0.9, param_idx2name={0: "a_bias"}))
    for i, weight in enumerate(weights):
        update(i, weight * 1, weight)
        assert weight.context == mx.cpu(1) and (weight.asnumpy() < 1).all()


@pytest.mark.parametrize("other", [7, [1], (), (1, 2, 3), ({}, 1, 2), ({}, 7)])
def test_pickles_of_something_else_are_no_states(other):
    update = mx.optimizer.get_updater(mx.optimizer.SGD())
    with pytest.raises(ValueError, match="invalid states of type"):
        update.set_states(pickle.dumps(other))
    assert update.states == {}


@pytest.mark.parametrize(
    "damaged",
    [b"\x80\x04X\1\0\0\0aX\1\0\0\0b\x85R.", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", b"("],
    ids=["a call of text", "a frame beyond memory", "cut short"],
)
def test_damaged_states_are_errors_of_values(damaged):
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd"))
    with pytest.raises(ValueError, match="invalid states: expected what get_states"):
        updater.set_states(damaged)


def test_a_damaged_file_of_states_is_named(tmp_path):
    path = tmp_path / "x.states"
    path.write_bytes(b"(")
    param = mx.gluon.Parameter("w", shape=(2,))
    param.initialize()
    trainer = mx.gluon.Trainer([param], "sgd")
    with pytest.raises(mx.MXNetError, match=r"x\.states': invalid states: expected"):
        trainer.load_states(str(path))


def test_a_schedule_catches_up_at_once():
    """As step by step; a billion steps take no longer than one."""
    options = {"step": 3, "factor": 0.7, "base_lr": 0.5, "stop_factor_lr": 1e-3}
    stepwise = mx.lr_scheduler.FactorScheduler(**options)
    for update in range(1, 60):
        one = stepwise(update)
        resumed = mx.lr_scheduler.FactorScheduler(**options)(update)
        assert resumed == pytest.approx(one, rel=1e-12)
        assert one == pytest.approx(max(0.5 * 0.7 ** ((update - 1) // 3), 1e-3), rel=1e-12)
    assert one == resumed == 1e-3
    slow = mx.lr_scheduler.FactorScheduler(1, 1 - 1e-9, base_lr=1.0)
    assert slow(10**9 + 1) == pytest.approx(np.exp(-1))


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("multi_precision", [False, True])
def test_states_from_before_a_cast_are_named(name, multi_precision):
    param = mx.gluon.Parameter("w", shape=(2,))
    param.initialize()
    options = {"multi_precision": multi_precision}
    if name == "sgd":
        options["momentum"] = 0.9

    def step(trainer):
        with mx.autograd.record():
            loss = param.data() * 2
        loss.backward()
        trainer.step(1)

    trainer = mx.gluon.Trainer([param], name, dict(options))
    step(trainer)
    param.cast("float16")
    with pytest.raises(
        ValueError, match="invalid state of parameter 'w': expected .* older than a cast"
    ):
        step(trainer)
    step(mx.gluon.Trainer([param], name, dict(options)))


def test_lars_measures_the_half_precision_weight():
    """As MXNet, though its float32 copy is what is stepped."""
    weight = mx.nd.ones((2,), dtype="float16")
    grad = mx.nd.array([1, 2], dtype="float16")
    lars = mx.optimizer.create("lars", learning_rate=0.1, multi_precision=True)
    updater = mx.optimizer.get_updater(lars)
    updater(0, grad, weight)
    weight[:] = 5
    updater(0, grad, weight)
    np.testing.assert_allclose(weight.asnumpy(), [0.9995, 0.999], rtol=1e-4)  # MXNet 1.9.1
