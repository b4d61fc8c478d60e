"""`ImageRecordIter` and its kin."""

import contextlib
import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from images import encoded, picture, records

import rsnet as mx

SHAPE = (3, 20, 16)


@pytest.fixture(scope="module")
def rec(tmp_path_factory):
    images = [picture(30 + i, 26, i) for i in range(10)]
    return records(tmp_path_factory.mktemp("records") / "x.rec", images)


def make(path, batch_size=4, data_shape=SHAPE, kind="ImageRecordIter", **options):
    iterator = getattr(mx.io, kind)
    return iterator(path_imgrec=path, batch_size=batch_size, data_shape=data_shape, **options)


def labels(iterator):
    return [batch.label[0].asnumpy().tolist() for batch in iterator]


def middle(image, height=20, width=16):
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width].transpose(2, 0, 1)


def test_a_batch_holds_the_middle_of_its_images(rec):
    it = make(rec)
    assert it.provide_data[0].shape == (4, *SHAPE) and it.provide_label[0].shape == (4,)
    batch = it.next()
    want = np.stack([middle(picture(30 + i, 26, i)) for i in range(4)])
    np.testing.assert_array_equal(batch.data[0].asnumpy(), want.astype("float32"))
    assert batch.index.tolist() == [0, 1, 2, 3] and batch.pad == 0


# Read off MXNet 1.9.1.
def test_the_last_batch_takes_the_head_of_the_next_epoch(rec):
    it = make(rec)
    epochs = []
    for _ in range(3):
        epochs.append(labels(it))
        it.reset()
    first = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert epochs == [first, [[2, 3, 4, 5], [6, 7, 8, 9]], first]
    assert [batch.pad for batch in it] == [0, 0]


def test_without_rounding_the_last_batch_ends_with_zeros(rec):
    it = make(rec, round_batch=False)
    for _ in range(2):
        batches = list(it)
        assert [b.pad for b in batches] == [0, 0, 2]
        assert batches[2].label[0].asnumpy().tolist() == [8, 9, 0, 0]
        assert (batches[2].data[0].asnumpy()[2:] == 0).all()
        it.reset()


@pytest.mark.parametrize("threads", [1, 3])
def test_shuffling_visits_every_image_and_depends_on_the_seed_alone(rec, threads):
    def epochs(seed):
        it = make(rec, 5, shuffle=True, seed=seed, preprocess_threads=threads, rand_crop=True)
        out = []
        for _ in range(3):
            batches = list(it)
            out.append([x for b in batches for x in b.label[0].asnumpy().tolist()])
            out.append(
                np.concatenate([b.data[0].asnumpy() for b in batches]).sum((1, 2, 3)).tolist()
            )
            it.reset()
        return out

    first = epochs(1)
    assert first == epochs(1)
    assert first != epochs(2)
    assert all(sorted(order) == list(range(10)) for order in first[::2])
    assert first[0] != first[2]


def test_parts_divide_the_records(rec):
    seen = [labels(make(rec, 1, num_parts=3, part_index=i)) for i in range(3)]
    assert [[x[0] for x in part] for part in seen] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with pytest.raises(mx.MXNetError, match="part_index.*less than num_parts, 3"):
        make(rec, num_parts=3, part_index=3)
    with pytest.raises(mx.MXNetError, match="has no records"):
        make(rec, num_parts=11, part_index=10)


def test_a_file_without_a_record_that_can_be_read(tmp_path):
    path = tmp_path / "x.rec"
    path.write_bytes(b"")
    with pytest.raises(OSError, match=r"'.*x.rec' has no records, expected one at least"):
        make(str(path))
    path.write_bytes(b"no record file")
    with pytest.raises(OSError, match="no record that can be read.*offset 0 begins with"):
        make(str(path), damaged="skip")
    with pytest.raises(OSError, match="a folder, expected a file"):
        make(str(tmp_path))


