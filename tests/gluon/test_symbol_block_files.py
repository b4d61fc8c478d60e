"""Files of blocks that hold a `SymbolBlock`: the names of its parameters there are MXNet's."""

import os
import subprocess

import numpy as np
import pytest

import rsnet as mx
from rsnet import gluon, nd
from rsnet.gluon import nn

MXNET = os.environ.get("MXNET_PYTHON")

#: Names of a block's parameters, and what MXNet 1.9.1 calls them in files.
NAMES = [
    (["fc_weight", "fc_bias"], ["weight", "bias"]),
    (["fc1_weight", "fc1_bias", "fc2_weight"], ["1_weight", "1_bias", "2_weight"]),
    (["a_fc1_weight", "b_fc2_weight"], ["a_fc1_weight", "b_fc2_weight"]),
    (["only"], [""]),
    (["a", "ab"], ["", "b"]),
    (["a_x", "a_a_x"], ["x", "a_x"]),
    (["a.x", "a.y"], ["x", "y"]),
    ([], []),
]


def block_of(names, params=None):
    """A block that adds a parameter for each name to its input."""
    data = out = mx.sym.var("data")
    for name in names:
        out = mx.sym.broadcast_add(out, mx.sym.var(name))
    block = gluon.SymbolBlock(out, data, params=params)
    for param in block.collect_params().values():
        param.shape = (3,)
    return block


def filled(block):
    block.initialize()
    for i, param in enumerate(block.collect_params().values()):
        param.set_data(nd.full((3,), i + 1))
    return block


def within(*blocks):
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


def values(block):
    return [param.data().asnumpy()[0] for param in block.collect_params().values()]


@pytest.mark.parametrize(("names", "short"), NAMES)
@pytest.mark.parametrize("inside", [False, True])
def test_files_leave_out_what_all_names_begin_with(tmp_path, names, short, inside):
    block = filled(block_of(names))
    assert list(block.collect_params()) == list(block.params) == names
    net = within(block) if inside else block
    net.save_parameters(tmp_path / "new.params")
    place = "0." if inside else ""
    stored = nd.load(str(tmp_path / "new.params"))
    assert sorted(stored) == sorted(place + name for name in short)
    expected = values(block)
    # Earlier builds wrote the whole names, and so do `collect_params().save` and `export`.
    whole = {place + name: param.data() for name, param in block.params.items()}
    nd.save(str(tmp_path / "old.params"), whole)
    for file in ("new", "old"):
        other = block_of(names)
        (within(other) if inside else other).load_parameters(tmp_path / f"{file}.params")
        assert values(other) == expected
    for arrays in (stored, whole):
        if arrays:
            other = block_of(names)
            (within(other) if inside else other).load_dict(arrays)
            assert values(other) == expected


def test_networks_of_one_code_load_each_others_files(tmp_path):
    """Their parameters have other names, of which the counter is a part."""

    def network():
        data, net = mx.sym.var("data"), nn.HybridSequential()
        with net.name_scope():
            net.add(nn.Dense(3, in_units=2), nn.BatchNorm(in_channels=3))
        out = within(gluon.SymbolBlock(net(data), data, params=net.collect_params()))
        out.initialize(mx.init.Xavier())
        return out

    one, two = network(), network()
    assert not set(one.collect_params()) & set(two.collect_params())
    one.save_parameters(tmp_path / "net.params")
    two.load_parameters(tmp_path / "net.params")
    x = nd.array([[1, 2]])
    assert np.array_equal(one(x).asnumpy(), two(x).asnumpy())
    stored = sorted(nd.load(str(tmp_path / "net.params")))
    assert stored[:3] == ["0.batchnorm0_beta", "0.batchnorm0_gamma", "0.batchnorm0_running_mean"]


