"""Crops, augmenters and `ImageIter`."""

import json
import random

import numpy as np
import pytest
from images import encoded, picture, records

import rsnet as mx


@pytest.fixture(autouse=True)
def _seeds():
    random.seed(1)
    np.random.seed(1)


def array(height=20, width=30, dtype="uint8"):
    return mx.nd.array(picture(height, width), dtype=dtype)


def test_sizes_and_crops():
    x = array(20, 30)
    assert mx.image.scale_down((640, 480), (720, 120)) == (640, 106)
    assert mx.image.resize_short(x, 10).shape == (10, 15, 3)
    assert mx.image.resize_short(array(30, 20), 10).shape == (15, 10, 3)
    part, place = mx.image.center_crop(x, (10, 8))
    assert place == (10, 6, 10, 8)
    np.testing.assert_array_equal(part.asnumpy(), x.asnumpy()[6:14, 10:20])
    part, (left, top, width, height) = mx.image.random_crop(x, (10, 8))
    assert (width, height) == (10, 8)
    np.testing.assert_array_equal(part.asnumpy(), x.asnumpy()[top : top + 8, left : left + 10])
    part, place = mx.image.center_crop(x, (60, 20))
    assert part.shape == (20, 60, 3) and place == (0, 5, 30, 10)
    for _ in range(20):
        part, (_, _, width, height) = mx.image.random_size_crop(x, (7, 5), (0.2, 0.6), (0.5, 2))
        assert part.shape == (5, 7, 3) and width * height <= 0.7 * 600
    # No part of this ratio fits: the middle is taken.
    assert mx.image.random_size_crop(x, (7, 5), 1.0, (9, 9))[1] == (11, 7, 7, 5)
    assert mx.image.fixed_crop(x, 1, 2, 3, 4, (6, 8)).shape == (8, 6, 3)


@pytest.mark.parametrize("place", [(0, 0, 0, 3), (28, 0, 3, 3), (-1, 0, 3, 3), (0, 18, 2, 3)])
def test_crops_that_leave_the_image_are_refused(place):
    with pytest.raises(ValueError, match="expected a part of the image of 30 by 20"):
        mx.image.fixed_crop(array(), *place)


def test_interpolation_by_number():
    x = array()
    for interp in (0, 1, 2, 3, 4, 9, 10):
        assert mx.image.resize_short(x, 40, interp).shape == (40, 60, 3)
    np.testing.assert_array_equal(
        mx.image.resize_short(x, 40, 9).asnumpy(), mx.image.resize_short(x, 40, 2).asnumpy()
    )
    np.testing.assert_array_equal(
        mx.image.resize_short(x, 10, 9).asnumpy(), mx.image.resize_short(x, 10, 3).asnumpy()
    )
    with pytest.raises(ValueError, match="invalid interp 8: expected 0 to 4"):
        mx.image.resize_short(x, 10, 8)
    with pytest.raises(mx.MXNetError, match="interp"):
        mx.image.imresize(x, 3, 3, interp=9)
    with pytest.raises(mx.MXNetError, match="w"):
        mx.image.imresize(x, 0, 3)
    with pytest.raises(mx.MXNetError, match="int32.*expected uint8"):
        mx.image.imresize(x.astype("int32"), 3, 3)


def test_borders():
    x = mx.nd.array([[[1, 2, 3]]], dtype="uint8")
    got = mx.image.copyMakeBorder(x, 1, 0, 0, 2, type=0, values=(7, 8, 9)).asnumpy()
    assert got[0].tolist() == [[7, 8, 9]] * 3 and got[1].tolist() == [
        [1, 2, 3],
        [7, 8, 9],
        [7, 8, 9],
    ]
    with pytest.raises(mx.MXNetError, match="type"):
        mx.image.copyMakeBorder(x, 1, 1, 1, 1, type=7)


