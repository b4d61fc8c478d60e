"""Data sets, samplers and loaders; workers that fail or die say so."""

import gzip
import multiprocessing
import os
import pickle
import re
import signal
import struct
from multiprocessing.pool import ThreadPool

import numpy as np
import processes
import pytest

import rsnet as mx
from rsnet import gluon, nd
from rsnet.gluon.data import (
    ArrayDataset,
    DataLoader,
    Dataset,
    SimpleDataset,
    batchify,
    sampler,
    vision,
)
from rsnet.recordio import IRHeader, MXIndexedRecordIO, pack

X = np.arange(20, dtype="float32").reshape(10, 2)
Y = np.arange(10)


def pairs():
    return ArrayDataset(nd.array(X), Y)


MODES = {
    "caller": {},
    "threads": {"num_workers": 2, "thread_pool": True},
    "processes": {"num_workers": 2},
}


# ---- loaders -----------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("mode", list(MODES))
def test_loaders_give_all_samples_in_order(mode):
    loader = DataLoader(pairs(), batch_size=4, **MODES[mode])
    assert len(loader) == 3
    for _ in range(2):
        found = list(loader)
        assert [x.shape for x, _ in found] == [(4, 2), (4, 2), (2, 2)]
        assert all(isinstance(a, nd.NDArray) for batch in found for a in batch)
        np.testing.assert_array_equal(np.concatenate([x.asnumpy() for x, _ in found]), X)
        assert np.concatenate([y.asnumpy() for _, y in found]).tolist() == Y.tolist()
        assert found[0][1].dtype == Y.dtype


@pytest.mark.process
@pytest.mark.parametrize("mode", list(MODES))
def test_samples_of_many_forms(mode):
    data = SimpleDataset([{"a": i, "b": (np.ones(3) * i, "text")} for i in range(4)])

    def together(samples):
        return {"a": np.array([s["a"] for s in samples]), "b": [s["b"] for s in samples]}

    loader = DataLoader(data, 2, batchify_fn=together, **MODES[mode])
    last = list(loader)[-1]
    assert np.array(last["a"].asnumpy() if mode == "processes" else last["a"]).tolist() == [2, 3]
    assert last["b"][1][1] == "text"