def test_with_and_without_an_index(rec, tmp_path):
    bare = tmp_path / "bare.rec"
    bare.write_bytes(Path(rec).read_bytes())
    idx = rec[:-3] + "idx"
    want = labels(make(rec, path_imgidx=idx))
    assert labels(make(str(bare))) == want
    # An index of another file is not believed.
    (tmp_path / "bare.idx").write_text("0\t0\n1\t64\n")
    assert labels(make(str(bare))) == want
    with pytest.raises(mx.MXNetError, match="nosuch.idx"):
        make(rec, path_imgidx=str(tmp_path / "nosuch.idx"))
    assert len(labels(make(f"{rec};{bare}", 10))) == 2


def test_numbers_of_pixels(rec):
    plain = make(rec).next().data[0].asnumpy()
    it = make(rec, mean_r=10, mean_g=20, mean_b=30, std_r=2, std_g=3, std_b=4, scale=0.5)
    mean, std = (np.array(v).reshape(3, 1, 1) for v in ([10, 20, 30], [2, 3, 4]))
    np.testing.assert_allclose(it.next().data[0].asnumpy(), (plain - mean) / std / 2, rtol=1e-5)
    mirrored = make(rec, mirror=True).next().data[0].asnumpy()
    np.testing.assert_array_equal(mirrored, plain[..., ::-1])
    either = make(rec, rand_mirror=True, seed=3).next().data[0].asnumpy()
    for got, a, b in zip(either, plain, mirrored, strict=True):
        assert (got == a).all() or (got == b).all()
    grey = make(rec, data_shape=(1, 20, 16)).next().data[0].asnumpy()
    luma = np.tensordot(plain, [0.299, 0.587, 0.114], (1, 0))[:, None]
    assert np.abs(grey - luma).max() <= 1


def test_integers(rec):
    plain = make(rec).next().data[0].asnumpy()
    unsigned = make(rec, kind="ImageRecordUInt8Iter")
    assert unsigned.provide_data[0].dtype is np.uint8
    np.testing.assert_array_equal(unsigned.next().data[0].asnumpy(), plain.astype("uint8"))
    signed = make(rec, kind="ImageRecordInt8Iter").next().data[0].asnumpy()
    np.testing.assert_array_equal(signed, np.minimum(plain, 127).astype("int8"))
    means = {"mean_r": 99.4, "mean_g": 100, "mean_b": 240}
    centred = make(rec, kind="ImageRecordInt8Iter", **means)
    assert centred.provide_data[0].dtype is np.int8
    want = np.rint(plain - np.array([99.4, 100, 240]).reshape(3, 1, 1)).clip(-128, 127)
    np.testing.assert_array_equal(centred.next().data[0].asnumpy(), want.astype("int8"))
    for dtype in ("uint8", "float16", "float64", "int32"):
        batches = make(rec, dtype=dtype)
        got = batches.next().data[0]
        assert batches.provide_data[0].dtype is got.dtype
        assert got.dtype is np.dtype(dtype).type
        np.testing.assert_array_equal(got.asnumpy(), plain.astype(dtype))
    with pytest.warns(UserWarning, match="mean_r"):
        make(rec, kind="ImageRecordUInt8Iter", mean_r=3)


def test_the_mean_image_is_made_and_read(rec, tmp_path):
    path = str(tmp_path / "mean.bin")
    plain = np.concatenate([b.data[0].asnumpy() for b in make(rec, 5)])
    for _ in range(2):
        got = np.concatenate([b.data[0].asnumpy() for b in make(rec, 5, mean_img=path, scale=2)])
        np.testing.assert_allclose(got, 2 * (plain - plain.mean(0)), atol=1e-3)
    np.testing.assert_allclose(mx.nd.load(path)["mean_img"].asnumpy(), plain.mean(0), rtol=1e-5)
    with pytest.raises(mx.MXNetError, match="mean_img"):
        make(rec, data_shape=(3, 8, 8), mean_img=path)


