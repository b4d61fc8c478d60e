"""NaN where operators ask for a place: of boxes, samples and columns."""

import numpy as np
import pytest

from rsnet import autograd, nd

NAN = float("nan")


@pytest.mark.parametrize("layout", ["corner", "center"])
@pytest.mark.parametrize("side", range(4))
def test_a_box_with_nan_overlaps_none(layout, side):
    box, other = np.array([[0.5, 0.5, 1, 3]]), np.array([[0, 0, 2, 2.0]])
    broken = box.copy()
    broken[0, side] = NAN
    for a, b in [(broken, other), (other, broken), (broken, broken)]:
        assert nd.contrib.box_iou(nd.array(a), nd.array(b), format=layout).asscalar() == 0
    assert nd.contrib.box_iou(nd.array(box), nd.array(other), format=layout).asscalar() > 0


def test_a_box_with_nan_removes_none():
    boxes = nd.array([[0, 0.9, NAN, 0, 1, 1], [0, 0.8, 0.1, 0.1, 0.9, 0.9]])
    kept = nd.contrib.box_nms(
        boxes, overlap_thresh=0.5, coord_start=2, score_index=1, id_index=0
    ).asnumpy()
    np.testing.assert_array_equal(kept, boxes.asnumpy())


def test_a_sample_that_is_nan_is_not_encoded():
    anchors = nd.array([[[0, 0, 1, 1], [0, 0, 1, 1]]])
    mask = nd.contrib.box_encode(
        nd.array([[NAN, 1]]), nd.array([[0, 0]]), anchors, nd.array([[[0, 0, 1, 1]]]),
        nd.zeros((4,)), nd.ones((4,)),
    )[1]  # fmt: skip
    assert mask.asnumpy().tolist() == [[[0] * 4, [1] * 4]]


def test_samples_at_nan_are_nan():
    grid = np.zeros((1, 2, 2, 2))
    grid[0, 0, 0, 0] = grid[0, 1, 1, 1] = NAN
    x, grid = nd.ones((1, 1, 3, 3)), nd.array(grid)
    out = nd.BilinearSampler(x, grid).asnumpy().ravel()
    np.testing.assert_array_equal(out, [NAN, 1, 1, NAN])
    ways = {"transform_type": "affine", "sampler_type": "bilinear", "target_shape": (2, 2)}
    turned = nd.SpatialTransformer(x, nd.full((1, 6), NAN), **ways)
    assert np.isnan(turned.asnumpy()).all()


def test_gradients_at_nan_reach_no_element_of_the_image():
    grid = np.zeros((1, 2, 2, 2))
    grid[0, 0, 0, 0] = NAN
    x, grid = nd.ones((1, 1, 3, 3)), nd.array(grid)
    x.attach_grad()
    grid.attach_grad()
    with autograd.record():
        y = nd.BilinearSampler(x, grid)
    y.backward()
    assert x.grad.asnumpy().ravel().tolist() == [0, 0, 0, 0, 3, 0, 0, 0, 0]
    assert np.isnan(grid.grad.asnumpy()).ravel().nonzero()[0].tolist() == [0, 4]


def test_nan_names_no_column():
    columns = nd.array([NAN, 1, 5, -1])
    encoded = nd._internal._onehot_encode(columns, nd.ones((4, 3))).asnumpy()
    assert encoded.tolist() == nd.one_hot(columns, depth=3).asnumpy().tolist()
    filled = nd.fill_element_0index(nd.zeros((2, 2)), nd.array([5, 7]), nd.array([NAN, 1]))
    assert filled.asnumpy().tolist() == [[0, 0], [0, 7]]
