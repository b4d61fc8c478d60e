"""`python -m rsnet.tools.im2rec`."""

import subprocess
import sys

import numpy as np
import pytest
from images import encoded, picture

import rsnet as mx
from rsnet.tools import im2rec


@pytest.fixture
def folder(tmp_path):
    for kind, count in (("cat", 3), ("dog", 2)):
        (tmp_path / "images" / kind).mkdir(parents=True)
        for i in range(count):
            path = tmp_path / "images" / kind / f"{i}.png"
            path.write_bytes(encoded(picture(40, 30, i)))
    (tmp_path / "images" / "cat" / "notes.txt").write_text("no image")
    return tmp_path


def test_lists_and_records(folder, capsys):
    prefix, root = str(folder / "all"), str(folder / "images")
    assert im2rec.main(["--list", "--recursive", "--no-shuffle", prefix, root]) == 0
    assert "cat 0" in capsys.readouterr().out
    lines = [line.split("\t") for line in (folder / "all.lst").read_text().splitlines()]
    assert [line[1] for line in lines] == ["0.000000"] * 3 + ["1.000000"] * 2
    options = ["--resize", "20", "--center-crop", "--encoding", ".png", "--num-thread", "2"]
    assert im2rec.main([prefix, root, *options]) == 0
    it = mx.io.ImageRecordIter(path_imgrec=prefix + ".rec", batch_size=5, data_shape=(3, 20, 20))
    batch = it.next()
    assert batch.label[0].asnumpy().tolist() == [0, 0, 0, 1, 1]
    whole = mx.nd.array(picture(40, 30, 1), dtype="uint8")
    square = mx.image.center_crop(whole, (30, 30))[0]
    want = mx.image.resize_short(square, 20, 1).asnumpy().transpose(2, 0, 1)
    np.testing.assert_array_equal(batch.data[0].asnumpy()[1], want)


def test_shares_and_chunks(folder):
    prefix, root = str(folder / "p"), str(folder / "images")
    options = ["--list", "--recursive", "--train-ratio", "0.4", "--test-ratio", "0.4"]
    im2rec.main([*options, prefix, root])
    sizes = {
        kind: len((folder / f"p_{kind}.lst").read_text().splitlines())
        for kind in ("train", "test", "val")
    }
    assert sizes == {"train": 2, "test": 2, "val": 1}
    im2rec.main(["--list", "--recursive", "--chunks", "2", str(folder / "c"), root])
    assert len((folder / "c_0.lst").read_text().splitlines()) == 3


def test_a_bad_line_of_a_list_ends_with_its_place(folder):
    (folder / "bad.lst").write_text("0\t1.5\tcat/0.png\n1\tabc\tcat/1.png\n")
    with pytest.raises(SystemExit, match=r"im2rec: .*bad\.lst:2: expected id, labels and path"):
        im2rec.main([str(folder / "bad"), str(folder / "images")])


def test_every_line_of_a_list_is_packed_also_where_two_have_one_id(folder, capsys):
    (folder / "joined.lst").write_text("0\t0\tcat/0.png\n0\t1\tcat/1.png\n1\t2\tdog/0.png\n")
    assert im2rec.main([str(folder / "joined"), str(folder / "images")]) == 0
    assert "3 images" in capsys.readouterr().out
    with mx.recordio.MXRecordIO(str(folder / "joined.rec"), "r") as file:
        headers = [mx.recordio.unpack(file.read())[0] for _ in range(3)]
    assert [(header.id, header.label) for header in headers] == [(0, 0), (0, 1), (1, 2)]
    with pytest.raises(mx.MXNetError, match=r"joined\.lst:2: invalid id 0, that of a line before"):
        mx.image.ImageIter(
            1, (3, 8, 8), path_imglist=str(folder / "joined.lst"), path_root=str(folder / "images")
        )


def test_files_as_they_are_and_all_labels(folder):
    (folder / "m.lst").write_text("7\t1.5\t2.5\tcat/0.png\n")
    prefix, root = str(folder / "m"), str(folder / "images")
    im2rec.main([prefix, root, "--pass-through", "--pack-label"])
    with mx.recordio.MXIndexedRecordIO(prefix + ".idx", prefix + ".rec", "r") as file:
        header, data = mx.recordio.unpack(file.read_idx(7))
    assert header.label.tolist() == [1.5, 2.5]
    assert data == (folder / "images" / "cat" / "0.png").read_bytes()


def test_what_cannot_be_packed_is_left_out(folder, capsys):
    (folder / "b.lst").write_text("0\t1\tcat/0.png\n1\t1\tcat/notes.txt\n2\t1\tnosuch.png\n")
    assert im2rec.main([str(folder / "b"), str(folder / "images")]) == 1
    told = capsys.readouterr()
    assert "notes.txt" in told.err and "nosuch.png" in told.err and "2 left out" in told.out


@pytest.mark.process
def test_the_command_line(folder):
    command = [sys.executable, "-m", "rsnet.tools.im2rec"]
    done = subprocess.run([*command, "x", str(folder / "nosuch")], capture_output=True, text=True)
    assert done.returncode == 2 and "nosuch': expected a folder" in done.stderr
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert "--pass-through" in done.stdout