def test_resizing_and_padding(rec):
    by_hand = mx.image.resize_short(mx.nd.array(picture(30, 26, 0), dtype="uint8"), 22, 1).asnumpy()
    got = make(rec, resize=22).next().data[0].asnumpy()[0]
    np.testing.assert_array_equal(got, middle(by_hand))
    padded = make(rec, data_shape=(3, 40, 36), pad=5, fill_value=9).next().data[0].asnumpy()[0]
    assert (padded[:, :5] == 9).all() and (padded[:, :, -5:] == 9).all()
    np.testing.assert_array_equal(padded[:, 5:-5, 5:-5], picture(30, 26, 0).transpose(2, 0, 1))
    large = make(rec, data_shape=(3, 60, 60)).next().data[0]
    assert large.shape == (4, 3, 60, 60)
    part = make(rec, max_crop_size=20, min_crop_size=20, data_shape=(3, 10, 10)).next()
    assert part.data[0].shape == (4, 3, 10, 10)


@pytest.mark.parametrize(
    "options",
    [
        {"rotate": 30},
        {"max_rotate_angle": 30, "max_shear_ratio": 0.2, "inter_method": 0},
        {"max_aspect_ratio": 0.3, "min_random_scale": 0.7, "max_random_scale": 1.4},
        {"random_resized_crop": True, "min_random_area": 0.1, "max_aspect_ratio": 0.25},
        {"rand_crop": True, "rand_mirror": True, "inter_method": 10, "resize": 24},
        {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "pca_noise": 0.1},
        {"random_h": 36, "random_s": 50, "random_l": 50},
        {"max_random_contrast": 0.3, "max_random_illumination": 20},
        {"max_img_size": 24.0, "min_img_size": 22.0},
        {"min_crop_size": 10, "max_crop_size": 24, "rand_crop": True},
    ],
)
def test_augmentations_give_images_that_differ_by_epoch(rec, options):
    it = make(rec, 10, **options)
    first = it.next().data[0].asnumpy()
    it.reset()
    second = it.next().data[0].asnumpy()
    assert np.isfinite(first).all() and first.std() > 5
    random = set(options) - {"rotate", "max_img_size", "min_img_size"}
    assert (first != second).any() == bool(random)
    again = make(rec, 10, **options).next().data[0].asnumpy()
    np.testing.assert_array_equal(first, again)


def test_labels(rec, tmp_path):
    many = [[i, i + 0.5, 2.0] for i in range(3)]
    path = records(tmp_path / "m.rec", [picture(20, 16, i) for i in range(3)], many)
    batch = make(path, 3, label_width=3).next()
    np.testing.assert_array_equal(batch.label[0].asnumpy(), np.array(many, "float32"))
    with pytest.raises(mx.MXNetError, match="label_width.*expected 3"):
        make(path, 3).next()
    lst = tmp_path / "x.lst"
    lst.write_text("".join(f"{i}\t{i * 10}\tx\n" for i in range(10)))
    assert labels(make(rec, 5, path_imglist=str(lst)))[0] == [0, 10, 20, 30, 40]
    lst.write_text("0\t1\tx\n")
    with pytest.raises(mx.MXNetError, match="invalid id 1 of an image: expected one of those"):
        make(rec, path_imglist=str(lst)).next()
    lst.write_text("zero\t1\tx\n")
    with pytest.raises(mx.MXNetError, match="line 1"):
        make(rec, path_imglist=str(lst))


@pytest.fixture
def damaged(tmp_path):
    images = [picture(20, 16, i) for i in range(8)]
    images[2] = b"no image"
    images[5] = encoded(images[5], "jpeg")[:100]
    path = records(tmp_path / "bad.rec", images)
    data = bytearray(Path(path).read_bytes())
    lines = Path(path[:-3] + "idx").read_text().splitlines()
    offsets = [int(line.split()[1]) for line in lines]
    data[offsets[6]] ^= 255
    Path(path).write_bytes(data)
    os.remove(path[:-3] + "idx")
    return path, offsets