@pytest.mark.process
@pytest.mark.parametrize("mode", list(MODES))
def test_errors_of_data_sets_reach_the_caller(mode):
    data = SimpleDataset(range(10)).transform(lambda i: 1 // (i - 5))
    loader = DataLoader(data, 2, **MODES[mode])
    batches = iter(loader)
    assert next(batches).shape == (2,)
    with pytest.raises(ZeroDivisionError) as error:
        list(batches)
    if mode == "processes":
        assert "in <lambda>" in str(error.value.__cause__)
    ragged = DataLoader(SimpleDataset([np.ones(2), np.ones(3)]), 2, **MODES[mode])
    with pytest.raises(
        ValueError, match=r"shape \(3,\) of sample 1 .*: expected \(2,\), as of sample 0"
    ):
        list(ragged)


class Unportable(Exception):
    """Cannot be pickled: it has more arguments than it keeps."""

    def __init__(self, text, more):
        super().__init__(text)


def odd(i):
    raise Unportable(f"sample {i}", None)


@pytest.mark.process
@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("error", [ZeroDivisionError, Unportable])
def test_errors_of_data_sets_name_sample_and_worker(mode, error):
    change = odd if error is Unportable else lambda i: 1 // (i - 5)
    data = SimpleDataset([5]).transform(change)
    with pytest.raises((error, RuntimeError)) as caught:
        list(DataLoader(data, 2, **MODES[mode]))
    sample, *worker = caught.value.__notes__
    assert sample == "DataLoader: raised by sample 0 of the data set"
    assert len(worker) == (mode == "processes")
    assert all(re.fullmatch(r"DataLoader: in worker 0 \(process \d+\)", note) for note in worker)
    with pytest.raises(ZeroDivisionError) as caught:
        list(DataLoader(SimpleDataset([7, 8]), 2, batchify_fn=lambda _: 1 // 0, **MODES[mode]))
    assert caught.value.__notes__[0] == "DataLoader: raised as samples [0, 1] were made a batch"


@pytest.mark.process
def test_a_worker_that_dies_is_named():
    def die(i):
        if i == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    loader = DataLoader(SimpleDataset(range(8)).transform(die), 1, num_workers=2, timeout=60)
    with pytest.raises(RuntimeError, match=r"worker \d \(process \d+\) died with signal SIGKILL"):
        list(loader)
    loader = DataLoader(SimpleDataset([7]).transform(os._exit), 1, num_workers=1)
    with pytest.raises(RuntimeError, match="died with exit code 7 while it loaded batch 0"):
        list(loader)


@pytest.mark.process
@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_a_worker_that_is_too_slow_is_reported(mode):
    go_on = multiprocessing.Event()
    data = SimpleDataset([1]).transform(lambda x: go_on.wait() and x)
    loader = DataLoader(data, 1, timeout=0.2, **MODES[mode])
    with pytest.raises((TimeoutError, multiprocessing.TimeoutError), match=r"within 0\.2 seconds"):
        list(loader)
    go_on.set()


@pytest.mark.process
def test_epochs_may_end_early_and_overlap():
    loader = DataLoader(pairs(), 2, num_workers=2)
    for batch, _ in loader:
        assert batch.shape == (2, 2)
        break
    one, two = iter(loader), iter(loader)
    assert next(one)[1].asnumpy().tolist() == next(two)[1].asnumpy().tolist() == [0, 1]
    assert [y.asnumpy()[0] for _, y in one] == [2, 4, 6, 8]
    del loader, one, two
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    list(DataLoader(pairs(), 2, num_workers=1))
    if before:
        assert not {f for f in set(os.listdir("/dev/shm")) - before if f.startswith("psm_")}


@pytest.mark.process
def test_workers_compute_with_arrays_after_the_engine_was_used():
    (nd.ones((64, 64)) * 2).sum().asscalar()
    scale = nd.array([2.0])
    data = ArrayDataset(nd.array(X)).transform(lambda x: (x * scale).sum() + mx.nd.ones((1,)))
    found = np.concatenate([b.asnumpy() for b in DataLoader(data, 5, num_workers=2)])
    np.testing.assert_allclose(found[:, 0], X.sum(1) * 2 + 1)


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the program has no file to spawn from")
def test_nothing_is_left_of_batches_that_nobody_took():
    """Python's resource tracker would say so at the end."""
    program = """
        import numpy as np
        from rsnet import gluon

        class Images(gluon.data.Dataset):
            def __len__(self):
                return 40

            def __getitem__(self, i):
                if i == 5:
                    raise ValueError("item 5")
                return np.full((300, 300), i, "float32")

        try:
            list(gluon.data.DataLoader(Images(), 4, num_workers=2))
        except ValueError as error:
            print(error)
    """
    done = processes.run(program)
    assert (done.stdout.strip(), done.stderr.strip()) == ("item 5", "")


@pytest.mark.process
def test_workers_draw_different_numbers():
    data = SimpleDataset(range(4)).transform(lambda _: np.random.uniform())
    drawn = {b.asscalar() for b in DataLoader(data, 1, num_workers=4)}
    assert len(drawn) == 4
    np.random.seed(3)
    one = [b.asscalar() for b in DataLoader(data, 1, num_workers=1)]
    np.random.seed(3)
    assert one == [b.asscalar() for b in DataLoader(data, 1, num_workers=1)]


def test_shuffled_and_sampled():
    np.random.seed(0)
    loader = DataLoader(SimpleDataset(range(100)), 10, shuffle=True)
    one, two = (np.concatenate([b.asnumpy() for b in loader]) for _ in range(2))
    assert sorted(one) == sorted(two) == list(range(100)) and (one != two).any()
    batches = DataLoader(SimpleDataset(range(6)), batch_sampler=[[5, 0], [1]])
    assert [b.asnumpy().tolist() for b in batches] == [[5, 0], [1]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "expected a batch_size or a batch_sampler"),
        ({"batch_size": 1, "shuffle": True, "sampler": [0]}, "expected no shuffle"),
        ({"batch_size": 1, "batch_sampler": [[0]]}, "batch_sampler decides about batches"),
        ({"batch_size": 1, "last_batch": "x"}, "invalid last_batch 'x': expected one of"),
        ({"batch_size": 0}, "invalid batch_size 0"),
        ({"batch_size": 1, "timeout": 0}, "invalid timeout 0: expected a positive"),
        ({"batch_size": 1, "timeout": float("nan")}, "invalid timeout nan: expected a positive"),
    ],
)
def test_loaders_refuse_wrong_arguments(arguments, text):
    with pytest.raises((ValueError, AssertionError), match=text):
        DataLoader(pairs(), **arguments)


# ---- samplers and data sets --------------------------------------------------------------------


def test_last_batches():
    for last, expected in [
        ("keep", [[[0, 1], [2]], [[0, 1], [2]]]),
        ("discard", [[[0, 1]], [[0, 1]]]),
        ("rollover", [[[0, 1]], [[2, 0], [1, 2]]]),
    ]:
        batches = sampler.BatchSampler(sampler.SequentialSampler(3), 2, last)
        lengths = []
        for epoch in expected:
            lengths.append(len(batches))
            assert list(batches) == epoch
        assert lengths == [len(epoch) for epoch in expected]


def test_data_sets_are_transformed():
    data = SimpleDataset(list(range(10)))
    assert list(data.filter(lambda x: x % 2).take(2)) == [1, 3]
    assert [list(data.shard(3, i)) for i in range(3)] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert list(data.sample(gluon.contrib.data.IntervalSampler(10, 5))) == [
        0,
        5,
        1,
        6,
        2,
        7,
        3,
        8,
        4,
        9,
    ]
    assert ArrayDataset([1, 2], [3, 4]).transform_first(lambda x: -x)[1] == (-2, 4)
    calls = []
    eager = data.transform(lambda x: calls.append(x) or x, lazy=False)
    assert len(calls) == 10 and eager[3] == 3
    with pytest.raises(AssertionError, match="array 1 has length 2"):
        ArrayDataset([1], [1, 2])
    with pytest.raises(AssertionError, match="invalid index 3"):
        data.shard(3, 3)
    with pytest.raises(TypeError, match="invalid sampler .*: expected a gluon.data.Sampler"):
        data.sample([1])
    with pytest.raises(AssertionError, match="invalid interval 5: expected 1 to"):
        gluon.contrib.data.IntervalSampler(3, 5)


def test_batches_are_padded_and_grouped():
    padded, lengths = batchify.Pad(val=-1, ret_length=True)([[1, 2, 3], [4]])
    assert padded.asnumpy().tolist() == [[1, 2, 3], [4, -1, -1]]
    assert lengths.asnumpy().tolist() == [3, 1]
    group = batchify.Group(batchify.Stack(), batchify.AsList())
    stacked, listed = group([(np.ones(2), "a"), (np.zeros(2), "b")])
    assert stacked.shape == (2, 2) and listed == ["a", "b"]
    with pytest.raises(AssertionError, match="1 attributes: expected 2"):
        group([(1,)])
    with pytest.raises(ValueError, match="expected as many axes"):
        batchify.Pad()([np.ones(1), np.ones((1, 1))])
    assert pickle.loads(pickle.dumps(group))


# ---- files -------------------------------------------------------------------------------------


def write_idx(path, array):
    code = {"uint8": 8}[array.dtype.name]
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_digits_come_from_local_files(tmp_path):
    images = np.arange(2 * 28 * 28, dtype="uint8").reshape(2, 28, 28)
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.array([3, 7], dtype="uint8"))
    for make in (vision.MNIST, vision.FashionMNIST):
        data = make(str(tmp_path), train=False)
        image, label = data[1]
        assert len(data) == 2 and label == 7 and image.shape == (28, 28, 1)
        np.testing.assert_array_equal(image.asnumpy()[..., 0], images[1])
        with pytest.raises(FileNotFoundError, match="'train-images-idx3-ubyte.gz'.*nothing from a"):
            make(str(tmp_path))
    turned = vision.MNIST(str(tmp_path), False, transform=lambda x, y: (x.astype("float32"), -y))
    assert turned[0][1] == -3
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.array([3], dtype="uint8"))
    with pytest.raises(ValueError, match="2 images and 1 labels"):
        vision.MNIST(str(tmp_path), train=False)


