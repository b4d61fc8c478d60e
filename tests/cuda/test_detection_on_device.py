"""Samples of images, boxes and anchors on a device, in sizes that take more than one block."""

import numpy as np
import pytest
from conftest import assert_near, compare, first_of

import rsnet as mx
from rsnet import nd

DTYPES = ["float32", "float64"]
REQUESTS = ["write", "add"]


def uniform(*shape, low=0.0, high=1.0, dtype="float32", seed=0):
    random = np.random.RandomState(sum(shape) + seed)
    return random.uniform(low, high, shape).astype(dtype)


def both(call, *arrays):
    """Results on the device are those on the host, and from kernels."""
    before, found = mx.cuda.operators_on_host(), []
    for ctx in (mx.gpu(0), mx.cpu(0)):
        outs = call(*[nd.array(a, ctx, a.dtype) for a in arrays])
        outs = outs if isinstance(outs, list) else [outs]
        found.append([out.asnumpy() for out in outs])
    for got, want in zip(*found, strict=True):
        assert_near(got, want)
    assert mx.cuda.operators_on_host() == before
    return found[0]


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("dtype", first_of(*DTYPES, "float16"))
def test_many_samples_of_one_element(dtype, req):
    """Gradients of images are sums over all samples that touch an element."""
    x, grid = uniform(2, 3, 4, 5, dtype=dtype), uniform(2, 2, 20, 30, low=-1.2, high=1.2)
    compare(lambda x, g: nd.BilinearSampler(x, g), x, grid.astype(dtype), req=req)
    nowhere = np.full((2, 2, 3, 3), np.nan, dtype)
    compare(lambda x: nd.BilinearSampler(x, nd.array(nowhere, x.context, dtype)), x, req=req)


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("dtype", first_of(*DTYPES))
def test_transformed_images(dtype, req):
    x, loc = uniform(3, 2, 6, 5, dtype=dtype), uniform(3, 6, low=-0.9, high=0.9, dtype=dtype)
    names = {"target_shape": (25, 30), "transform_type": "affine"}

    def transformer(x, loc):
        return nd.SpatialTransformer(x, loc, sampler_type="bilinear", **names)

    compare(transformer, x, loc, req=req)
    compare(lambda loc: nd.GridGenerator(loc, **names), loc, req=req)
    flow = uniform(2, 2, 20, 30, dtype=dtype)
    compare(lambda f: nd.GridGenerator(f, transform_type="warp"), flow, req=req)


def regions(count, images, turned, dtype):
    corners = np.sort(uniform(count, 2, 2, low=-3, high=20), 1).reshape(count, 4)
    angles = uniform(count, 1, low=-180, high=180)
    numbers = np.random.RandomState(4).randint(-1, images, (count, 1))
    return np.hstack([numbers, corners, angles][: 3 if turned else 2]).astype(dtype)


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("dtype", first_of(*DTYPES, "float16"))
@pytest.mark.parametrize(
    "options",
    [{}, {"aligned": True, "sample_ratio": 2}, {"position_sensitive": True, "sample_ratio": 1}],
)
def test_means_of_rectangles(options, dtype, req):
    x, rows = uniform(2, 12, 9, 11, dtype=dtype), regions(30, 2, False, dtype)

    def call(x):
        rois = nd.array(rows, x.context, dtype)
        return nd.contrib.ROIAlign(x, rois, pooled_size=(2, 3), spatial_scale=0.6, **options)

    compare(call, x, req=req)


@pytest.mark.parametrize("dtype", first_of(*DTYPES))
@pytest.mark.parametrize("ratio", [-1, 2])
def test_means_of_turned_rectangles(ratio, dtype):
    x, rows = uniform(2, 3, 9, 11, dtype=dtype), regions(12, 2, True, dtype)

    def call(x):
        rois = nd.array(rows, x.context, dtype)
        options = {"pooled_size": (2, 3), "spatial_scale": 0.6, "sampling_ratio": ratio}
        return nd.contrib.RROIAlign(x, rois, **options)

    # Places of samples come from sines of another library.
    compare(call, x, near=lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3))