def test_rotation():
    x = mx.nd.array(np.arange(2 * 3 * 5 * 5).reshape(2, 3, 5, 5), dtype="float32")
    quarter = mx.image.imrotate(x, 90).asnumpy()
    np.testing.assert_allclose(quarter, np.rot90(x.asnumpy(), axes=(2, 3)), atol=1e-3)
    each = mx.image.imrotate(x, mx.nd.array([90, 0])).asnumpy()
    np.testing.assert_allclose(each[0], quarter[0], atol=1e-3)
    np.testing.assert_allclose(each[1], x.asnumpy()[1], atol=1e-3)
    # Read off MXNet 1.9.1.
    y = mx.nd.array(np.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7) % 11)[0]
    for options, row in [
        ({}, [0.0, 0.61, 2.41, 2.93, 1.79, 3.61, 2.96]),
        ({"zoom_in": True}, [1.85, 4.32, 6.57, 3.62, 1.68, 4.47, 7.26]),
        ({"zoom_out": True}, [0.0, 0.0, 0.0, 1.31, 5.64, 0.0, 0.0]),
    ]:
        got = mx.image.imrotate(y, 30, **options).asnumpy()[0, 0]
        np.testing.assert_allclose(got, row, atol=0.006)
    ones = mx.nd.ones((1, 9, 9))
    assert mx.image.imrotate(ones, 45).asnumpy().min() == 0
    assert mx.image.imrotate(ones, 45, zoom_in=True).asnumpy().min() > 0.9
    assert mx.image.random_rotate(x, (10, 20)).shape == x.shape
    for bad, says in [({"zoom_in": True, "zoom_out": True}, "both"), ({}, "float32")]:
        with pytest.raises((ValueError, TypeError), match=says):
            mx.image.imrotate(x if bad else x.astype("int32"), 3, **bad)
    with pytest.raises(ValueError, match="each of 2 images"):
        mx.image.imrotate(x, mx.nd.array([1, 2, 3]))


# The texts were read off MXNet 1.9.1.
def test_augmenters_describe_themselves():
    assert mx.image.CastAug().dumps() == '["castaug", {"type": "float32"}]'
    jitter = mx.image.ColorJitterAug(0.1, 0, 0.3).dumps()
    assert jitter == [
        "colorjitteraug",
        [
            '["brightnessjitteraug", {"brightness": 0.1}]',
            '["saturationjitteraug", {"saturation": 0.3}]',
        ],
    ]
    made = mx.image.CreateAugmenter(
        (3, 8, 8), resize=10, rand_crop=True, rand_mirror=True, mean=True, std=True, hue=0.2,
        pca_noise=0.1, rand_gray=0.1, brightness=0.1,
    )  # fmt: skip
    names = [json.loads(t)[0] if isinstance(t, str) else t[0] for t in (a.dumps() for a in made)]
    assert names == [
        "resizeaug", "randomcropaug", "horizontalflipaug", "castaug", "colorjitteraug",
        "huejitteraug", "lightingaug", "randomgrayaug", "colornormalizeaug",
    ]  # fmt: skip
    det = mx.image.CreateDetAugmenter((3, 8, 8), rand_crop=0.5, rand_pad=0.5, rand_mirror=True)
    names = [json.loads(t)[0] if isinstance(t, str) else t[0] for t in (a.dumps() for a in det)]
    assert names == [
        "detrandomselectaug", "dethorizontalflipaug", "detrandomselectaug", "detborrowaug",
        "detborrowaug",
    ]  # fmt: skip


def test_orders_of_augmenters_are_those_of_repeated_shuffles():
    called = []

    class Notes(mx.image.Augmenter):
        def __call__(self, src):
            called.append(self._kwargs["number"])
            return src

    random.seed(3)
    aug = mx.image.RandomOrderAug([Notes(number=i) for i in range(5)])
    aug(array())
    aug(array())
    random.seed(3)
    order, expected = list(range(5)), []
    for _ in range(2):
        random.shuffle(order)
        expected += order
    assert called == expected


def test_every_augmenter_keeps_an_image_an_image():
    made = mx.image.CreateAugmenter(
        (3, 8, 8), resize=10, rand_crop=True, rand_resize=True, rand_mirror=True, mean=True,
        std=True, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.2, pca_noise=0.1,
        rand_gray=0.9,
    )  # fmt: skip
    for _ in range(5):
        x = array()
        for aug in made:
            x = aug(x)
        assert x.shape == (8, 8, 3) and x.dtype is np.float32
        assert np.isfinite(x.asnumpy()).all() and np.abs(x.asnumpy()).max() < 10


def test_colour_augmenters_against_numpy():
    x = array(dtype="float32")
    luma = np.array([0.299, 0.587, 0.114])
    random.seed(4)
    alpha = 1 + random.uniform(-0.5, 0.5)
    want = {
        "ContrastJitterAug": x.asnumpy() * alpha + (1 - alpha) * (x.asnumpy() @ luma).mean(),
        "SaturationJitterAug": x.asnumpy() * alpha + (1 - alpha) * (x.asnumpy() @ luma)[..., None],
        "BrightnessJitterAug": x.asnumpy() * alpha,
    }
    for name, expected in want.items():
        random.seed(4)
        got = getattr(mx.image, name)(0.5)(x).asnumpy()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)
    turned = mx.image.HueJitterAug(0.0)(x).asnumpy()
    np.testing.assert_allclose(turned, x.asnumpy(), atol=1.5)
    grey = mx.image.RandomGrayAug(1.0)(x).asnumpy()
    np.testing.assert_allclose(
        grey, (x.asnumpy() @ [0.21, 0.72, 0.07])[..., None].repeat(3, 2), rtol=1e-4
    )


