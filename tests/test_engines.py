"""Threads, the naive engine and memory plans must not change a single bit of any result."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "run_cases.py"


def run(out, **environment):
    subprocess.run(
        [sys.executable, str(SCRIPT), str(out)], check=True, env=os.environ | environment
    )
    with np.load(out) as file:
        return dict(file)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return run(tmp_path_factory.mktemp("usual") / "results.npz")


SETTINGS = {
    "naive engine": {"MXNET_ENGINE_TYPE": "NaiveEngine"},
    "one thread": {"RSNET_NUM_THREADS": "1"},
    "no in-place": {"MXNET_EXEC_ENABLE_INPLACE": "0"},
    "no memory sharing": {"RSNET_MEMORY_PLAN": "0"},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_same_bits(setting, usual, tmp_path):
    other = run(tmp_path / "results.npz", **SETTINGS[setting])
    assert other.keys() == usual.keys() and len(usual) > 100
    different = [k for k in usual if not np.array_equal(usual[k], other[k], equal_nan=True)]
    assert not different, f"{setting}: {different[:10]} and {max(len(different) - 10, 0)} more"
