"""Reading and assigning parts of arrays, as NumPy does."""

import tracemalloc

import numpy as np
import pytest
from arrays import counting
from hypothesis import given
from hypothesis import strategies as st

from rsnet import nd

index = st.one_of(
    st.integers(-3, 2),
    st.builds(
        slice,
        st.one_of(st.none(), st.integers(-4, 4)),
        st.one_of(st.none(), st.integers(-4, 4)),
        st.sampled_from([None, 1, 2, -1, -2]),
    ),
    st.none(),
)


@given(st.lists(index, min_size=1, max_size=4), st.integers(0, 4), st.booleans())
def test_basic_indexing_matches_numpy(parts, at, dots):
    values = counting(3, 4, 5)
    if dots:
        parts.insert(min(at, len(parts)), Ellipsis)
    key = tuple(parts)
    x = nd.array(values)
    try:
        want = values[key]
    except IndexError:
        with pytest.raises(IndexError, match="too many indices|is out of bounds for axis"):
            x[key]
        return
    want = want if want.ndim else want.reshape(1)
    got = x[key]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.asnumpy(), want)
    values[key] = -1
    x[key] = -1
    np.testing.assert_array_equal(x.asnumpy(), values)


@pytest.mark.parametrize(
    "key",
    [
        [0, 2],
        ([0, 2], [1, 3]),
        (slice(None), [3, 0]),
        ([[0], [1]], [[1, 2]]),
        (1, [0, 0, 1]),
        (np.array([2, -1]), slice(1, 3)),
        range(2),
    ],
)
def test_advanced_indexing_matches_numpy(key):
    values = counting(3, 4, 5)
    x = nd.array(values)
    numpy_key = list(key) if isinstance(key, range) else key
    np.testing.assert_array_equal(x[key].asnumpy(), values[numpy_key])
    replacement = counting(*values[numpy_key].shape) + 100
    values[numpy_key] = replacement
    x[key] = nd.array(replacement)
    np.testing.assert_array_equal(x.asnumpy(), values)


def test_views_share_memory():
    x = nd.array(counting(4, 3))
    for view in (x[1], x[1:3], x[2:3, 1:3], x.reshape((3, 4)), x[1, :2]):
        assert view._same_memory(x)
        view[:] = 50
        assert 50 in x.asnumpy()
        x[:] = counting(4, 3)
    assert not x[:, 1]._same_memory(x)
    assert x[:] is x and x[()] is x
    assert x[1, 1].shape == (1,)
    assert x[1:1].shape == (0, 3)


def test_index_errors():
    x = nd.zeros((3, 2))
    with pytest.raises(IndexError, match="invalid index 3 of axis 0: expected -3 to 2"):
        x[3]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match="one ellipsis at most"):
        x[..., ...]
    with pytest.raises(ValueError, match="invalid index 'a': expected integers, slices"):
        x["a"]
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
        x[[5]]


def test_assignment_errors_and_broadcasts():
    x = nd.zeros((2, 3))
    with pytest.raises(ValueError, match=r"from shape \(4,\): expected \(2, 3\)"):
        x[:] = np.ones((4,))
    with pytest.raises(TypeError, match="invalid value 'a' to assign"):
        x[:] = "a"
    x[:] = [[1], [2]]
    x[:, 1] = nd.array([7, 8], dtype="int32")
    assert x.asnumpy().tolist() == [[1, 7, 1], [2, 8, 2]]
    x[1:] = x[:1]
    assert x.asnumpy().tolist() == [[1, 7, 1], [1, 7, 1]]
    x[0, ::-1] = x[0]
    assert x.asnumpy().tolist()[0] == [1, 7, 1]


@st.composite
def advanced_keys(draw):
    """A shape and a key for it, one part of which at least is an array."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    joint = draw(st.sampled_from([(), (1,), (3,), (2, 1), (3, 2), (0,)]))
    used = draw(st.integers(1, len(shape)))
    array_at = draw(st.integers(0, used - 1))
    parts = []
    for axis, extent in enumerate(shape[:used]):
        kind = "array" if axis == array_at else draw(st.sampled_from(["array", "slice", "number"]))
        numbers = st.integers(-extent, extent - 1)
        if kind == "array":
            size = int(np.prod(joint))
            chosen = draw(st.lists(numbers, min_size=size, max_size=size))
            parts.append(np.array(chosen, np.int64).reshape(joint))
        elif kind == "slice":
            parts.append(draw(st.sampled_from([slice(None), slice(None, None, -1), slice(1, 3)])))
        else:
            parts.append(draw(numbers))
    for extra in draw(st.sampled_from([(), (None,), (Ellipsis,), (None, Ellipsis)])):
        parts.insert(draw(st.integers(0, len(parts))), extra)
    return shape, tuple(parts)


@given(advanced_keys())
def test_advanced_keys_select_what_numpy_selects(shape_and_key):
    shape, key = shape_and_key
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    want = values[key]
    got = nd.array(values)[key]
    assert got.shape == (want.shape or (1,))
    np.testing.assert_array_equal(got.asnumpy(), np.reshape(want, got.shape))


def test_masks_select_what_numpy_selects():
    values = counting(3, 4, 5)
    x = nd.array(values)
    for key in (values > 30, (values[:, :, 0] > 20, 3), (0, values[0] > 7), values > 999):
        want = values[key]
        np.testing.assert_array_equal(x[key].asnumpy(), want)


def test_an_advanced_key_does_not_number_every_element():
    """The array is not written, so that its memory is only addresses; its numbers were not."""
    x = nd.empty((1 << 18, 100), dtype="int8")
    x[[1, 5], 3:5] = 7
    tracemalloc.start()
    assert x[[1, 5, 5], 3:5].asnumpy().tolist() == [[7, 7]] * 3
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10 << 20


@pytest.mark.parametrize(
    ("key", "source"),
    [
        ([5, 4, 3, 2, 1, 0], lambda x: x),
        ([1, 2, 3], lambda x: x[:3]),
        (np.array([0, 1, 1, 1, 0, 0], bool), lambda x: x[:3]),
        ([[0, 1, 2], [3, 4, 5]], lambda x: x.reshape((2, 3))),
        ([3, 0], lambda x: x[2]),
    ],
)
def test_what_an_advanced_key_assigns_may_share_the_memory(key, source):
    values, x = np.arange(6.0), nd.arange(6)
    values[key] = source(values).copy()
    x[key] = source(x)
    assert x.asnumpy().tolist() == values.tolist()
    rows = nd.array([[0, 1, 2], [3, 4, 5]])
    rows[[1, 0]] = rows
    assert rows.asnumpy().tolist() == [[3, 4, 5], [0, 1, 2]]
    rows[:, [1, 0, 2]] = rows
    assert rows.asnumpy().tolist() == [[4, 3, 5], [1, 0, 2]]