def test_a_hue_is_turned_in_the_colour_plane(monkeypatch):
    x = array(dtype="float32")
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    got = mx.image.HueJitterAug(0.5)(x).asnumpy()  # by a quarter of the circle
    to_yiq = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
    y, i, q = np.moveaxis(x.asnumpy() @ to_yiq.T, -1, 0)
    np.testing.assert_allclose(got @ to_yiq.T, np.stack([y, -q, i], axis=-1), atol=2)


def test_lighting_adds_principal_colours(monkeypatch):
    x = array(dtype="float32")
    monkeypatch.setattr(np.random, "normal", lambda mean, std, size: std * np.array([1, -2, 3]))
    vectors = np.array([[0.6, 0.8, 0], [-0.8, 0.6, 0], [0, 0.5, 1]])
    got = mx.image.LightingAug(0.5, [10, 20, 30], vectors)(x).asnumpy()
    added = 5 * vectors[:, 0] - 20 * vectors[:, 1] + 45 * vectors[:, 2]
    np.testing.assert_allclose(got, x.asnumpy() + added, rtol=1e-5)


BOXES = np.array([[1, 0.1, 0.2, 0.5, 0.6], [2, 0.4, 0.4, 0.9, 0.9]], "float32")


def test_detection_augmenters_move_boxes_with_their_pixels():
    x = mx.nd.zeros((40, 60, 3), dtype="uint8")
    x[16:36, 24:54] = 200  # the second box
    _, label = mx.image.DetHorizontalFlipAug(1.0)(x, BOXES)
    np.testing.assert_allclose(label[0, 1:], [0.5, 0.2, 0.9, 0.6], atol=1e-6)
    for aug in (
        mx.image.DetRandomPadAug(area_range=(1.5, 3.0)),
        mx.image.DetRandomCropAug(min_object_covered=0.2, area_range=(0.3, 1.0)),
    ):
        for _ in range(10):
            image, label = aug(x, BOXES)
            for box in label[label[:, 0] == 2]:
                height, width = image.shape[:2]
                rows = slice(round(box[2] * height), round(box[4] * height))
                columns = slice(round(box[1] * width), round(box[3] * width))
                inside = image.asnumpy()[rows, columns]
                assert inside.size and (inside == 200).mean() > 0.8
    crop = mx.image.DetRandomCropAug(area_range=(0.3, 0.6))
    left, top, width, height = 15, 12, 36, 20
    got = crop._inside(BOXES, (left, top, width, height), 40, 60)
    want = (BOXES[:, 1:] * [60, 40, 60, 40] - [left, top] * 2) / ([width, height] * 2)
    np.testing.assert_allclose(got[:, 1:], want.clip(0, 1), atol=1e-6)
    multi = mx.image.CreateMultiRandCropAugmenter(min_object_covered=[0.1, 0.5], skip_prob=0.5)
    assert [a.min_object_covered for a in multi.aug_list] == [0.1, 0.5]
    with pytest.raises(ValueError, match="expected 1 or 3"):
        mx.image.CreateMultiRandCropAugmenter([0.1, 0.2, 0.3], max_attempts=[1, 2])
    with pytest.raises(TypeError, match="expected an Augmenter"):
        mx.image.DetBorrowAug(3)


@pytest.fixture
def rec(tmp_path):
    return records(tmp_path / "x.rec", [picture(30, 26, i) for i in range(10)])


# The numbers were read off MXNet 1.9.1.
@pytest.mark.parametrize(
    ("how", "want"),
    [
        ("pad", [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], None, [0, 1, 2, 3]]),
        ("discard", [[0, 1, 2, 3], [4, 5, 6, 7], None, [0, 1, 2, 3], [4, 5, 6, 7]]),
        ("roll_over", [[0, 1, 2, 3], [4, 5, 6, 7], None, [8, 9, 0, 1], [2, 3, 4, 5]]),
    ],
)
def test_last_batches(rec, how, want):
    it = mx.image.ImageIter(
        4, (3, 20, 20), path_imgrec=rec, path_imgidx=rec[:-3] + "idx", last_batch_handle=how
    )
    for labels in want:
        if labels is None:
            with pytest.raises(StopIteration):
                it.next()
            it.reset()
        else:
            batch = it.next()
            assert batch.label[0].asnumpy().tolist() == labels
            assert batch.data[0].shape == (4, 3, 20, 20)
            assert batch.pad == (2 if labels[0] == 8 else 0)


