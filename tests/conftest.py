"""Makes the tests' own modules importable and every run repeatable."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

# No deadline: the first call of an example pays for imports and thread pools.
settings.register_profile("rsnet", deadline=None, derandomize=True)
settings.load_profile("rsnet")


@pytest.fixture(autouse=True)
def seeded():
    """The same random numbers for a test whichever others run."""
    np.random.seed(0)
    import rsnet as mx

    mx.random.seed(0)
