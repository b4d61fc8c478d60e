"""Tables from strangers: whatever their bytes, reading gives an error of rsnet's or an array."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import rsnet as mx
from rsnet.io.files import read_idx

# The folder is that of the test; every example writes its own file.
settings_of_files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

CELLS = st.one_of(
    st.floats().map(repr), st.integers().map(str), st.text(max_size=5),
    st.sampled_from(["", " ", "1e999", "0x1", "1:2", "-1:3", "99999999999999999999:1", ":", "#",
        "\0"]),
)  # fmt: skip


def lines_of(separator):
    line = st.lists(CELLS, max_size=5).map(separator.join)
    text = st.lists(line, max_size=5).map("\n".join)
    return st.one_of(text.map(lambda t: t.encode("utf-8", "replace")), st.binary(max_size=60))


def write(path, data):
    path.write_bytes(data)
    return str(path)


@settings_of_files
@given(lines_of(","), st.sampled_from(["float32", "int32"]))
@example(b"1,2,3\n", "float32")
@example(b"1e999,nan,3\n", "int32")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_csv_from_strangers(tmp_path, data, dtype):
    path = write(tmp_path / "x.csv", data)
    try:
        rows = mx.io.CSVIter(data_csv=path, data_shape=(3,), batch_size=1, dtype=dtype)
    except mx.MXNetError as error:
        assert path in str(error)
        return
    assert [batch.data[0].shape for batch in rows] == [(1, 3)] * len(data.split())


@settings_of_files
@given(lines_of(" "))
@example(b"1 0:1 2:nan\n")
@example(b"1 2:1e999 # a comment\n")
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_libsvm_from_strangers(tmp_path, data):
    path = write(tmp_path / "x.svm", data)
    try:
        rows = mx.io.LibSVMIter(data_libsvm=path, data_shape=(3,), batch_size=1)
    except mx.MXNetError as error:
        assert path in str(error)
        return
    batches = list(rows)
    assert batches and all(batch.data[0].shape == (1, 3) for batch in batches)


EDITS = st.lists(
    st.tuples(st.integers(0, 40), st.binary(max_size=4), st.integers(0, 4)), max_size=4
)
IDX = struct.pack(">HBBII", 0, 8, 2, 3, 4) + bytes(range(12))


@settings_of_files
@given(EDITS, st.booleans())
@example([(3, b"\xff", 1), (4, bytes(4 * 255), 0)], False)  # more axes than arrays have
@example([(20, b"\0\0\0", 3)], True)  # the compressed stream itself is damaged
def test_idx_from_strangers(tmp_path, edits, packed):
    data = gzip.compress(IDX, mtime=0) if packed else IDX
    for at, new, dropped in edits:
        data = data[:at] + new + data[at + dropped :]
    path = write(tmp_path / "x.idx", data)
    try:
        found = read_idx(path)
    except mx.MXNetError as error:
        assert path in str(error)
        return
    assert isinstance(found, np.ndarray)
