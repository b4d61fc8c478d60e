"""Boolean masks of NumPy, and lists of bools, as indices: NumPy's own rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import rsnet as mx
from rsnet import nd

SHAPE = (2, 3, 4)
VALUES = np.arange(24, dtype="float32").reshape(SHAPE)


@st.composite
def keys(draw):
    """A mask over one axis or several, between other parts of a key."""
    first = draw(st.integers(0, 2))
    last = draw(st.integers(first, 2))
    mask = draw(npst.arrays(bool, SHAPE[first : last + 1]))
    before = [draw(st.sampled_from([slice(None), slice(1, None)])) for _ in range(first)]
    after = [draw(st.sampled_from([slice(None), slice(0, 1), None]))] if last < 2 else []
    key = (*before, mask.tolist() if mask.ndim == 1 and draw(st.booleans()) else mask, *after)
    return key[0] if len(key) == 1 else key


@given(keys(), st.booleans())
def test_masks_select_as_in_numpy(key, recorded):
    x = nd.array(VALUES)
    x.attach_grad()
    expected = VALUES[key]
    if recorded:
        with mx.autograd.record():
            y = x[key]
    else:
        y = x[key]
    assert y.shape == expected.shape
    np.testing.assert_array_equal(y.asnumpy(), expected)


@given(keys(), st.sampled_from([7.0, "part"]))
def test_masks_assign_as_in_numpy(key, value):
    x, expected = nd.array(VALUES), VALUES.copy()
    value = -expected[key] if value == "part" else value
    x[key] = value
    expected[key] = value
    np.testing.assert_array_equal(x.asnumpy(), expected)


def test_gradients_flow_to_what_a_mask_selects():
    x = nd.array([1, 2, 3, 4])
    x.attach_grad()
    with mx.autograd.record():
        y = (x[x.asnumpy() > 2] * 3).sum()
    y.backward()
    assert x.grad.asnumpy().tolist() == [0, 0, 3, 3]


def test_masks_that_do_not_fit_are_refused():
    x = nd.array(VALUES)
    for key in ([True, False, True], np.ones((2, 2), bool), (np.ones(SHAPE, bool), 0)):
        with pytest.raises(IndexError, match="boolean index did not match|too many indices"):
            x[key]
    with pytest.raises(ValueError, match=r"a boolean mask, .* expected mask.asnumpy\(\)"):
        x[nd.array(VALUES > 2, dtype=bool)]