def test_an_epoch_without_an_image_is_an_error(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    it = mx.image.ImageIter(1, (3, 8, 8), imglist=[[0.0, "a.png"]], path_root=str(tmp_path))
    with pytest.raises(
        mx.MXNetError, match="no image of the epoch can be decoded.*: invalid image"
    ):
        it.next()
    assert it.skipped == 1


def test_what_fills_a_last_batch_is_augmented_anew(rec):
    drawn, resize = [], mx.image.ForceResizeAug((20, 20))

    class Draw(mx.image.Augmenter):
        def __call__(self, src):
            drawn.append(random.random())
            return src

    it = mx.image.ImageIter(4, (3, 20, 20), path_imgrec=rec, aug_list=[Draw(), resize])
    assert [batch.pad for batch in it] == [0, 0, 2] and len(drawn) == 12
    small = mx.image.ImageIter(25, (3, 20, 20), path_imgrec=rec, aug_list=[resize])
    assert small.next().label[0].asnumpy().tolist() == [*range(10), *range(10), *range(5)]


def test_images_of_lists(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(24, 24, i)))
    given = [[float(i), f"{i}.png"] for i in range(3)]
    it = mx.image.ImageIter(2, (3, 24, 24), imglist=given, path_root=str(tmp_path))
    first, second = list(it)
    np.testing.assert_array_equal(
        first.data[0].asnumpy()[1], picture(24, 24, 1).transpose(2, 0, 1).astype("float32")
    )
    assert second.pad == 1 and second.label[0].asnumpy().tolist() == [2, 0]
    lst = tmp_path / "a.lst"
    lst.write_text("5\t1.5\t2.5\t0.png\n7\t3\t4\t1.png\n")
    it = mx.image.ImageIter(
        2, (3, 24, 24), 2, path_imglist=str(lst), path_root=str(tmp_path), dtype="uint8"
    )
    batch = it.next()
    assert batch.data[0].dtype is np.uint8
    assert batch.label[0].shape == (2, 2)


def test_parts_and_shuffling(rec):
    idx = rec[:-3] + "idx"
    seen = []
    for part in range(5):
        it = mx.image.ImageIter(
            2, (3, 20, 20), path_imgrec=rec, path_imgidx=idx, num_parts=5, part_index=part,
            shuffle=True,
        )  # fmt: skip
        seen += [int(x) for batch in it for x in batch.label[0].asnumpy()]
    assert sorted(seen) == list(range(10))
    with pytest.raises(ValueError, match="invalid path_imgidx None: expected an index"):
        mx.image.ImageIter(2, (3, 20, 20), path_imgrec=rec, shuffle=True)
    with pytest.raises(ValueError, match="part_index 5: expected 0 to 4"):
        mx.image.ImageIter(
            2, (3, 20, 20), path_imgrec=rec, path_imgidx=idx, num_parts=5, part_index=5
        )


def test_damaged_images_are_skipped_and_counted(tmp_path):
    images = [picture(20, 20, 0), b"no image", picture(20, 20, 2)]
    it = mx.image.ImageIter(2, (3, 20, 20), path_imgrec=records(tmp_path / "x.rec", images))
    assert it.next().label[0].asnumpy().tolist() == [0, 2]
    assert it.skipped == 1


@pytest.mark.parametrize("index", [False, True])
def test_records_that_are_too_short_are_named(tmp_path, index):
    idx, rec = str(tmp_path / "x.idx"), str(tmp_path / "x.rec")
    first = mx.recordio.pack((0, 1.0, 0, 0), encoded(picture(20, 20), "png"))
    with mx.recordio.MXIndexedRecordIO(idx, rec, "w") as file:
        file.write_idx(0, first)
        file.write_idx(1, b"abc")
    where = {"path_imgrec": rec} | ({"path_imgidx": idx} if index else {})
    it = mx.image.ImageIter(2, (3, 20, 20), **where)
    says = "of id 1" if index else f"at offset {len(mx.recordio.encode(first))}"
    with pytest.raises(mx.MXNetError, match=rf"x\.rec: the record {says}: a payload of 3 bytes"):
        it.next()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "expected path_imgrec, path_imglist or imglist"),
        ({"data_shape": (20, 20), "imglist": []}, "expected .3, height, width"),
        ({"data_shape": (1, 20, 20), "imglist": []}, "expected 3 channels"),
        ({"last_batch_handle": "x", "imglist": []}, "last_batch_handle 'x'"),
        ({"path_imglist": "nosuch.lst"}, "nosuch.lst"),
        ({"path_imgrec": "nosuch.rec"}, "nosuch.rec"),
        ({"imglist": [], "nosuch": 1}, "nosuch"),
    ],
)
def test_bad_arguments_of_iterators(options, says):
    options = {"batch_size": 2, "data_shape": (3, 20, 20), **options}
    with pytest.raises((ValueError, TypeError, mx.MXNetError), match=says):
        mx.image.ImageIter(**options)