def test_photographs_come_from_local_files(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 255, (3, 3074), dtype="uint8")
    (tmp_path / "test_batch.bin").write_bytes(rows[:, 1:].tobytes())
    data = vision.CIFAR10(str(tmp_path), train=False)
    image, label = data[2]
    assert label == rows[2, 1] and image.shape == (32, 32, 3)
    assert image.asnumpy()[4, 5].tolist() == rows[2, 2:].reshape(3, 32, 32)[:, 4, 5].tolist()
    (tmp_path / "test.bin").write_bytes(rows.tobytes())
    for fine in (False, True):
        assert vision.CIFAR100(str(tmp_path), fine, train=False)[1][1] == rows[1, int(fine)]
    (tmp_path / "test_batch.bin").write_bytes(b"short")
    with pytest.raises(ValueError, match="has 5 bytes, expected a multiple of 3073"):
        vision.CIFAR10(str(tmp_path), train=False)
    with pytest.raises(FileNotFoundError, match="data_batch_1.bin"):
        vision.CIFAR10(str(tmp_path))


def test_folders_are_classes(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", np.full((2, 2, 3), ord(name), dtype="uint8"))
    data = vision.ImageFolderDataset(str(tmp_path))
    assert data.synsets == ["a", "b"] and len(data) == 2
    image, label = data[1]
    assert label == 1 and image.asnumpy().max() == ord("b")
    (tmp_path / "a" / "note.txt").write_text("")
    with pytest.warns(UserWarning, match=r"Ignoring .*note.txt, of type .txt"):
        vision.ImageFolderDataset(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="expected a folder that exists"):
        vision.ImageFolderDataset(str(tmp_path / "none"))


@pytest.mark.process
def test_records_are_read_in_workers(tmp_path):
    record = MXIndexedRecordIO(str(tmp_path / "d.idx"), str(tmp_path / "d.rec"), "w")
    for i in range(6):
        record.write_idx(i, pack(IRHeader(0, float(i), i, 0), bytes([i])))
    record.close()
    data = gluon.data.RecordFileDataset(str(tmp_path / "d.rec"))
    last = data.transform(lambda content: content[-1])
    for workers in (0, 2):
        found = DataLoader(last, 2, num_workers=workers)
        assert np.concatenate([b.asnumpy() for b in found]).tolist() == list(range(6))
    with pytest.raises(FileNotFoundError, match="d.idx|none.rec"):
        gluon.data.RecordFileDataset(str(tmp_path / "none.rec"))


# ---- transforms --------------------------------------------------------------------------------

needs_image = pytest.mark.skipif(
    not hasattr(nd.image, "to_tensor"), reason="the operators on images are not registered"
)
PICTURE = np.random.default_rng(0).integers(0, 255, (8, 6, 3), dtype="uint8")


def picture():
    return nd.array(PICTURE, dtype="uint8")


def test_functions_and_blocks_are_composed():
    T = vision.transforms
    both = T.Compose([lambda x: x + 1, T.Cast("float32"), T.RandomApply(T.Cast("int32"), p=1)])
    found = both(nd.zeros((2,), dtype="uint8"))
    assert found.dtype == np.int32 and found.asnumpy().tolist() == [1, 1]
    kept = T.RandomApply(T.Cast("int32"), p=0)(nd.zeros((1,)))
    assert kept.dtype == np.float32
    grey = T.RandomGray(p=1)(picture()).asnumpy()
    np.testing.assert_allclose(grey[..., 0], PICTURE @ [0.299, 0.587, 0.114], rtol=1e-5)


@needs_image
def test_conversions_match_numpy():
    T = vision.transforms
    tensor = T.ToTensor()(picture())
    np.testing.assert_allclose(tensor.asnumpy(), PICTURE.transpose(2, 0, 1) / 255, rtol=1e-5)
    both = T.Compose([T.ToTensor(), T.Normalize((0.1, 0.2, 0.3), (1, 2, 3))])
    expected = (PICTURE / 255 - [0.1, 0.2, 0.3]) / [1, 2, 3]
    np.testing.assert_allclose(
        both(picture()).asnumpy(), expected.transpose(2, 0, 1), rtol=1e-4, atol=1e-6
    )


@needs_image
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda T: T.Resize(4), (4, 4, 3)),
        (lambda T: T.Resize((3, 5)), (5, 3, 3)),
        (lambda T: T.Resize(3, keep_ratio=True), (4, 3, 3)),
        (lambda T: T.CenterCrop((4, 2)), (2, 4, 3)),
        (lambda T: T.CenterCrop(12), (12, 12, 3)),
        (lambda T: T.RandomCrop(4, pad=2), (4, 4, 3)),
        (lambda T: T.RandomResizedCrop((5, 4)), (4, 5, 3)),
        (lambda T: T.CropResize(1, 2, 3, 4), (4, 3, 3)),
        (lambda T: T.CropResize(1, 2, 3, 4, (6, 5), 1), (5, 6, 3)),
        (lambda T: T.RandomFlipLeftRight(), (8, 6, 3)),
        (lambda T: T.RandomFlipTopBottom(), (8, 6, 3)),
        (lambda T: T.RandomBrightness(0.2), (8, 6, 3)),
        (lambda T: T.RandomContrast(0.2), (8, 6, 3)),
        (lambda T: T.RandomSaturation(0.2), (8, 6, 3)),
        (lambda T: T.RandomHue(0.2), (8, 6, 3)),
        (lambda T: T.RandomColorJitter(0.1, 0.1, 0.1, 0.1), (8, 6, 3)),
        (lambda T: T.RandomLighting(0.1), (8, 6, 3)),
    ],
)
def test_transforms_keep_dtypes(make, shape):
    np.random.seed(0)
    found = make(vision.transforms)(picture())
    assert found.shape == shape and found.dtype == np.uint8


