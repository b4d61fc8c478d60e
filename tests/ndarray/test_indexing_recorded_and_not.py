"""`x[key]` is the same inside and outside of `record()`, and as NumPy has it; single elements."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rsnet as mx
from rsnet import autograd, nd

BOUND = st.none() | st.integers(-9, 9)
STEP = st.sampled_from([None, 1, 2, 3, -1, -2, -3])


@st.composite
def arrays_and_keys(draw):
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    parts = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        index = st.integers(-extent, extent - 1)
        parts.append(draw(st.builds(slice, BOUND, BOUND, STEP) | index))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), None)
    if len(parts) < len(shape) and draw(st.booleans()):
        parts.append(Ellipsis)
    return shape, parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


def recorded(x, key):
    x.attach_grad()
    with autograd.record():
        y = x[key]
    y.backward()
    return y, x.grad


@settings(max_examples=200, deadline=None)
@given(arrays_and_keys(), st.booleans())
def test_all_ways_agree_with_numpy(case, np_shape):
    shape, key = case
    values = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    want, slope = values[key], np.zeros(shape)
    slope[key] = 1
    if want.ndim == 0 and not np_shape:
        want = want.reshape(1)
    with mx.util.np_shape(np_shape):
        plain = nd.array(values)[key]
        got, grad = recorded(nd.array(values), key)
    for y in (plain, got):
        assert y.shape == want.shape
        assert (y.asnumpy() == want).all()
    assert (grad.asnumpy() == slope).all()


@settings(max_examples=100, deadline=None)
@given(arrays_and_keys())
def test_assigning_agrees_with_numpy(case):
    shape, key = case
    values = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    x, y = nd.array(values), nd.array(values)
    part = -1 - np.arange(values[key].size, dtype="float32").reshape(values[key].shape)
    values[key] = part
    x[key] = part
    assert (x.asnumpy() == values).all()
    source = nd.array(part)
    source.attach_grad()
    with autograd.record():
        y[key] = source * 1
    assert (y.asnumpy() == values).all()


SINGLE = [
    (nd.arange(3), 0),
    (nd.arange(3), -1),
    (nd.arange(3), (0,)),
    (nd.arange(3), np.int64(1)),
    (nd.arange(4).reshape((2, 2)), (1, 1)),
    (nd.arange(4).reshape((2, 2)), (0, 0, Ellipsis)),
    (nd.arange(3), np.array(0)),
]


@pytest.mark.parametrize(("x", "key"), SINGLE)
def test_a_single_element_has_one_axis_unless_shapes_are_those_of_numpy(x, key):
    x = x.copy()
    for on, shape in ((False, (1,)), (True, ())):
        with mx.util.np_shape(on):
            assert x[key].shape == shape
            assert recorded(x.copy(), key)[0].shape == shape


def test_a_single_element_works_everywhere(tmp_path):
    x = nd.array([1, 2, 3])[0]
    assert len(x) == 1
    assert nd.concat(x, x, dim=0).asnumpy().tolist() == [1, 1]
    assert nd.dot(x, x).asscalar() == 1
    assert pickle.loads(pickle.dumps(x)).shape == (1,)
    nd.save(str(tmp_path / "x"), [x])
    assert nd.load(str(tmp_path / "x"))[0].shape == (1,)
    x[:] = 5
    assert x.asscalar() == 5


def test_a_single_element_shares_memory():
    x = nd.array([1, 2, 3])
    x[1][:] = 7
    assert x.asnumpy().tolist() == [1, 7, 3]


def test_an_array_of_a_number_has_no_axis():
    for value in (3, 3.5, np.float32(3), np.array(3), True, nd.array(3)):
        x = nd.array(value)
        assert x.shape == () and x.asnumpy().shape == ()
        assert x.asscalar() == value if not isinstance(value, nd.NDArray) else 3
    x = nd.array(3)
    assert (x + 1).asscalar() == 4 and pickle.loads(pickle.dumps(x)).shape == ()
    y = nd.array([2.0])
    y.attach_grad()
    with autograd.record():
        z = y * y
    z.backward(nd.array(1.0))
    assert y.grad.asscalar() == 4
