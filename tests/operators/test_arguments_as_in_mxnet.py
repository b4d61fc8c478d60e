"""Arguments as in MXNet: absent tuples and dtypes, labels of other shapes, unknown extents."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, nd


@pytest.mark.parametrize("first", [-1, 0, -2, 7])
def test_the_first_extent_is_not_needed_to_count(first):
    places = nd.array([0, 5, 11, 23])
    want = np.stack(np.unravel_index([0, 5, 11, 23], (2, 3, 4)))
    assert (nd.unravel_index(places, shape=(first, 3, 4)).asnumpy() == want).all()
    got = nd.ravel_multi_index(nd.array(want), shape=(first, 3, 4)).asnumpy()
    assert got.tolist() == [0, 5, 11, 23]
    assert nd.unravel_index(places, shape=(first,)).asnumpy().tolist() == [[0, 5, 11, 23]]


@pytest.mark.parametrize("shape", [(2, -1), (2, 0, 3), (-1, -1)])
def test_other_extents_are(shape):
    with pytest.raises(mx.MXNetError, match="only the first may be -1"):
        nd.unravel_index(nd.array([1]), shape=shape)
    with pytest.raises(mx.MXNetError, match="only the first may be -1"):
        nd.ravel_multi_index(nd.zeros((len(shape), 1)), shape=shape)


def test_places_beyond_the_shape_go_to_the_first_coordinate():
    got = nd.unravel_index(nd.array([23, 6, 100]), shape=(2, 3)).asnumpy()
    assert got.tolist() == [[7, 2, 33], [2, 0, 1]]


def test_a_tuple_may_be_absent():
    x = nd.arange(12).reshape((3, 4))
    want = x.asnumpy()
    assert (nd.slice(x, begin=(1, 0), end=(3, None), step=None).asnumpy() == want[1:]).all()
    assert (nd.slice_like(x, nd.zeros((3, 4)), axes=None).asnumpy() == want).all()
    assert (nd.slice_like(x, nd.zeros((2, 2)), axes=None).asnumpy() == want[:2, :2]).all()
    assert (nd.tile(x, reps=None).asnumpy() == want).all()
    y = mx.sym.slice(mx.sym.Variable("x"), begin=(1, 0), end=(3, 4), step=None)
    assert mx.sym.load_json(y.tojson()).infer_shape(x=(3, 4))[1] == [(2, 4)]


@pytest.mark.parametrize(
    ("run", "dtype"),
    [
        (lambda: nd.one_hot(nd.array([1]), 3, dtype=None), "float32"),
        (lambda: nd.argsort(nd.array([2, 1]), dtype=None), "float32"),
        (lambda: nd.topk(nd.array([2, 1]), dtype=None), "float32"),
        (lambda: nd.random.multinomial(nd.array([0.5, 0.5]), dtype=None), "int32"),
        (lambda: nd.Cast(nd.array([1]), dtype=None), "float64"),
        (lambda: nd.norm(nd.array([1], dtype="float16"), out_dtype=None), "float16"),
    ],
)
def test_a_dtype_may_be_absent(run, dtype):
    assert np.dtype(run().dtype) == np.dtype(dtype)


HEADS = ["LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput"]


def gradient(op, data, label, **params):
    x = nd.array(data)
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, op)(x, nd.array(label), **params)
    y.backward()
    return x.grad.asnumpy()


@pytest.mark.parametrize("op", HEADS)
@pytest.mark.parametrize(
    ("shape", "label"),
    [((2, 2), (2, 2, 1)), ((2,), (2, 1)), ((2, 2, 1), (2, 1, 2)), ((2, 6), (2, 3, 2))],
)
def test_labels_of_regressions_need_as_many_elements_an_instance(op, shape, label):
    rng = np.random.RandomState(0)
    data, target = rng.rand(*shape), rng.rand(*label)
    want = gradient(op, data, target.reshape(shape))
    np.testing.assert_allclose(gradient(op, data, target), want)


@pytest.mark.parametrize("op", HEADS)
@pytest.mark.parametrize(("shape", "label"), [((4,), (2, 2)), ((2, 2), (4,)), ((2, 2), (2, 3))])
def test_other_labels_of_regressions_are_refused(op, shape, label):
    with pytest.raises(mx.MXNetError, match="argument 'label' has shape"):
        getattr(nd, op)(nd.zeros(shape), nd.zeros(label))


def test_labels_of_the_shape_of_the_data_are_probabilities():
    labels = [[0.5], [0.25], [1.0]]
    got = gradient("SoftmaxOutput", [[0.1], [0.2], [0.3]], labels)
    np.testing.assert_allclose(got, [[0.5], [0.75], [0.0]])
    got = gradient(
        "SoftmaxOutput", np.ones((2, 3, 1)), np.full((2, 3, 1), 0.25), preserve_shape=True
    )
    np.testing.assert_allclose(got, np.full((2, 3, 1), 0.75))
    assert (gradient("SoftmaxOutput", [[0.1], [0.2]], [0, 0]) == 0).all()


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16", "float64"])
@pytest.mark.parametrize("head", ["int32", "float16", "float32", "float64"])
def test_a_conversion_takes_head_gradients_of_any_dtype(dtype, head):
    x = nd.array([1, 2, 3])
    x.attach_grad()
    with autograd.record():
        y = (x * 2).astype(dtype)
    given = nd.array([1.5, 2, 3], dtype=head)
    y.backward(given)
    np.testing.assert_allclose(x.grad.asnumpy(), 2 * given.asnumpy().astype("float32"))


def test_other_head_gradients_have_the_dtype_of_the_output():
    x = nd.array([1, 2, 3])
    x.attach_grad()
    with autograd.record():
        y = x * 2
    with pytest.raises(mx.MXNetError, match="'head gradient 0' has dtype int32, expected float32"):
        y.backward(nd.array([1, 2, 3], dtype="int32"))


def test_refused_where_nothing_can_be_calculated():
    for nsize in (0, -1, 2, 4):
        with pytest.raises(mx.MXNetError, match="nsize"):
            nd.LRN(nd.ones((1, 3, 1, 1)), nsize=nsize)
    one = nd.ones((1, 1, 1, 1))
    with pytest.raises(mx.MXNetError, match="argument 'pad'"):
        nd.Deconvolution(one, one, kernel=(1, 1), num_filter=1, pad=(1, 1), no_bias=True)


def test_lengths_of_softmax_have_no_gradient():
    x, lengths = nd.ones((2, 3, 4)), nd.array([[1, 2, 3], [4, 0, 2]], dtype="int32")
    for req in ("write", "add"):
        x.attach_grad(req)
        lengths.attach_grad(req)
        for _ in range(3):
            with autograd.record():
                y = nd.softmax(x, lengths, use_length=True)
            y.backward()
            assert not lengths.grad.asnumpy().any()


def test_classes_of_every_position_need_a_label_each():
    with pytest.raises(mx.MXNetError, match="label"):
        nd.SoftmaxOutput(nd.zeros((2, 3, 3)), nd.zeros((2,)), preserve_shape=True)
    assert nd.SoftmaxOutput(nd.zeros((2, 3, 3)), nd.zeros((2,))).shape == (2, 3, 3)
    net = mx.sym.SoftmaxOutput(mx.sym.Variable("data"), name="s", multi_output=True)
    assert net.infer_shape(data=(5, 3))[0] == [(5, 3), (5, 1)]
    assert net.infer_shape(data=(5, 3), s_label=(5,))[0] == [(5, 3), (5,)]


def test_suppressed_boxes_stay_suppressed():
    boxes = nd.array([[[-1, 0.9, 0, 0, 1, 1], [0, 0.8, 0, 0, 0.9, 1]]])
    for force in (False, True):
        kept = nd.contrib.box_nms(boxes, id_index=0, force_suppress=force).asnumpy()[0]
        np.testing.assert_allclose(kept[0], boxes.asnumpy()[0, 1])
        assert (kept[1] == -1).all()


def test_nan_is_not_hidden():
    weight, z, n = nd.array([1, 2]), nd.zeros(2), nd.zeros(2)
    nd.ftrl_update(weight, nd.array([0.1, np.nan]), z, n, lr=0.1, out=weight)
    assert np.isnan(weight.asnumpy()).tolist() == [False, True]
    x, var = nd.array([[1, np.nan], [2, 3]]), nd.ones(2)
    x.attach_grad()
    with autograd.record():
        y = nd.BatchNorm(x, nd.ones(2), nd.zeros(2), nd.zeros(2), var, axis=1)
    y.backward()
    assert np.isnan(var.asnumpy()).tolist() == [False, True]


def test_sigma_of_smooth_l1_is_1():
    np.testing.assert_allclose(nd.smooth_l1(nd.array([0.5, 2])).asnumpy(), [0.125, 1.5])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int8", "int64", "float16"])
def test_sequences_of_any_dtype(dtype):
    x, lengths = nd.arange(12).reshape((3, 2, 2)).astype(dtype), nd.array([1, 2])
    given = {"sequence_length": lengths, "use_sequence_length": True}
    masked = nd.SequenceMask(x, value=7, **given)
    assert masked.asnumpy().ravel().tolist() == [0, 1, 2, 3, 7, 7, 6, 7, 7, 7, 7, 7]
    assert nd.SequenceLast(x, **given).asnumpy().ravel().tolist() == [0, 1, 6, 7]
    reverse = nd.SequenceReverse(x, **given)
    assert reverse.asnumpy().ravel().tolist() == [0, 1, 6, 7, 4, 5, 2, 3, 8, 9, 10, 11]
    assert masked.dtype == reverse.dtype == x.dtype


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
@pytest.mark.parametrize(
    ("values", "moments"), [([0, 3], [1, 2]), ([0, 0, 0, 0, 9], [1, 13]), ([4, 4], [4, 0])]
)
def test_moments_of_integers_are_truncated(dtype, values, moments):
    """The figures were read off MXNet 1.9.1: the mean is truncated before it is subtracted."""
    got = nd.moments(nd.array(values, dtype=dtype), axes=(0,))
    assert [g.asnumpy().item() for g in got] == moments
    assert [g.dtype for g in got] == [np.dtype(dtype)] * 2


@pytest.mark.parametrize(
    ("draws", "output", "want"), [((), (2, 3), (2, 3)), ((4,), (2, 3, 4), (2, 3))]
)
def test_samplers_know_their_parameters_by_the_output(draws, output, want):
    net = mx.sym.sample_normal(mx.sym.var("mu"), mx.sym.var("sigma"), shape=draws)
    shapes = (net + mx.sym.var("b")).infer_shape(b=output)
    assert shapes == ([want, want, output], [output], [])
    with pytest.raises(mx.MXNetError, match="mu"):
        net.infer_shape(mu=(2,), sigma=(3,))


@pytest.mark.parametrize("scale", [-0.5, 1.5])
@pytest.mark.parametrize("name", ["ROIAlign", "RROIAlign"])
def test_scales_of_regions_are_at_most_1(name, scale):
    regions = nd.array([[0, 1, 1, 2, 2, 0][: 5 + (name == "RROIAlign")]])
    call = getattr(nd.contrib, name)
    assert call(nd.ones((1, 1, 4, 4)), regions, pooled_size=(2, 2), spatial_scale=1).shape
    with pytest.raises(mx.MXNetError, match="spatial_scale"):
        call(nd.ones((1, 1, 4, 4)), regions, pooled_size=(2, 2), spatial_scale=scale)


@pytest.mark.parametrize("np_shape", [False, True])
@pytest.mark.parametrize("cuts", [(3,), (3, 2), (5, 6), (1, 3)])
def test_cuts_beyond_the_axis_are_refused(cuts, np_shape):
    with mx.np_shape(np_shape), pytest.raises(mx.MXNetError, match="within axis 0"):
        nd.split_v2(nd.ones((2, 3)), cuts)


def test_the_average_activity_begins_at_0():
    net = mx.sym.IdentityAttachKLSparseReg(mx.sym.var("x"), name="k")
    assert net.attr_dict() == {"k_moving_avg": {"__init__": '["zero", {}]'}}