def boxes(*lead, dtype="float32", seed=0):
    corners = uniform(*lead, 2, 2, dtype=dtype, seed=seed)
    return np.sort(corners, -2).reshape(*lead, 4)


@pytest.mark.parametrize("dtype", first_of(*DTYPES))
@pytest.mark.parametrize("count", [1, 40, 700])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topk": 30, "overlap_thresh": 0.3, "id_index": 0, "background_id": 1},
        {"force_suppress": True, "id_index": 0, "valid_thresh": 0.4, "out_format": "center"},
    ],
)
def test_boxes_that_are_kept(options, count, dtype):
    classes = np.random.RandomState(2).randint(0, 3, (2, count, 1)).astype(dtype)
    scores = uniform(2, count, 1, dtype=dtype)
    scores[:, ::5] = 0.5  # of equal ones the first comes first
    scores[:, 3::50] = np.nan
    x = np.concatenate([classes, scores, boxes(2, count, dtype=dtype)], -1)
    rows = both(lambda x: nd.contrib.box_nms(x, **options), x)[0]
    assert (rows[..., 1] >= 0).any()
    for req in REQUESTS:
        compare(lambda x: nd.contrib.box_nms(x, **options), x, req=req)


@pytest.mark.parametrize("dtype", first_of(*DTYPES, "float16"))
def test_overlaps_and_codes(dtype):
    a, b = boxes(30, dtype=dtype), boxes(4, 9, dtype=dtype)
    for form in ("corner", "center"):
        both(lambda a, b, form=form: nd.contrib.box_iou(a, b, format=form), a, b)
        both(
            lambda x, a, form=form: nd.contrib.box_decode(x, a, format=form, clip=0.5),
            uniform(3, 30, 4, dtype=dtype),
            boxes(1, 30, dtype=dtype),
        )
    samples, matches = uniform(2, 30, dtype=dtype), np.full((2, 30), 4, dtype)
    refs, means, deviations = boxes(2, 5, dtype=dtype), uniform(4, dtype=dtype), np.ones(4, dtype)
    anchors = boxes(2, 30, dtype=dtype)
    if dtype != "float16":
        both(nd.contrib.box_encode, samples, matches, anchors, refs, means, deviations)


def test_anchors_of_many_shapes():
    sizes, ratios = tuple(np.linspace(0.1, 1, 20)), (1, 2, 0.5, 3)
    x = np.zeros((1, 3, 5, 7), "float32")
    both(lambda x: nd.contrib.MultiBoxPrior(x, sizes=sizes, ratios=ratios, clip=True), x)


@pytest.mark.parametrize("dtype", first_of(*DTYPES))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"overlap_threshold": 0.2, "ignore_label": -3},
        {"negative_mining_ratio": 2, "negative_mining_thresh": 0.4},
        {"negative_mining_ratio": 0.5, "minimum_negative_samples": 40},
    ],
)
def test_targets_of_anchors(options, dtype):
    anchors, images, labels = 600, 3, 7
    label = np.concatenate(
        [np.random.RandomState(1).randint(0, 4, (images, labels, 1)), boxes(images, labels)], -1
    ).astype(dtype)
    label[1, 4:] = -1
    label[2] = -1
    scores = uniform(images, 5, anchors, low=-2, high=2, dtype=dtype)
    both(
        lambda a, y, p: nd.contrib.MultiBoxTarget(a, y, p, **options),
        boxes(1, anchors, dtype=dtype),
        label,
        scores,
    )


@pytest.mark.parametrize("dtype", first_of(*DTYPES))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threshold": 0.5, "nms_threshold": 0.3},
        {"nms_topk": 50, "force_suppress": True},
        {"nms_threshold": -1, "clip": False},
    ],
)
def test_what_anchors_have_found(options, dtype):
    scores = uniform(2, 4, 600, dtype=dtype)
    location = uniform(2, 2400, low=-1, high=1, dtype=dtype)
    both(
        lambda p, x, a: nd.contrib.MultiBoxDetection(p, x, a, **options),
        scores,
        location,
        boxes(1, 600, dtype=dtype),
    )
