"""Makes the tests' own modules importable and every run repeatable."""

import contextlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import rsnet as mx

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import operators  # noqa: F401  (lists what is registered before tests add to it)

# No deadline: the first call of an example pays for imports and thread pools.
settings.register_profile("rsnet", deadline=None, derandomize=True)
settings.register_profile(
    "fuzz", deadline=None, derandomize=False, max_examples=int(os.environ.get("FUZZ_CASES", "1000"))
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "rsnet"))


@pytest.fixture(autouse=True)
def seeded():
    """The same random numbers for a test whichever others run."""
    np.random.seed(0)
    mx.random.seed(0)
    yield
    with contextlib.suppress(Exception):
        mx.nd.waitall()  # what failed in one test is not reported in the next
