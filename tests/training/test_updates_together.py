"""Optimizers that are given all parameters at once: one operator, the same numbers.

With `MXNET_PYTHON` naming a Python that has MXNet, also those of MXNet after twenty steps.
"""

import os
import subprocess

import numpy as np
import pytest
from places import SUPPORT
from twenty_updates import OPTIMIZERS, SHAPES, trained

import rsnet as mx
from rsnet import nd

SCRIPT = SUPPORT / "twenty_updates.py"
PYTHON = os.environ.get("MXNET_PYTHON")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_together_is_as_in_turn(kind):
    for one, other in zip(trained(mx, kind, True), trained(mx, kind, False), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("options", "operator"),
    [
        ({}, "multi_sgd_update"),
        ({"momentum": 0.9}, "multi_sgd_mom_update"),
        ({"multi_precision": True}, "multi_mp_sgd_update"),
        ({"multi_precision": True, "momentum": 0.9}, "multi_mp_sgd_mom_update"),
    ],
)
def test_one_operator_updates_all(monkeypatch, options, operator):
    calls, own = [], getattr(nd, operator)

    def counted(*arrays, **params):
        calls.append(params["num_weights"])
        return own(*arrays, **params)

    monkeypatch.setattr(nd, operator, counted)
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", **options))
    dtype = "float16" if "multi_precision" in options else "float32"
    weights = [nd.ones(s, dtype=dtype) for s in SHAPES]
    updater([0, 1, 2], weights, weights)
    assert calls == [3]


def test_dtypes_are_updated_apart():
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=0.5))
    weights = [nd.ones((2,), dtype=d) for d in ("float32", "float64", "float32", "float16")]
    updater([0, 1, 2, 3], [w.copy() for w in weights], weights)
    assert [w.asnumpy().tolist() for w in weights] == [[0.5, 0.5]] * 4


def test_a_rule_of_a_subclass_is_kept():
    class Halves(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            weight[:] = weight * 0.5

    updater = mx.optimizer.get_updater(Halves())
    weights = [nd.ones((2,)), nd.ones((3,))]
    updater([0, 1], weights, weights)
    assert [w.asnumpy().tolist() for w in weights] == [[0.5] * 2, [0.5] * 3]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(not PYTHON, reason="MXNET_PYTHON names no Python with MXNet")
def test_twenty_steps_are_those_of_mxnet(tmp_path):
    path = tmp_path / "mxnet.npz"
    command = [PYTHON, "-W", "ignore", str(SCRIPT), "mxnet", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    with np.load(path) as theirs:
        for kind in OPTIMIZERS:
            for i, ours in enumerate(trained(mx, kind, True)):
                close = 2e-3 if ours.dtype == "float16" else 1e-5
                np.testing.assert_allclose(ours, theirs[f"{kind} {i}"], close, close, err_msg=kind)
