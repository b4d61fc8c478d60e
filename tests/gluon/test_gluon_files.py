"""Parameters and networks of Gluon in files."""

import numpy as np
import pytest
from small_block import NAMES, Net, made

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet.gluon import nn


def equal(one, two, x):
    np.testing.assert_allclose(one(x).asnumpy(), two(x).asnumpy(), rtol=1e-6)


def test_parameters_go_to_files_and_back(tmp_path):
    net, x = made(), nd.ones((2, 4))
    net(x)
    net.save_parameters(tmp_path / "structure.params")
    assert sorted(nd.load(str(tmp_path / "structure.params")))[:2] == ["a.bias", "a.weight"]
    net.collect_params().save(tmp_path / "names.params")
    net.save_params(tmp_path / "stripped.params")
    for file in ("structure", "names", "stripped"):
        other = Net(prefix="net_")
        other.load_parameters(tmp_path / f"{file}.params")
        equal(other, net, x)
    other = Net(prefix="other_")
    other.load_parameters(tmp_path / "stripped.params", ctx=[mx.cpu(0), mx.cpu(1)])
    equal(other, net, x)
    assert other.a.weight.list_ctx() == [mx.cpu(0), mx.cpu(1)]


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_network_goes_to_files_and_back(tmp_path, hybridized):
    def network():
        net = nn.HybridSequential()
        net.add(nn.Dense(3, in_units=4, activation="relu"), nn.Dense(2, in_units=3))
        return net

    net, other, x = network(), network(), nd.ones((2, 4))
    net.initialize(init="xavier")
    if hybridized:
        net.hybridize()
        net(x)
    prefix = str(tmp_path / "net")
    net.save(prefix)
    other.load(prefix)
    assert other._active == hybridized
    equal(other, net, x)
    if hybridized:  # the file's own graph, which names other parameters, is not taken
        assert other._cached_graph[1].list_outputs()[0].startswith(other[1].prefix)
    with pytest.raises(ValueError, match="of another network"):
        nn.HybridSequential().load(prefix)


def test_the_graph_of_a_file_is_taken_where_names_agree(tmp_path):
    class Scaled(gluon.HybridBlock):
        factor = 2

        def hybrid_forward(self, F, x):
            return [x * self.factor, F.relu(x)]

    net, x, prefix = Scaled(), nd.ones((2,)), str(tmp_path / "scaled")
    net.hybridize()
    net(x)
    net.save(prefix)
    other = Scaled()
    other.factor = 3
    other.load(prefix)
    assert [out.asnumpy().tolist() for out in other(x)] == [[2, 2], [1, 1]]


def test_shared_parameters_are_saved_once(tmp_path):
    def shared():
        net = nn.HybridSequential()
        net.add(nn.Dense(2, in_units=2))
        net.add(nn.Dense(2, in_units=2, params=net[0].params))
        return net

    net, file = shared(), tmp_path / "net.params"
    net.initialize()
    net.save_parameters(file, deduplicate=True)
    assert len(nd.load(str(file))) == 2
    other = shared()
    other.load_parameters(file)
    equal(other, net, nd.ones((1, 2)))


def test_files_that_do_not_fit_are_refused(tmp_path):
    net, file = made(), tmp_path / "net.params"
    net(nd.ones((2, 4)))
    net.save_parameters(file)
    whole = nd.load(str(file))

    def saved(**changes):
        arrays = {**whole, **changes}
        nd.save(str(file), {k: v for k, v in arrays.items() if v is not None})
        return file

    with pytest.raises(AssertionError, match=r"'a.bias' is missing in file"):
        net.load_parameters(saved(**{"a.bias": None}))
    net.load_parameters(file, allow_missing=True)
    with pytest.raises(ValueError, match=r"'c.bias' of file .*: expected one of the block"):
        net.load_parameters(saved(**{"c.bias": nd.ones((1,))}))
    net.load_parameters(file, ignore_extra=True)
    with pytest.raises(AssertionError, match=r"'net_w' .* expected \(2,\) vs saved \(3,\)"):
        net.load_parameters(saved(w=nd.ones((3,))))
    with pytest.raises(AssertionError, match="'net_w' .*Set cast_dtype=True"):
        net.load_parameters(saved(w=nd.ones((2,), dtype="float64")))
    net.load_parameters(file, cast_dtype=True)
    assert net.w.data().dtype == np.float32
    net.load_parameters(file, cast_dtype=True, dtype_source="saved")
    assert net.w.data().dtype == np.float64
    with pytest.raises(mx.MXNetError, match="none.params"):
        net.load_parameters(tmp_path / "none.params")
    nd.save(str(file), [nd.ones((1,))])
    with pytest.raises(ValueError, match="1 arrays without names"):
        net.load_parameters(file)
    file.write_bytes(b"damaged")
    with pytest.raises(mx.MXNetError):
        net.load_parameters(file)
    net.load_dict({**whole, "w": nd.ones((2,), dtype="float64")})