def test_several_blocks_and_shared_parameters(tmp_path):
    first = filled(block_of(["x1_weight", "x1_bias"]))
    shared = block_of(["x1_weight", "x1_bias"], first.collect_params())
    single = block_of(["x1_bias"], first.collect_params())
    net = within(first, shared, single, filled(block_of(["y_weight", "y_bias"])))
    net.save_parameters(tmp_path / "all.params")
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "2.", "3.weight", "3.bias"]
    assert sorted(nd.load(str(tmp_path / "all.params"))) == sorted(names)
    net.save_parameters(tmp_path / "once.params", deduplicate=True)
    old = {"0.x1_weight": nd.ones(3), "0.x1_bias": nd.ones(3) * 2, "2.x1_bias": nd.ones(3) * 2,
           "3.y_weight": nd.ones(3), "3.y_bias": nd.ones(3) * 2}  # fmt: skip
    nd.save(str(tmp_path / "old.params"), old)
    for file in ("all", "once", "old"):
        first.params["x1_weight"].set_data(nd.zeros(3))
        net.load_parameters(tmp_path / f"{file}.params")
        assert values(net) == [1, 2, 1, 2]


def test_missing_and_surplus_parameters(tmp_path):
    names = ["fc_weight", "fc_bias"]
    for part in ({"0.weight": nd.ones(3)}, {"0.fc_weight": nd.ones(3)}):
        nd.save(str(tmp_path / "part.params"), part)
        net = within(block_of(names))
        with pytest.raises(AssertionError, match="Parameter '0.bias' is missing in file"):
            net.load_parameters(tmp_path / "part.params")
        net.load_parameters(tmp_path / "part.params", allow_missing=True)
        assert net[0].params["fc_weight"].data().asnumpy().tolist() == [1, 1, 1]
        more = {**part, "0.bias": nd.ones(3), "0.fc_bias": nd.ones(3), "0.z": nd.ones(3)}
        del more["0.bias" if "0.fc_weight" in part else "0.fc_bias"]
        nd.save(str(tmp_path / "more.params"), more)
        net = within(block_of(names))
        with pytest.raises(ValueError, match=r"invalid Parameter '0\.z'"):
            net.load_parameters(tmp_path / "more.params")
        net.load_parameters(tmp_path / "more.params", ignore_extra=True)
        assert values(net) == [1, 1]


def test_an_imported_network_keeps_its_names(tmp_path):
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(nn.Dense(2, in_units=3), nn.Dense(1, in_units=2))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = nd.ones((1, 3))
    net(x)
    files = net.export(str(tmp_path / "net"))
    block = gluon.SymbolBlock.imports(files[0], "data", files[1])
    assert list(block.collect_params()) == list(net.collect_params())
    block.save_parameters(tmp_path / "own.params")
    for file in (files[1], tmp_path / "own.params"):
        other = gluon.SymbolBlock.imports(files[0], "data")
        other.load_parameters(file)
        assert np.array_equal(other(x).asnumpy(), net(x).asnumpy())


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not MXNET, reason="set MXNET_PYTHON to a Python that has MXNet 1.9")
def test_mxnet_reads_and_writes_such_files(tmp_path):
    program = """
import sys, mxnet as mx
block = mx.gluon.SymbolBlock.imports(sys.argv[1], ['data'])
net = mx.gluon.nn.HybridSequential()
net.add(block)
net.load_parameters(sys.argv[2])
for param in net.collect_params().values():
    param.set_data(param.data() * 2)
net.save_parameters(sys.argv[3])
"""
    names = ["fc1_weight", "fc1_bias", "fc2_weight"]
    block = filled(block_of(names))
    block(nd.ones((1, 3)))
    block.export(str(tmp_path / "net"))
    within(block).save_parameters(tmp_path / "one.params")
    files = [str(tmp_path / name) for name in ("net-symbol.json", "one.params", "two.params")]
    subprocess.run([MXNET, "-W", "ignore", "-c", program, *files], check=True)
    net = within(block_of(names))
    net.load_parameters(files[2])
    assert values(net) == [2, 4, 6]
