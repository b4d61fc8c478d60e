"""Arrays in files and pickles."""

import io
import os
import pickle
import struct
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from arrays import DTYPES, counting
from hypothesis import given
from hypothesis import strategies as st

import rsnet as mx
from rsnet import nd
from rsnet.ndarray import _io


def test_file_bytes(tmp_path):
    path = str(tmp_path / "a")
    nd.save(path, nd.array([[1, 2, 3]], dtype="int32"))
    want = struct.pack("<QQQ", 0x112, 0, 1) + struct.pack("<Iii", 0xF993FAC9, 0, 2)
    want += (
        struct.pack("<qqiii", 1, 3, 1, 0, 4) + struct.pack("<3i", 1, 2, 3) + struct.pack("<Q", 0)
    )
    data = Path(path).read_bytes()
    assert data == want and len(data) == 84


@pytest.mark.parametrize("dtype", DTYPES)
def test_save_and_load(tmp_path, dtype):
    path = str(tmp_path / "a")
    x = nd.array([[1, 0], [1, 1]], dtype=dtype)
    nd.save(path, {"arg:x": x, "aux:y": x[1]})
    loaded = nd.load(path)
    assert set(loaded) == {"arg:x", "aux:y"} and loaded["arg:x"].dtype is np.dtype(dtype).type
    np.testing.assert_array_equal(loaded["arg:x"].asnumpy(), x.asnumpy())
    nd.save(path, [x, x])
    assert len(nd.load(path)) == 2
    assert len(nd.load_frombuffer(Path(path).read_bytes())) == 2
    nd.save(path, [])
    assert nd.load(path) == []


def test_old_records():
    def file(record):
        return struct.pack("<QQQ", 0x112, 0, 1) + record + struct.pack("<Q", 0)

    data = struct.pack("<iii", 1, 0, 0) + struct.pack("<2f", 3, 4)
    v0 = struct.pack("<II", 1, 2) + data
    v1 = struct.pack("<IIq", 0xF993FAC8, 1, 2) + data
    v3 = struct.pack("<Iiiq", 0xF993FACA, 0, 1, 2) + data
    for record, np_shape in ((v0, False), (v1, False), (v3, True)):
        with mx.util.np_shape(np_shape):
            (x,) = nd.load_frombuffer(file(record))
        assert x.asnumpy().tolist() == [3, 4]
    assert nd.load_frombuffer(file(struct.pack("<Iii", 0xF993FAC9, 0, 0))) == [None]


@given(st.integers(0, 83), st.integers(0, 255))
def test_array_files_from_strangers(at, byte):
    good = struct.pack("<QQQ", 0x112, 0, 1) + struct.pack("<Iii", 0xF993FAC9, 0, 2)
    good += (
        struct.pack("<qqiii", 1, 3, 1, 0, 4) + struct.pack("<3i", 1, 2, 3) + struct.pack("<Q", 0)
    )
    broken = bytearray(good)
    broken[at] = byte
    for data in (bytes(broken), good[:at]):
        found = []
        for reader in (_io._Reader(data, "name"), opened(data, len(data))):
            try:
                loaded = _io._parse(reader)
                found.append([None if x is None else x.asnumpy().tobytes() for x in loaded])
            except mx.MXNetError as error:
                found.append(str(error))
        assert found[0] == found[1]


def opened(data, size):
    """A reader of a file with these bytes, which was `size` bytes long when it was opened."""
    return _io._FileReader(io.BufferedReader(io.BytesIO(data)), size, "name")


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path):
    path = tmp_path / "a"
    nd.save(path, [nd.ones((100,)), nd.ones((1, 3))[0:0]])
    data = path.read_bytes()
    with pytest.raises(mx.MXNetError, match="expected 400 bytes, the file ended after 40"):
        _io._parse(opened(data[: data.index(struct.pack("<f", 1)) + 40], len(data)))
    with pytest.raises(mx.MXNetError, match="names: expected 8 bytes, the file ended after 0"):
        _io._parse(opened(data[:-8], len(data)))
    assert [x.shape for x in _io._parse(opened(data, len(data)))] == [(100,), (0, 3)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_arrays_from_a_pipe(tmp_path):
    path, pipe = tmp_path / "a", tmp_path / "pipe"
    nd.save(path, {"x": nd.arange(5)})
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[path.read_bytes()])
    writer.start()
    assert nd.load(pipe)["x"].asnumpy().tolist() == [0, 1, 2, 3, 4]
    writer.join()


def test_what_save_refuses(tmp_path):
    path = str(tmp_path / "a")
    with pytest.raises(ValueError, match="expected an NDArray, or a list or dict"):
        nd.save(path, (nd.ones((1,)),))
    with pytest.raises(TypeError, match=r"invalid names of data \[1\]: expected strings"):
        nd.save(path, {1: nd.ones((1,))})
    with pytest.raises(TypeError, match="invalid item of data 3"):
        nd.save(path, [3])


def test_an_array_that_failed_leaves_the_older_file(tmp_path):
    path = tmp_path / "a"
    nd.save(path, [nd.ones((2,))])
    older = path.read_bytes()
    failed = nd.contrib.index_copy(nd.zeros((3,)), nd.array([5]), nd.array([1]))
    with pytest.raises(mx.MXNetError, match="index_copy"):
        nd.save(path, [nd.zeros((9,)), failed])
    assert path.read_bytes() == older


def test_a_file_is_written_array_by_array(tmp_path):
    """The memory is that of one array, however many there are."""
    arrays = {f"x{i}": nd.full((1 << 18,), i) for i in range(8)}
    tracemalloc.start()
    nd.save(tmp_path / "a", arrays)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 << 20
    for name, array in nd.load(tmp_path / "a").items():
        assert (array.asnumpy() == arrays[name].asnumpy()).all()


def test_pickle():
    x = nd.array(counting(2, 3))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)).asnumpy(), x.asnumpy())
