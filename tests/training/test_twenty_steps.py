"""Twenty steps of training give MXNet's losses: those recorded, and all of them where the
environment variable `MXNET_PYTHON` names an interpreter with MXNet.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "twenty_steps.py"
MXNET = os.environ.get("MXNET_PYTHON")

# Losses of MXNet 1.9.1 at some of the steps of `twenty_steps`.
SEEN = (0, 1, 4, 9, 14, 19)
RECORDED = {
    "mlp": [3.0497726, 2.8904985, 2.7123280, 3.6342643, 2.8726698, 2.5727045],
    "lenet": [2.5305502, 2.8515757, 2.5356942, 2.2863192, 2.8099830, 2.5420249],
    "lstm": [2.3708805, 2.3016353, 2.3196153, 2.3033557, 2.3529284, 2.4033613],
    "resnet20": [3.7866316, 4.1167234, 2.3599883, 3.5734187, 2.4006251, 2.8347999],
}

pytestmark = pytest.mark.process


def losses(command, network):
    done = subprocess.run(
        [*command, str(PROGRAM), network], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("network", RECORDED)
def test_losses_are_those_of_mxnet(network):
    own = losses([sys.executable, "-m", "rsnet.as_mxnet"], network)
    assert own.shape == (20,)
    np.testing.assert_allclose(own[list(SEEN)], RECORDED[network], rtol=1e-5)
    if MXNET is not None:
        np.testing.assert_allclose(own, losses([MXNET], network), rtol=1e-5)
