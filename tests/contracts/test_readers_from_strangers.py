"""Readers of files from strangers against every kind of damage: each gives what can be used, or
raises what its documentation says.

`make fuzz` runs these with many thousands of examples, and others on every run.
"""

import gzip
import io
import json
import re
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rsnet as mx
from rsnet import recordio
from rsnet.gluon import nn
from rsnet.gluon.contrib.data.text import WikiText2
from rsnet.gluon.data.vision import CIFAR10, MNIST, ImageFolderDataset
from rsnet.image.list_files import images_by_id
from rsnet.io.files import read_idx


class Reader(NamedTuple):
    """How a kind of file is read: the first of the files is damaged, the others are whole."""

    files: dict[str, bytes]
    read: Callable[[Path], Any]
    raises: type[Exception] | tuple[type[Exception], ...]


PAYLOADS = [b"one", recordio.MAGIC * 2 + b"two", b""]
RECORDS = b"".join(map(recordio.encode, PAYLOADS))
STARTS = np.cumsum([0, *(len(recordio.encode(payload)) for payload in PAYLOADS)]).tolist()
PICTURE = np.arange(48, dtype="uint8").reshape(4, 4, 3)
LABELLED = recordio.pack_img(recordio.IRHeader(0, [1.0, 2.0], 3, 0), PICTURE, 3, ".png")