LABELS = [[2, 5, 0, 0.1, 0.1, 0.5, 0.5], [2, 5, 1, 0.2, 0.2, 0.6, 0.6, 0, 0.0, 0.3, 0.4, 0.9]]


def test_detection_iterator(tmp_path):
    rec = records(tmp_path / "d.rec", [picture(30, 40, i) for i in range(2)], LABELS)
    it = mx.image.ImageDetIter(2, (3, 16, 16), path_imgrec=rec, path_imgidx=rec[:-3] + "idx")
    assert it.provide_label[0].shape == (2, 2, 5)
    batch = it.next()
    assert batch.data[0].shape == (2, 3, 16, 16)
    got = batch.label[0].asnumpy()
    np.testing.assert_allclose(got[0, 0], LABELS[0][2:], atol=1e-6)
    assert (got[0, 1] == -1).all()
    it.reset()
    it.reshape(label_shape=(4, 5))
    assert it.next().label[0].shape == (2, 4, 5)
    with pytest.raises(
        ValueError, match="invalid number of objects 1 in label_shape: expected at least 4"
    ):
        it.reshape(label_shape=(1, 5))
    it.reset()
    it.reshape(data_shape=(3, 20, 20))
    with pytest.raises(ValueError, match=r"\(16, 16, 3\) after the augmenters: expected \(20"):
        it.next()
    it.auglist = mx.image.CreateDetAugmenter((3, 20, 20))
    it.reset()
    assert it.next().data[0].shape == (2, 3, 20, 20)
    it.auglist = mx.image.CreateDetAugmenter((3, 16, 16))
    it.reshape(data_shape=(3, 16, 16))
    it.reset()
    drawn = list(it.draw_next(color=(255, 0, 0)))
    assert len(drawn) == 2 and drawn[0].shape == (16, 16, 3)
    bad = records(tmp_path / "b.rec", [picture(30, 40)], [[1, 2, 3.0]])
    with pytest.raises(mx.MXNetError, match="invalid label"):
        mx.image.ImageDetIter(1, (3, 16, 16), path_imgrec=bad)


def test_label_shapes_of_two_detection_iterators_are_made_equal(tmp_path):
    wide = [2, 6, 0, 0.1, 0.1, 0.5, 0.5, 7]
    iterators = []
    for i, labels in enumerate([LABELS, [wide]]):
        path = records(tmp_path / f"{i}.rec", [picture(30, 40) for _ in labels], labels)
        iterators.append(mx.image.ImageDetIter(1, (3, 16, 16), path_imgrec=path))
    assert [it.label_shape for it in iterators] == [(2, 5), (1, 6)]
    training, validation = iterators
    assert training.sync_label_shape(validation) is validation
    for it in iterators:
        assert it.label_shape == (2, 6)
        assert it.provide_label[0].shape == it.next().label[0].shape == (1, 2, 6)


@pytest.mark.parametrize("interp", [1, 3])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_halved_images_are_rounded_to_nearest(interp, channels):
    x = np.random.default_rng(channels).integers(0, 256, (40, 50, channels), dtype="uint8")
    got = mx.image.imresize(mx.nd.array(x, dtype="uint8"), 25, 20, interp=interp).asnumpy()
    four = x.reshape(20, 2, 25, 2, channels).sum((1, 3), dtype=int)
    np.testing.assert_array_equal(got, (four + 2) // 4)


def test_cubic_resizing_rounds_as_mxnet():
    blocks = np.kron(np.array([[3, 200, 90], [7, 50, 255]]), np.ones((4, 4))).astype("uint8")
    new = mx.image.imresize(mx.nd.array(blocks[:, :, None], dtype="uint8"), 8, 5, interp=2)
    assert new.asnumpy()[2, :, 0].tolist() == [5, 5, 32, 129, 123, 162, 172, 172]


@pytest.mark.parametrize("interp", [0, 3])
def test_enlarged_samples_begin_where_mxnet_begins_them(interp):
    row = mx.nd.array(np.arange(72)[None, :, None], dtype="uint8")
    new = mx.image.imresize(row, 224, 1, interp=interp).asnumpy().ravel()
    assert new[[83, 84, 85, 112, 140]].tolist() == [26, 26, 27, 36, 44]