@needs_image
def test_crops_of_small_images_are_those_of_the_functions():
    T = vision.transforms
    picture = nd.array(np.random.RandomState(0).randint(0, 255, (20, 30, 3)), dtype="uint8")
    want = mx.image.center_crop(picture, (40, 10), 1)[0]
    np.testing.assert_array_equal(T.CenterCrop((40, 10))(picture).asnumpy(), want.asnumpy())


def test_crops_are_where_they_should_be():
    T = vision.transforms
    np.testing.assert_array_equal(T.CenterCrop(2)(picture()).asnumpy(), PICTURE[3:5, 2:4])
    cropped = T.CropResize(1, 2, 3, 4)(picture())
    np.testing.assert_array_equal(cropped.asnumpy(), PICTURE[2:6, 1:4])


def test_rotations_check_their_arguments():
    T = vision.transforms
    with pytest.raises(TypeError, match="invalid dtype uint8 of the image: expected float32"):
        T.Rotate(90)(picture())
    with pytest.raises(ValueError, match="expected the lower angle first"):
        T.RandomRotation((20, 10))
    with pytest.raises(ValueError, match="invalid rotate_with_proba 2: expected"):
        T.RandomRotation((1, 2), rotate_with_proba=2)
    assert T.RandomRotation((1, 2), rotate_with_proba=0)(picture()).shape == (8, 6, 3)


@pytest.mark.process
def test_workers_find_what_the_data_set_has_computed():
    class Products(Dataset):
        def __init__(self):
            x = nd.random.uniform(shape=(300, 300))
            self.y = nd.dot(x, x)

        def __len__(self):
            return 8

        def __getitem__(self, i):
            return self.y[i] * 2

    products = Products()
    batches = list(DataLoader(products, 4, num_workers=2))
    np.testing.assert_allclose(batches[1].asnumpy(), products.y[4:].asnumpy()[:4] * 2, rtol=1e-6)


@pytest.mark.process
def test_threads_share_the_workers_of_a_loader():
    loader = DataLoader(ArrayDataset(np.arange(24, dtype="float32")), 4, num_workers=2)
    expected = [list(range(first, first + 4)) for first in range(0, 24, 4)]

    def epochs(_):
        return [[batch.asnumpy().tolist() for batch in loader] for _ in range(3)]

    with ThreadPool(4) as threads:
        assert threads.map(epochs, range(4)) == [[expected] * 3] * 4