def test_damaged_records_are_errors_that_name_file_and_offset(damaged):
    path, offsets = damaged
    with pytest.raises(mx.MXNetError, match=rf"bad\.rec.*offset {offsets[6]}") as caught:
        make(path)
    assert "damaged='skip'" in caught.value.__notes__[0]
    os.truncate(path, offsets[6])
    it = make(path, 2)
    assert it.next().label[0].asnumpy().tolist() == [0, 1]
    for _ in range(2):
        with pytest.raises(mx.MXNetError, match=rf"bad\.rec.*offset {offsets[2]}"):
            it.next()
    it.reset()
    assert it.next().label[0].asnumpy().tolist() == [0, 1]


def test_damaged_records_are_skipped_and_counted(damaged):
    path, _ = damaged
    it = make(path, 2, damaged="skip", round_batch=False)
    with pytest.warns(UserWarning, match=r"skipped 3 damaged records.*bad\.rec") as warned:
        seen = labels(it)
    assert seen == [[0, 1], [3, 4], [7, 0]]
    assert warned[0].filename == __file__
    assert it.skipped == 3
    images = [b"x", b"y"]
    hopeless = make(records(path + "2.rec", images), 2, damaged="skip")
    with pytest.raises(OSError, match="no record of the epoch can be used") as caught:
        hopeless.next()
    assert not hasattr(caught.value, "__notes__")


def test_skipping_is_not_advised_where_it_does_not_help(rec):
    with pytest.raises(ValueError, match="x.rec: the record at offset 0.*'label_width'") as caught:
        make(rec, label_width=3).next()
    assert not hasattr(caught.value, "__notes__")


def test_ids_of_64_bits(tmp_path):
    path = str(tmp_path / "x.rec")
    ids = [1, (1 << 64) - 1]
    with contextlib.closing(mx.recordio.MXRecordIO(path, "w")) as file:
        for i in ids:
            header = mx.recordio.IRHeader(0, 0.0, i, 0)
            file.write(mx.recordio.pack(header, encoded(picture(20, 16))))
    assert make(path, 2).next().index.tolist() == ids


@pytest.mark.parametrize("seed", range(40))
def test_damaged_bytes_never_do_more_than_that(tmp_path, seed):
    rng = np.random.RandomState(seed)
    path = records(tmp_path / "f.rec", [picture(20, 16, i) for i in range(4)], kind="jpeg")
    os.remove(path[:-3] + "idx")
    data = bytearray(Path(path).read_bytes())
    for _ in range(rng.randint(1, 30)):
        data[rng.randint(len(data))] = rng.randint(256)
    Path(path).write_bytes(data[: len(data) - rng.randint(0, 200)])
    try:
        it = make(path, 2, damaged="skip", label_width=1)
        for _ in range(3):
            it.iter_next()
            it.reset()
    except mx.MXNetError as error:
        assert str(error)
    except UserWarning:
        pass


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"path_imgrec": "nosuch.rec"}, "nosuch.rec"),
        ({"path_imgrec": ""}, "path_imgrec"),
        ({"data_shape": (20, 16)}, "channels, height, width"),
        ({"data_shape": (2, 20, 16)}, "1, 3 or 4 channels"),
        ({"data_shape": (3, 0, 16)}, "height and a width"),
        ({"batch_size": 0}, "batch_size"),
        ({"preprocess_threads": 0}, "preprocess_threads"),
        ({"inter_method": 7}, "inter_method"),
        ({"std_r": 0}, "std_r"),
        ({"damaged": "ignore"}, "damaged"),
        ({"fill_value": 300}, "fill_value"),
        ({"label_width": 0}, "label_width"),
        ({"min_random_scale": -1}, "min_random_scale"),
        ({"max_crop_size": 5, "min_crop_size": 9}, "min_crop_size"),
        ({"resize": "x"}, "resize"),
    ],
)
def test_bad_arguments_are_refused(rec, options, says):
    options = {"path_imgrec": rec, "batch_size": 2, "data_shape": SHAPE, **options}
    with pytest.raises(mx.MXNetError, match=says):
        mx.io.ImageRecordIter(**options)


