"""Twenty steps of training give MXNet's losses, where an interpreter with MXNet is at hand.

The environment variable `MXNET_PYTHON` names it.
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

pytestmark = pytest.mark.process


def losses(command, network):
    done = subprocess.run(
        [*command, str(PROGRAM), network], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("network", ["mlp", "lenet", "lstm", "resnet20"])
def test_losses_are_those_of_mxnet(network):
    own = losses([sys.executable, "-m", "rsnet.as_mxnet"], network)
    assert own.shape == (20,) and np.isfinite(own).all()
    if MXNET is None:
        pytest.skip("MXNET_PYTHON does not name an interpreter with MXNet")
    np.testing.assert_allclose(own, losses([MXNET], network), rtol=1e-5)
