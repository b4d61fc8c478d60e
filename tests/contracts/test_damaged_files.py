"""Symbol and parameter files that were cut or changed: an error, or something that can be used."""

import pytest
from recovery import says, still_working  # noqa: F401

import rsnet as mx

Error = mx.base.MXNetError


def saved_symbol():
    return mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc").tojson()


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t[: len(t) // 2],
        lambda t: "",
        lambda t: "[]",
        lambda t: t.replace("FullyConnected", "NoSuchOperator"),
        lambda t: t.replace('"num_hidden": "3"', '"num_hidden": "many"'),
        lambda t: t.replace("[[0, 0, 0]", "[[99, 0, 0]") if "[[0, 0, 0]" in t else t[:-9],
        lambda t: t.replace('"heads"', '"heeds"'),
    ],
    ids=["cut", "empty", "list", "operator", "parameter", "entry", "key"],
)
def test_damaged_json(damage, tmp_path):
    text = damage(saved_symbol())
    with pytest.raises((Error, ValueError, KeyError, TypeError)):
        mx.sym.load_json(text)
    path = tmp_path / "net-symbol.json"
    path.write_text(text)
    with pytest.raises((Error, ValueError, KeyError, TypeError)):
        mx.sym.load(str(path))


FLIPS = (0x01, 0x10, 0x80)


def is_one_of_ours(error):
    of_us = isinstance(error, (Error, ValueError, TypeError, KeyError, IndexError, MemoryError))
    return of_us and "panic" not in str(error) and str(error)


def test_json_cut_or_flipped_at_every_offset():
    """An error with a message, or a symbol that can be used like any other; never a crash."""
    good = saved_symbol().encode()
    refused = 0
    for at in range(len(good)):
        flipped = [good[:at] + bytes([good[at] ^ f]) + good[at + 1 :] for f in FLIPS]
        for bad in (good[:at], good[:at] + good[at + 1 :], *flipped):
            try:
                net = mx.sym.load_json(bad.decode("utf-8", "replace"))
                net.infer_shape_partial(data=(2, 4))
                mx.sym.load_json(net.tojson()).list_arguments()
            except Exception as error:
                assert is_one_of_ours(error), (at, bad, repr(error))
                refused += 1
    assert refused >= len(good)


@pytest.mark.parametrize(
    "load",
    [
        mx.sym.load,
        mx.nd.load,
        lambda path: mx.model.load_checkpoint(path, 1),
        lambda path: mx.mod.Module.load(path, 1),
        lambda path: mx.gluon.nn.Dense(1).load_parameters(path),
        lambda path: mx.gluon.SymbolBlock.imports(path, ["data"]),
        lambda path: mx.recordio.MXRecordIO(path, "r"),
        lambda path: mx.gluon.data.RecordFileDataset(path),
        lambda path: mx.image.imread(path),
        lambda path: mx.io.CSVIter(data_csv=path, data_shape=(1,), batch_size=1),
    ],
    ids=["symbol", "arrays", "checkpoint", "module", "parameters", "imports", "records", "dataset",
         "image", "csv"],
)  # fmt: skip
def test_file_that_does_not_exist(tmp_path, load):
    for kind in (Error, FileNotFoundError):
        with pytest.raises(kind) as error:
            load(str(tmp_path / "nothing_here"))
        says(error, "nothing_here")


def test_file_that_cannot_be_written(tmp_path):
    for save in (mx.sym.Variable("x").save, lambda path: mx.nd.save(path, mx.nd.ones(2))):
        for kind in (Error, OSError):
            with pytest.raises(kind, match="cannot write .*nothing_here.*: No such file"):
                save(str(tmp_path / "nothing_here" / "x"))


@pytest.mark.slow
def test_params_cut_short_or_flipped(tmp_path):
    """Every cut and every flipped byte gives an error or arrays, never a crash."""
    path = tmp_path / "x.params"
    mx.nd.save(str(path), {"arg:w": mx.nd.ones((2, 3)), "aux:m": mx.nd.zeros((4,))})
    good = path.read_bytes()
    assert set(mx.nd.load(str(path))) == {"arg:w", "aux:m"}
    refused = 0
    for at in range(len(good)):
        flipped = [good[:at] + bytes([good[at] ^ f]) + good[at + 1 :] for f in (*FLIPS, 0xFF)]
        for bad in (good[:at], *flipped):
            path.write_bytes(bad)
            try:
                loaded = mx.nd.load(str(path))
                for array in loaded.values() if isinstance(loaded, dict) else loaded:
                    _ = array if array is None else array.asnumpy()
            except Exception as error:
                assert is_one_of_ours(error), (at, repr(error))
                refused += 1
    assert refused >= len(good)