def test_sizes_that_no_image_can_have_are_errors(rec):
    for options in ({"resize": 10**9}, {"pad": 10**9}, {"min_img_size": 1e9}):
        with pytest.raises(mx.MXNetError, match="expected at most"):
            make(rec, **options).next()
    with pytest.raises(mx.MXNetError, match="expected at least 1000 by 1000"):
        make(rec, max_crop_size=1000, min_crop_size=1000).next()


def test_missing_required_and_unknown_arguments(rec):
    with pytest.raises(mx.MXNetError, match="missing parameter 'batch_size'"):
        mx.io.ImageRecordIter(path_imgrec=rec, data_shape=SHAPE)
    with pytest.warns(UserWarning, match="no use for the arguments: nosuch"):
        make(rec, nosuch=3)
    named = make(rec, data_name="d", label_name="l")
    assert named.provide_data[0].name == "d" and named.provide_label[0].name == "l"


def test_iterators_stop_early_and_begin_again(rec):
    before = threading.active_count()
    for taken in range(4):
        it = make(rec, 2)
        for _ in range(taken):
            it.next()
        it.reset()
        assert labels(it)[-1][0] in (6.0, 8.0)
    it = make(rec, 2, prefetch_buffer=1)
    it.next()
    it.reset()
    assert labels(it) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    for _ in range(20):
        make(rec, 2).next()
    gc.collect()
    assert threading.active_count() == before
    it.close()
    it.close()
    with pytest.raises(mx.MXNetError, match="closed"):
        it.next()


def test_batches_outlive_their_iterator(rec):
    it = make(rec, 2)
    batch = it.next()
    want = batch.data[0].asnumpy().copy()
    del it
    gc.collect()
    others = [mx.nd.ones((2, *SHAPE)) for _ in range(20)]
    np.testing.assert_array_equal(batch.data[0].asnumpy(), want)
    assert len(others) == 20


def test_several_threads_share_an_iterator(rec):
    it, seen = make(rec, 1), []

    def take():
        while it.iter_next():
            seen.append(1)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_the_child_makes_its_own(rec):
    it = make(rec, 2)
    it.next()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            try:
                it.next()
            except mx.MXNetError as error:
                own = make(rec, 2)
                ok = "before a fork" in str(error)
                ok = ok and own.next().label[0].asnumpy().tolist() == [0, 1]
                del own, it
                gc.collect()
                code = 0 if ok else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert it.next().label[0].asnumpy().tolist() == [2, 3]


def test_prefetching_and_resizing_iterators_take_them(rec):
    it = mx.io.ResizeIter(make(rec, 2), 3)
    assert len(list(it)) == 3
    it = mx.io.PrefetchingIter(make(rec, 2))
    assert len(list(it)) == 5


OBJECTS = [
    [2, 5, 0, 0.1, 0.1, 0.5, 0.5],
    [2, 5, 1, 0.2, 0.2, 0.6, 0.6, 0, 0.0, 0.3, 0.4, 0.9],
    [4, 5, 120, 97, 2, 0.3, 0.3, 0.9, 0.8],
]


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    images = [picture(48, 40, i) for i in range(3)]
    return records(tmp_path_factory.mktemp("boxes") / "d.rec", images, OBJECTS)


