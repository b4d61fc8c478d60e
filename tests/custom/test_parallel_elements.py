"""``op.launch`` and ``op.map``: every element once, errors, requests."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsnet import MXNetError, engine, nd, op


@settings(max_examples=30, deadline=None)
@given(n=st.integers(0, 5000), grain=st.integers(1, 700))
def test_ranges_cover_every_number_once(n, grain):
    seen, lock = [], threading.Lock()

    def part(begin, end):
        with lock:
            seen.append((begin, end))

    op.launch(part, n, grain=grain)
    numbers = [i for begin, end in sorted(seen) for i in range(begin, end)]
    assert numbers == list(range(n)) and len(seen) <= engine.num_threads()


def test_an_error_of_a_part_is_raised_after_all_have_ended():
    ended, lock = [], threading.Lock()

    def part(begin, end):
        with lock:
            ended.append(begin)
        if begin == 0 or end == 100:
            raise KeyError(begin)

    with pytest.raises(KeyError, match="0"):
        op.launch(part, 100, grain=1)
    assert len(ended) == min(100, engine.num_threads())
    nd.waitall()  # the error of a part is not raised again


@pytest.mark.parametrize("views", ["numpy", "ndarray"])
@pytest.mark.parametrize("req", ["null", "write", "inplace", "add"])
def test_map_computes_elements_and_honours_requests(views, req):
    x, y = np.random.rand(300, 7).astype("float32"), np.random.rand(300, 7).astype("float32")
    arrays = [x, y] if views == "numpy" else [nd.array(x), nd.array(y)]
    out = np.ones_like(x) if views == "numpy" else nd.ones(x.shape)
    op.map(lambda a, b: a * b, out, *arrays, req=req, grain=10)
    result = out if views == "numpy" else out.asnumpy()
    want = {"null": np.ones_like(x), "add": 1 + x * y}.get(req, x * y)
    np.testing.assert_allclose(result, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: op.launch(print, -1), "launch: invalid n -1: expected an integer of 0 or more"),
        (lambda: op.launch(print, 5, grain=0), "launch: invalid grain 0: expected"),
        (lambda: op.map(np.add, nd.ones((2,)), nd.ones((3,))), r"invalid shape of input 0 \(3,\)"),
    ],
)
def test_mistakes(call, says):
    with pytest.raises(MXNetError, match=says):
        call()


@pytest.mark.parametrize("value", [None, 1j, "text"])
def test_a_function_that_returns_no_real_numbers_is_refused(value):
    out, source = np.zeros(3, "float32"), np.ones(3, "float32")
    with pytest.raises(
        MXNetError, match="map: invalid dtype of the result of f .*: expected float32"
    ):
        op.map(lambda x: value, out, source)
    assert not out.any()