def test_export_and_import(tmp_path):
    net, x = made(), nd.ones((2, 4))
    with pytest.raises(RuntimeError, match="without a graph: expected one that was hybridized"):
        net.export(str(tmp_path / "net"))
    net.hybridize()
    net(x)
    files = net.export(str(tmp_path / "net"), epoch=3)
    assert [f.rpartition("/")[2] for f in files] == ["net-symbol.json", "net-0003.params"]
    block = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    equal(block, net, x)
    symbol, args, _ = mx.model.load_checkpoint(str(tmp_path / "net"), 3)
    assert set(args) == set(NAMES) and symbol.list_outputs() == ["net_broadcast_mul0_output"]
    with pytest.raises(ValueError, match="invalid input name 'dat'"):
        gluon.SymbolBlock.imports(files[0], "dat")
    unfilled = gluon.SymbolBlock.imports(files[0], "data")
    with pytest.raises(RuntimeError, match="'net_dense0_weight' has not been initialized"):
        unfilled(x)
    nd.save(files[1], {"arg:net_w": nd.ones((2,))})
    with pytest.raises(AssertionError, match="is missing in file"):
        gluon.SymbolBlock.imports(files[0], "data", files[1])


def test_symbol_blocks_train_and_nest():
    data = mx.sym.var("data")
    hidden = mx.sym.FullyConnected(data, num_hidden=3, name="fc")
    out = mx.sym.BatchNorm(hidden, name="bn")
    block = gluon.SymbolBlock([out, hidden], [data])
    block.initialize()
    first, second = block(nd.ones((2, 4)))
    assert first.shape == second.shape == (2, 3)
    assert block.collect_params()["bn_moving_mean"].grad_req == "null"
    net = nn.HybridSequential()
    net.add(gluon.SymbolBlock(hidden, data, params=block.collect_params()), nn.Dense(1))
    net[1].initialize()
    net.hybridize()
    with autograd.record():
        net(nd.ones((2, 4))).backward()
    assert (block.collect_params()["fc_weight"].grad().asnumpy() != 0).any()
    with pytest.raises(
        ValueError, match="invalid input 'fc', an output of operators: expected a variable"
    ):
        gluon.SymbolBlock(out, hidden)


def test_a_parameter_file_is_read_once(tmp_path, monkeypatch):
    net = nn.Dense(3, in_units=2, prefix="d_")
    net.initialize()
    net.hybridize()
    net(nd.ones((1, 2)))
    files = [str(tmp_path / "named.params"), *net.export(str(tmp_path / "x"))]
    net.collect_params().save(files[0])
    read = []
    load = nd.load
    monkeypatch.setattr(nd, "load", lambda name: read.append(name) or load(name))
    net.load_parameters(files[0])
    gluon.SymbolBlock.imports(files[1], "data", files[2])
    assert read == [files[0], files[2]]


def test_initializers_of_a_graph_are_those_of_initialize():
    data = mx.sym.var("data")
    weight = mx.sym.var("w", init=mx.init.Constant(3))
    out = mx.sym.FullyConnected(
        data, weight, num_hidden=2, name="f", attr={"__init__": mx.init.Xavier()}
    )
    block = gluon.SymbolBlock(out, data)
    block.initialize(mx.init.One())  # Xavier, an attribute of the bias too, would refuse it
    assert block(nd.ones((1, 3))).asnumpy().tolist() == [[4, 4]]


def test_parameters_of_a_graph_have_no_multipliers(tmp_path):
    """As in MXNet, whose attributes of a variable are for modules."""
    weight = mx.sym.Variable("w", lr_mult=0.5, wd_mult=0)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), weight, num_hidden=2, no_bias=True)
    net.save(str(tmp_path / "l-symbol.json"))
    block = gluon.SymbolBlock.imports(str(tmp_path / "l-symbol.json"), ["data"])
    (param,) = block.collect_params().values()
    assert (param.lr_mult, param.wd_mult) == (1, 1)


@pytest.mark.parametrize("fault", ["shape", "dtype", "surplus"])
@pytest.mark.parametrize("naming", ["structure", "names", "dict"])
def test_parameters_of_another_network_leave_all_as_they_were(tmp_path, naming, fault):
    net = made()
    net(nd.ones((2, 4)))
    arrays = {name: p.data() + 1 for name, p in net._collect_params_with_prefix().items()}
    if naming == "names":
        arrays = {name: p.data() + 1 for name, p in net.collect_params().items()}
    last = list(arrays)[-1]
    other = {
        "shape": {last: nd.ones((9, 9))},
        "dtype": {last: arrays[last].astype("float64")},
        "surplus": {"z.weight" if naming != "names" else "net_z_weight": nd.ones((1,))},
    }[fault]
    before = [p.data().asnumpy().tolist() for p in net.collect_params().values()]
    file = str(tmp_path / "other.params")
    nd.save(file, {**arrays, **other})
    with pytest.raises((AssertionError, ValueError)):
        if naming == "dict":
            net.load_dict({**arrays, **other})
        else:
            net.load_parameters(file)
    assert [p.data().asnumpy().tolist() for p in net.collect_params().values()] == before
