"""The tests here run on the CUDA driver that `RSNET_LIBCUDA` names: `make test-cuda`.

A process has one driver for its life, and other tests expect that there is none; so without the
variable nothing here is collected. `tests/contracts/test_cuda.py` runs them all in a process.
"""

import ctypes
import os

import pytest

import rsnet as mx

collect_ignore_glob = [] if os.environ.get("RSNET_LIBCUDA") else ["test_*.py"]


class Emulated:
    """What the emulated driver says of itself."""

    def __init__(self):
        self.library = ctypes.CDLL(os.environ["RSNET_LIBCUDA"])
        for name in ("emulated_live", "emulated_pinned"):
            getattr(self.library, name).restype = ctypes.c_size_t

    def live_bytes(self):
        """Bytes of device memory that were not freed."""
        return self.library.emulated_live()

    def pinned_bytes(self):
        """Bytes of page-locked memory that were not freed."""
        return self.library.emulated_pinned()


@pytest.fixture
def emulated():
    return Emulated()


@pytest.fixture(autouse=True)
def on_host_is_known():
    """Operators without kernels warn once; tests that are about other things let them."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "operator '.*' has no CUDA kernel", RuntimeWarning)
        yield


@pytest.fixture
def gpu():
    return mx.gpu(0)
