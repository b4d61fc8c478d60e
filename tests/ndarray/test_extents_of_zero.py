"""Methods of arrays without elements, within `np_shape`: 0 is an extent there, no code."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, sym


@pytest.fixture(autouse=True)
def zero_is_an_extent():
    with mx.np_shape(True):
        yield


@pytest.fixture(params=[False, True], ids=["plain", "recorded"])
def calculated(request):
    """What a function gives for zeros of a shape, whose gradients must have that shape."""

    def shape_of(shape, function):
        x = nd.zeros(shape)
        if not request.param:
            return function(x).shape
        x.attach_grad()
        with mx.autograd.record():
            y = function(x)
        y.backward()
        assert x.grad.shape == shape
        return y.shape

    return shape_of


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((0, 3), (2, 0, 3)),
        ((2, 0), (3, 2, 0)),
        ((1,), (0,)),
        ((), (0,)),
        ((1, 3), (0, 3)),
        ((3,), (0, 3)),
        ((1, 3), (2, 0, 3)),
        ((0, 1), (4, 0, 5)),
    ],
)
def test_arrays_are_broadcast_to_extents_of_zero(calculated, source, target):
    assert np.broadcast_to(np.zeros(source), target).shape == target
    assert calculated(source, lambda x: x.broadcast_to(target)) == target
    assert calculated(source, lambda x: x.broadcast_like(nd.zeros(target))) == target


@pytest.mark.parametrize("target", [(3, 0), (0,), (0, 0, 5), (7, 1, 0)])
def test_arrays_take_the_shape_of_others(calculated, target):
    assert calculated((0, 3), lambda x: x.reshape_like(nd.zeros(target))) == target
    with pytest.raises(ValueError, match="expected one of 0 elements"):
        nd.zeros((0, 3)).reshape_like(nd.zeros((2,)))


def test_a_scalar_takes_the_shape_of_another(calculated):
    assert calculated((1, 1), lambda x: x.reshape_like(nd.zeros(()))) == ()


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_axes_are_added_in_place(calculated, axis):
    want = np.expand_dims(np.zeros((0, 3)), axis).shape
    assert calculated((0, 3), lambda x: x.expand_dims(axis, inplace=True)) == want


@pytest.mark.parametrize("axis", [None, 0, 2, (0, 2)])
def test_axes_are_removed_in_place(calculated, axis):
    want = np.squeeze(np.zeros((1, 2, 1, 0)), axis).shape
    assert calculated((1, 2, 1, 0), lambda x: x.squeeze(axis, inplace=True)) == want


def test_codes_that_give_an_extent_of_zero(calculated):
    assert calculated((3, 0), lambda x: x.reshape((-1, 3))) == (0, 3)


def test_a_recorded_value_without_elements_is_assigned():
    x, value = nd.zeros((0, 3)), nd.ones((1, 1, 3))
    value.attach_grad()
    with mx.autograd.record():
        x[:] = value * 2
        y = x.sum() + value.sum()
    y.backward()
    assert value.grad.asnumpy().tolist() == [[[1, 1, 1]]]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), ()])
@pytest.mark.parametrize("make", [
    lambda shape: sym.zeros(shape=shape), lambda shape: sym.ones(shape=shape),
    lambda shape: sym.full(shape=shape, val=2), lambda shape: sym.random.uniform(shape=shape),
    lambda shape: sym.random.gamma(shape=shape),
    lambda shape: sym.random.randint(0, 3, shape=shape),
])  # fmt: skip
def test_shapes_in_parameters_of_symbols(make, shape):
    """Extents of 0 are empty axes under `np_shape`, and unknown ones without it."""
    net = make(shape)
    assert net.infer_shape()[1] == [shape]
    assert net.bind(mx.cpu(), {}).forward()[0].shape == shape
    with mx.np_shape(False):
        filled = net + sym.ones(shape=(2, 3) if shape else (1,))
        assert filled.infer_shape()[1] == [(2, 3) if shape else (1,)]


def test_a_blocks_parameters_of_shapes_follow_the_convention():
    class Empty(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.concat(x, F.zeros(shape=(0, 3)), dim=0)

    net = Empty()
    assert net(nd.ones((2, 3))).shape == (2, 3)
    net.hybridize()
    assert net(nd.ones((2, 3))).shape == (2, 3)


@pytest.mark.parametrize(("shape", "function"), [
    ((2, 0, 0), nd.linalg.potrf), ((2, 0, 0), nd.linalg.potri),
    ((2, 0, 0), nd.linalg.extractdiag), ((2, 0, 0), nd.linalg.extracttrian),
    ((2, 0), nd.linalg.makediag), ((2, 0), nd.linalg.maketrian),
    ((2, 0, 0), lambda x: nd.linalg.trsm(x, x)), ((2, 0, 0), lambda x: nd.linalg.trmm(x, x)),
    ((2, 0, 3), lambda x: nd.linalg.gelqf(x)[0]),
])  # fmt: skip
def test_matrices_without_elements_have_gradients(calculated, shape, function):
    made = calculated(shape, function)
    assert made[0] == 2 and 0 in made


def test_diagonals_without_elements_are_in_matrices_of_zeros():
    nd.full((2, 1, 1), 7).wait_to_read()  # memory that the next array may get
    assert nd.linalg.makediag(nd.zeros((2, 0)), offset=1).asnumpy().tolist() == [[[0]], [[0]]]
    with pytest.raises(mx.MXNetError, match="offset"):
        nd.linalg.extractdiag(nd.zeros((2, 0, 0)), offset=1).wait_to_read()


@pytest.mark.skipif(not hasattr(np, "from_dlpack"), reason="NumPy is too old for DLPack")
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_empty_arrays_come_by_dlpack(shape):
    assert nd.from_dlpack(np.zeros(shape, np.float32).__dlpack__()).shape == shape
