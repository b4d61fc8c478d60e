"""The tests here run on the CUDA driver that `RSNET_LIBCUDA` names: `make test-cuda`.

A process has one driver for its life, and other tests expect that there is none; so without the
variable nothing here is collected. `tests/contracts/test_cuda.py` runs a third of the cases in a
process.
"""

import collections
import contextlib
import ctypes
import os
import time

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd

collect_ignore_glob = [] if os.environ.get("RSNET_LIBCUDA") else ["test_*.py"]


def pytest_collection_modifyitems(config, items):
    """Any test may be the first to need a kernel, which a compiler in a process makes then.

    RSNET_EVERY_CASE=3 keeps every third case of a parametrized test.
    """
    every = int(os.environ.get("RSNET_EVERY_CASE", "1"))
    cases = collections.Counter()
    kept, left_out = [], []
    for item in items:
        place = kept
        if "tests/cuda" in str(item.path):
            item.add_marker(pytest.mark.process)
            name = item.nodeid.partition("[")[0]
            place = left_out if cases[name] % every else kept
            cases[name] += 1
        place.append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


class Emulated:
    """What the emulated driver says of itself."""

    def __init__(self):
        self.library = ctypes.CDLL(os.environ["RSNET_LIBCUDA"])
        counts = ("live", "pinned", "queued", "products", "replays", "graphs")
        for name in (f"emulated_{what}" for what in counts):
            getattr(self.library, name).restype = ctypes.c_size_t

    def live_bytes(self):
        """Bytes of device memory that were not freed."""
        return self.library.emulated_live()

    def pinned_bytes(self):
        """Bytes of page-locked memory that were not freed."""
        return self.library.emulated_pinned()

    def products(self):
        """Products of matrices by cuBLAS so far."""
        return self.library.emulated_products()

    def replays(self):
        """Graphs of recorded work that were launched so far."""
        return self.library.emulated_replays()

    def graphs(self):
        """Graphs that were not destroyed."""
        return self.library.emulated_graphs()

    @contextlib.contextmanager
    def held(self, device=0):
        """The device computes nothing meanwhile; copies go on. Yields what counts its work."""
        stream = ctypes.c_void_p(mx.cuda.device(device).stream)
        self.library.emulated_hold(stream, 1)
        try:
            yield lambda: self.library.emulated_queued(stream)
        finally:
            self.library.emulated_hold(stream, 0)


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


#: How far results of a kernel may be from the host's, relative to the greatest of them: products
#: and sums are taken in another order, and functions are another library's.
NEAR = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-10}


def first_of(*values):
    """Values of a parameter of which the first is tried always, the others where time allows."""
    slow = [pytest.param(value, marks=pytest.mark.slow) for value in values[1:]]
    return [values[0], *slow]


def until(condition):
    """Waits for something that has to happen; a test that waits in vain ends by its limit."""
    while not condition():
        time.sleep(0.001)


def compare(call, *arrays, req="write", train=True, near=None):
    """Results and gradients of a call on the device are those on the host, and from kernels."""
    found, before = [], mx.cuda.operators_on_host()
    for ctx in (mx.gpu(0), mx.cpu(0)):
        mx.random.seed(11)
        inputs = [nd.array(a, ctx, a.dtype) for a in arrays]
        for array in inputs:
            array.attach_grad(req)
            array.grad[:] = 2
        with mx.autograd.record(train_mode=train):
            outs = call(*inputs)
        outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        heads = [np.arange(1, 1 + o.size).reshape(o.shape) / max(o.size, 1) for o in outs]
        heads = [nd.array(h, ctx, o.dtype) for h, o in zip(heads, outs, strict=True)]
        mx.autograd.backward(outs, heads)
        found.append([a.asnumpy() for a in outs + [a.grad for a in inputs]])
    for got, want in zip(*found, strict=True):
        (near or assert_near)(got, want)
    assert mx.cuda.operators_on_host() == before


def assert_near(got, want):
    """Results of a device are those of the host, up to rounding."""
    assert got.dtype == want.dtype and got.shape == want.shape
    near = NEAR.get(str(want.dtype))
    if near is None:
        np.testing.assert_array_equal(got, want)
        return
    finite = want[np.isfinite(want)].astype("float64")
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    np.testing.assert_allclose(got, want, rtol=near, atol=near * scale)