def idx_file(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def npy_file(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def archive(*members, data=b""):
    """An archive of files, given by name and further properties, of which each has this data."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, properties in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in properties.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(file.getvalue(), mtime=0)


def network():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=4, activation="relu"), nn.Dense(2, in_units=3))
    return net


@pytest.fixture(scope="module", autouse=True)
def _saved_network(tmp_path_factory):
    """The files of a network, which are made once."""
    prefix = tmp_path_factory.mktemp("saved") / "net"
    net = network()
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((2, 4)))
    net.save(str(prefix))
    for name in ("net-model.json", "net-model.params"):
        SAVED[name] = prefix.with_name(name).read_bytes()


SAVED: dict[str, bytes] = {"net-model.json": b"", "net-model.params": b""}


def records_in(folder):
    with recordio.MXRecordIO(str(folder / "x.rec"), "r") as file:
        while file.read() is not None:
            pass


def indexed_records_in(folder):
    with recordio.MXIndexedRecordIO(str(folder / "x.idx"), str(folder / "x.rec"), "r") as file:
        for key in file.keys:
            file.read_idx(key)


def folder_of_arrays(folder):
    image, label = ImageFolderDataset(str(folder))[0]
    assert image.asnumpy().nbytes <= (folder / "class" / "x.npy").stat().st_size and label == 0


def embedding_in(folder):
    found = mx.contrib.text.embedding.CustomEmbedding(str(folder / "x.txt"))
    assert found.idx_to_vec.shape == (len(found), found.vec_len)


def network_in(folder):
    net = network()
    net.load(str(folder / "net"))
    assert net(mx.nd.ones((2, 4))).shape == (2, 2)


INDEX = "".join(f"{key}\t{start}\n" for key, start in enumerate(STARTS[:-1])).encode()
CIFAR = bytes(2 * 3073)
READERS = {
    "records": Reader({"x.rec": RECORDS}, records_in, mx.MXNetError),
    "index": Reader({"x.idx": INDEX, "x.rec": RECORDS}, indexed_records_in, mx.MXNetError),
    "payload": Reader(
        {"x": LABELLED},
        lambda folder: recordio.unpack_img((folder / "x").read_bytes()),
        mx.MXNetError,
    ),
    "list": Reader(
        {"x.lst": b"0\t1.0\t2.0\ta.jpg\n3\t0.5\t1\tb.jpg\n"},
        lambda folder: images_by_id(str(folder / "x.lst")),
        mx.MXNetError,
    ),
    "idx": Reader(
        {"x": gzip.compress(idx_file(PICTURE), mtime=0)},
        lambda folder: read_idx(str(folder / "x")),
        mx.MXNetError,
    ),
    "MNIST": Reader(
        {
            "t10k-images-idx3-ubyte": idx_file(PICTURE),
            "t10k-labels-idx1-ubyte": idx_file(np.arange(4, dtype="uint8")),
        },
        lambda folder: MNIST(str(folder), train=False),
        (ValueError, mx.MXNetError),
    ),
    "CIFAR": Reader(
        {"test_batch.bin": CIFAR}, lambda folder: CIFAR10(str(folder), train=False), ValueError
    ),
    "archive": Reader(
        {"cifar-10-binary.tar.gz": archive(("a/test_batch.bin", {}), data=CIFAR)},
        lambda folder: CIFAR10(str(folder), train=False),
        ValueError,
    ),
    "array": Reader({"class/x.npy": npy_file(PICTURE)}, folder_of_arrays, ValueError),
    "embedding": Reader(
        {"x.txt": b"a 0.5 1 2\nb 3 -1e3 5\n<unk> 0 0 0\n"}, embedding_in, ValueError
    ),
    "text": Reader(
        {"wiki.test.tokens": b"a cat sat\n\na dog sat\n"},
        lambda folder: WikiText2(str(folder), "test", seq_len=3),
        mx.MXNetError,
    ),
    "structure": Reader(SAVED, network_in, (ValueError, mx.MXNetError)),
}

#: What stands between the words of a text.
SEPARATORS = re.compile(rb'([\s,:\[\]{}"()]+)')
WORDS = st.sampled_from([
    b"", b"-1", b"0", b"1e39", b"1e999", b"inf", b"nan", b"9" * 25, b"1.5", b"null", b"true", b"[]",
    b"{}", b'"a"', b"[[0, 0], -1]", b"\xff", b"\0", b"\t", b"\n", b" ", b"\xc2\x85", b"<unk>",
])  # fmt: skip


@st.composite
def other_bytes(draw, data):
    """Some bytes replaced by others, of which there may be more or fewer."""
    for _ in range(draw(st.integers(1, 4))):
        at, new = draw(st.integers(0, len(data))), draw(st.binary(max_size=9))
        data = data[:at] + new + data[at + draw(st.integers(0, 9)) :]
    return data


@st.composite
def other_words(draw, data):
    """Some words of a text, or what is between them, replaced by others or left out."""
    parts = SEPARATORS.split(data)
    for _ in range(draw(st.integers(1, 3))):
        parts[draw(st.integers(0, len(parts) - 1))] = draw(WORDS)
    return b"".join(parts)


DAMAGES = {
    "other bytes": other_bytes,
    "other words": other_words,
    "cut short": lambda data: st.integers(0, len(data)).map(lambda size: data[:size]),
    "any bytes": lambda data: st.binary(max_size=60).map(lambda end: data[: len(end) % 9] + end),
}


def written(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_whole_files_are_read(tmp_path, reader):
    written(tmp_path, reader.files)
    reader.read(tmp_path)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.filterwarnings("ignore")
def test_files_from_strangers_are_read_or_refused(tmp_path, reader, damage):
    name, whole = next(iter(reader.files.items()))
    written(tmp_path, reader.files)

    # There are many of these tests, so each takes a part of the examples.
    @settings(max_examples=settings.default.max_examples // 8)
    @given(damage(whole))
    def check(damaged):
        written(tmp_path, {name: damaged})
        try:
            reader.read(tmp_path)
        except reader.raises as error:
            assert str(error)

    check()


LINK = {"type": tarfile.SYMTYPE, "linkname": "test_batch.bin"}


@pytest.mark.parametrize(
    ("reader", "damaged", "says"),
    [
        ("list", b"inf\t1\tx.jpg\n", "x.lst:1: expected id, labels and path"),
        ("index", b"0\t" + b"9" * 25, "x.idx:1: expected a key and an offset"),
        ("MNIST", struct.pack(">HBB", 0, 8, 0) + b"\0", r"images of shape \(\)"),
        ("archive", b"no archive", "invalid archive '.*': expected a whole one: not a gzip file"),
        ("archive", archive(("test_batch.bin", LINK)), "expected a file 'test_batch.bin' in it"),
        ("array", b"PK\5\6" + bytes(18), "invalid file '.*x.npy': expected an array of NumPy's"),
        ("array", npy_file(np.array(["a"])), "expected an array of NumPy's: .*dtype"),
        ("array", npy_file(np.array([{}]), allow_pickle=True), "expected an array of NumPy's"),
        ("array", npy_file(PICTURE).replace(b"(4,", b"(9,"), "expected an array of NumPy's"),
        ("embedding", b"a \xff", "x.txt: expected text in utf8"),
        ("text", b"a \xff", "cannot read '.*wiki.test.tokens'"),
        ("structure", b"[]", r"net-model.json': expected the JSON that .*invalid document \[\]"),
        ("structure", b'{"net": 1}', "invalid block 1: expected a dict"),
        ("structure", b"[" * 100_000, "net-model.json': expected the JSON"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, reader, damaged, says):
    reader = READERS[reader]
    written(tmp_path, reader.files | {next(iter(reader.files)): damaged})
    with pytest.raises(reader.raises, match=says):
        reader.read(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("symbol", 3, "invalid symbol 3: expected its JSON"),
        ("symbol", "[{", "net-model.json'.*: expected JSON"),
        ("inputs", None, "invalid inputs None: expected a list"),
        ("inputs", [], "expected one of 0 arrays"),
        ("out_format", 10**12, "invalid format 1000000000000: expected one of 1 arrays"),
        ("out_format", {"a": 0}, "expected nested lists of counts"),
        ("children", [], "expected a dict with children"),
    ],
)
def test_a_graph_that_is_damaged_is_refused_before_the_network_changes(tmp_path, key, value, says):
    document = json.loads(SAVED["net-model.json"])
    (root,) = document.values()
    root[key] = value
    written(tmp_path, SAVED | {"net-model.json": json.dumps(document).encode()})
    net = network()
    with pytest.raises(ValueError, match=says):
        net.load(str(tmp_path / "net"))
    assert not net._active
