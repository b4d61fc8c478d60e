"""Extents of 0 and arrays without axes, within `np_shape` and without."""

import pickle

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd


@pytest.mark.parametrize("shape", [(0, 3), (0,), ()])
def test_unknown_extents_cannot_be_created(shape):
    for make in (nd.zeros, nd.ones):
        with pytest.raises(mx.MXNetError, match="expected extents of at least 1"):
            make(shape)
    for made in (nd.empty(shape, dtype="int32"), nd.full(shape, 3, dtype="int32")):
        assert made.shape == shape and made.dtype == np.int32
    for make in (nd.empty, nd.zeros):
        with pytest.raises(mx.MXNetError, match=r"invalid shape \(2, -1\): expected extents"):
            make((2, -1))


@pytest.mark.parametrize(
    "draw", [nd.random.uniform, nd.random.normal, nd.random.gamma, nd.random.poisson]
)
def test_unknown_extents_cannot_be_drawn(draw):
    with pytest.raises(mx.MXNetError, match="expected extents of at least 1"):
        draw(shape=())
    with mx.np_shape():
        assert draw(shape=()).shape == ()
    ones = nd.ones((2,))
    assert nd.random.normal(ones, ones, shape=()).shape == (2,)  # one for each


@pytest.mark.parametrize("bad", ["x", None, 1.0, (True,)])
def test_switches_take_true_or_false(bad):
    with pytest.raises(TypeError, match="set_np_shape: invalid active"):
        mx.util.set_np_shape(bad)
    with pytest.raises(TypeError, match="invalid active"), mx.np_shape(bad):
        pass
    assert not mx.is_np_shape()
    for good in (True, 1, np.True_):
        assert not mx.util.set_np_shape(good) and mx.util.set_np_shape(False)


@pytest.mark.parametrize("bad", [3, None, "x"])
def test_only_functions_and_classes_are_decorated(bad):
    with pytest.raises(TypeError, match="use_np_shape: invalid func"):
        mx.use_np_shape(bad)


@pytest.mark.parametrize("made_within", [False, True])
@pytest.mark.parametrize("shape", [(0, 3), (), (2,)])
def test_pickles_load_whether_np_shape_is_on(made_within, shape):
    with mx.util.np_shape(made_within):
        text = pickle.dumps(nd.full(shape, 2))
    for loaded_within in (False, True):
        with mx.util.np_shape(loaded_within):
            loaded = pickle.loads(text)
        assert loaded.shape == shape and (loaded.asnumpy() == 2).all()


def test_np_shape_makes_and_saves_empty_arrays_and_scalars(tmp_path):
    path = tmp_path / "x.params"
    with mx.util.np_shape(True):
        for make, value in ((nd.zeros, 0), (nd.ones, 1)):
            for shape in ((0, 3), (), (2, 0), (2,)):
                x = make(shape)
                assert x.shape == shape
                np.testing.assert_array_equal(x.asnumpy(), np.full(shape, value))
        assert nd.full((), 7).asnumpy() == 7 and nd.array(2.5).shape == ()
        assert (nd.ones(()) + 1).asnumpy() == 2
        with pytest.raises(mx.MXNetError, match="expected extents of at least 0"):
            nd.zeros((-1, 3))
        scalar = nd.ones(())
        nd.save(path, {"scalar": scalar, "empty": nd.zeros((0, 3))})
        loaded = nd.load(path)
        assert loaded["scalar"].shape == () and loaded["empty"].shape == (0, 3)
    assert path.read_bytes()[24:28] == bytes.fromhex("cafa93f9")
    with pytest.raises(mx.MXNetError, match="within np_shape"):
        nd.load(path)
    with pytest.raises(mx.MXNetError, match=r"invalid shape \(\) to save: .* without np_shape"):
        nd.save(path, [scalar])
    nd.save(path, [nd.ones((2,))])
    with mx.util.np_shape(True), pytest.raises(mx.MXNetError, match="without np_shape"):
        nd.load(path)


def test_nothing_has_no_greatest_element():
    with mx.util.np_shape(True):
        empty = nd.zeros((0, 2))
        for call in (empty.max, lambda: empty.min(axis=0), lambda: nd._internal._np_max(empty)):
            with pytest.raises(mx.MXNetError, match="at least one element to choose from"):
                call().asnumpy()
        assert empty.max(axis=1).shape == (0,)
