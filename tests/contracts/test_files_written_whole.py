"""Files that are saved: whole or as they were, whatever is at their path."""

import contextlib
import os
import stat
import tempfile
import threading

import pytest

import rsnet as mx
from rsnet import gluon, nd

resource = pytest.importorskip("resource")


@contextlib.contextmanager
def full_disk(left):
    """No file can grow beyond a number of bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def trained():
    net = gluon.nn.Dense(20, in_units=20)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    with mx.autograd.record():
        loss = net(nd.ones((1, 20))).sum()
    loss.backward()
    trainer.step(1)
    return net, trainer


def symbol():
    net = mx.sym.Variable("x")
    for _ in range(20):
        net = net * 2
    return net


def module():
    mod = mx.mod.Module(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=50), label_names=None
    )
    mod.bind([("data", (1, 50))])
    mod.init_params()
    mod.init_optimizer(optimizer="adam")
    mod.forward(mx.io.DataBatch([nd.ones((1, 50))]), is_train=True)
    mod.backward([nd.ones((1, 50))])
    mod.update()
    return mod


SAVES = {
    "arrays": lambda path: nd.save(path, {"a": nd.ones((100,)), "b": nd.ones((100,))}),
    "parameters": lambda path: trained()[0].save_parameters(path),
    "states": lambda path: trained()[1].save_states(path),
    "states of a module": lambda path: module().save_optimizer_states(path),
    "symbol": lambda path: symbol().save(path),
}


@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_full_disk_leaves_what_was_there(tmp_path, save, is_there):
    path = tmp_path / "file"
    if is_there:
        path.write_text("precious")
    with full_disk(300), pytest.raises(OSError, match="cannot write .*file'") as error:
        save(str(path))
    assert isinstance(error.value, mx.base.MXNetError)
    assert [file.name for file in tmp_path.iterdir()] == ["file"] * is_there
    if is_there:
        assert path.read_text() == "precious"
    save(str(path))
    assert path.stat().st_size > 300


def test_permissions_and_links_stay(tmp_path):
    folder, (old, link, new) = tmp_path / "b", (tmp_path / name for name in ("old", "link", "new"))
    folder.mkdir()
    old.write_text("old")
    old.chmod(0o640)
    link.symlink_to("old")
    (tmp_path / "loose").symlink_to(folder / "made")
    mask = os.umask(0o027)
    try:
        for path in (link, new, tmp_path / "loose"):
            nd.save(path, nd.ones((2,)))
    finally:
        os.umask(mask)
    assert link.is_symlink() and stat.S_IMODE(old.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    assert all(nd.load(str(path))[0].shape == (2,) for path in (old, new, folder / "made"))
    twin = tmp_path / "twin"
    os.link(old, twin)
    nd.save(old, nd.ones((3,)))
    assert nd.load(str(twin))[0].shape == (3,)
    old.chmod(0o440)
    if not os.access(old, os.W_OK):  # root may write all files
        with pytest.raises(OSError, match="Permission denied"):
            nd.save(old, nd.ones((4,)))


def test_pipes_and_open_files_are_written_themselves(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    nd.save(str(pipe), nd.ones((2,)))
    reader.join()
    nd.save(str(tmp_path / "file"), nd.ones((2,)))
    assert read == [(tmp_path / "file").read_bytes()] and stat.S_ISFIFO(pipe.stat().st_mode)
    with open(tmp_path / "open", "w+b") as file:
        nd.save(f"/dev/fd/{file.fileno()}", nd.ones((2,)))
        file.seek(0)
        assert file.read() == read[0]
    with tempfile.NamedTemporaryFile() as file:
        nd.save(file.name, nd.ones((2,)))
        assert file.read() == read[0]
    nd.save(os.devnull, nd.ones((2,)))
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    for path in (tmp_path, tmp_path / "none" / "file"):
        with pytest.raises(OSError, match=f"cannot write '{path}'"):
            nd.save(path, nd.ones((2,)))