# Read off MXNet 1.9.1.
def test_labels_of_objects(boxes):
    it = make(boxes, 3, (3, 24, 20), "ImageDetRecordIter")
    assert it.provide_label[0].shape == (3, 16)
    got = it.next().label[0].asnumpy()
    for row, label in zip(got, OBJECTS, strict=True):
        want = [3, 24, 20, len(label), *label]
        np.testing.assert_allclose(row, want + [-1] * (16 - len(want)), atol=1e-6)
    wide = make(boxes, 3, (3, 24, 20), "ImageDetRecordIter", label_pad_width=20, label_pad_value=-2)
    assert wide.next().label[0].asnumpy()[0, -1] == -2
    with pytest.raises(mx.MXNetError, match="label_pad_width.*at least 12"):
        make(boxes, 3, (3, 24, 20), "ImageDetRecordIter", label_pad_width=5)


def test_boxes_follow_their_pixels(boxes):
    shape = (3, 24, 20)
    plain = make(boxes, 3, shape, "ImageDetRecordIter").next()
    flipped = make(boxes, 3, shape, "ImageDetRecordIter", rand_mirror_prob=1.0).next()
    np.testing.assert_allclose(
        flipped.data[0].asnumpy(), plain.data[0].asnumpy()[..., ::-1], atol=1.0
    )
    np.testing.assert_allclose(flipped.label[0].asnumpy()[0, 7:11], [0.5, 0.1, 0.9, 0.5], atol=1e-6)
    fitted = make(boxes, 3, (3, 24, 30), "ImageDetRecordIter", resize_mode="fit").next()
    assert fitted.label[0].asnumpy()[0, 1:3].tolist() == [24, 20]
    np.testing.assert_array_equal(fitted.data[0].asnumpy()[..., :20], plain.data[0].asnumpy())
    assert (fitted.data[0].asnumpy()[..., 20:] == 0).all()
    shrunk = make(boxes, 3, (3, 99, 99), "ImageDetRecordIter", resize_mode="shrink").next()
    assert shrunk.label[0].asnumpy()[0, 1:3].tolist() == [48, 40]


@pytest.mark.parametrize(
    "options",
    [
        {"rand_crop_prob": 1.0, "min_crop_scales": (0.3,), "min_crop_object_coverages": (0.5,)},
        {
            "rand_crop_prob": 1.0, "num_crop_sampler": 2, "min_crop_scales": (0.2, 0.5),
            "min_crop_overlaps": (0.1, 0.3), "crop_emit_mode": "overlap",
        },
        {"rand_pad_prob": 1.0, "max_pad_scale": 3.0},
        {
            "max_random_hue": 30, "random_hue_prob": 1.0, "max_random_contrast": 0.5,
            "random_contrast_prob": 1.0, "max_random_illumination": 30,
            "random_illumination_prob": 0.5, "max_random_saturation": 30,
            "random_saturation_prob": 0.5,
        },
    ],
)  # fmt: skip
def test_augmentations_of_objects(boxes, options):
    it = make(boxes, 3, (3, 24, 20), "ImageDetRecordIter", **options)
    for _ in range(5):
        batch = it.next()
        for row in batch.label[0].asnumpy():
            count, header = int(row[3]), int(row[4])
            objects = row[4 + header : 4 + count].reshape(-1, 5)
            assert len(objects)
            assert (objects[:, 1:] >= 0).all() and (objects[:, 1:] <= 1).all()
            assert (objects[:, 3:] > objects[:, 1:3]).all()
        it.reset()


def test_bad_labels_and_arguments_of_objects(boxes, tmp_path):
    bad = records(tmp_path / "b.rec", [picture(20, 20)], [[1, 2, 3.0]])
    with pytest.raises(mx.MXNetError, match=r"offset 0.*invalid label"):
        make(bad, 1, SHAPE, "ImageDetRecordIter").next()
    with pytest.raises(mx.MXNetError, match="min_crop_scales.*num_crop_sampler"):
        make(boxes, 1, SHAPE, "ImageDetRecordIter", min_crop_scales=(0.1, 0.2))
    with pytest.raises(mx.MXNetError, match="crop_emit_mode"):
        make(boxes, 1, SHAPE, "ImageDetRecordIter", crop_emit_mode="x")
