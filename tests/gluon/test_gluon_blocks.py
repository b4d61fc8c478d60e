"""Blocks: names, parameters, files, hooks, hybridization; wrong use is refused by name."""

import pickle
import warnings

import numpy as np
import pytest
from processes import printed
from small_block import NAMES, Net, made

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet.gluon import nn

# ---- names -------------------------------------------------------------------------------------


def test_names_are_those_of_mxnet():
    net = made()
    assert list(net.collect_params()) == NAMES
    net.hybridize()
    net(nd.ones((2, 4)))
    symbol = net(mx.sym.var("data"))
    assert symbol.list_arguments() == ["data", *NAMES[1:], "net_w"]
    internals = symbol.get_internals().list_outputs()
    assert "net_relu0_output" in internals and "net_seq_dense1_fwd_output" in internals


def test_names_are_counted_outside_and_inside_of_scopes():
    with mx.name.NameManager():
        one, two = nn.Dense(1), nn.Dense(1)
        assert (one.prefix, two.prefix) == ("dense0_", "dense1_")
        assert nn.Activation("tanh").prefix == "tanh0_"
        outer = nn.HybridSequential()
        with outer.name_scope():
            outer.add(nn.Dense(1), nn.Conv2D(1, 1), nn.Dense(1))
        assert [layer.name for layer in outer] == [
            f"hybridsequential0_{name}" for name in ("dense0", "conv0", "dense1")
        ]
        assert nn.Dense(1, prefix="").prefix == ""


def test_parameters_are_shared_by_name():
    net = made()
    other = Net(prefix="other_", params=net.collect_params())
    assert list(other.collect_params()) == NAMES
    assert other.a.weight is net.a.weight
    one = nn.Dense(2, in_units=2)
    two = nn.Dense(2, in_units=2, params=one.params)
    one.initialize()
    assert two.weight is one.weight
    with pytest.raises(AssertionError, match=r"has shape \(2, 2\), expected \(3, 2\)"):
        nn.Dense(3, in_units=2, params=one.params)
    with pytest.raises(AssertionError, match="has dtype 'float32', expected 'float64'"):
        nn.Dense(2, dtype="float64", params=one.params)


def test_parameters_are_selected():
    net = made()
    assert list(net.collect_params(".*weight")) == [n for n in NAMES if n.endswith("weight")]
    assert len(net.collect_params("nothing")) == 0


def test_containers_of_blocks_are_warned_of():
    class Hidden(gluon.Block):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Dense(1)]

    with pytest.warns(UserWarning, match="'Hidden.layers' holds blocks that are not children"):
        Hidden().collect_params()


# ---- hybridization -----------------------------------------------------------------------------


def gradients(net, x):
    with autograd.record():
        y = net(x)
    y.backward()
    params = net.collect_params().values()
    return [y.asnumpy(), *[p.grad().asnumpy() for p in params if p.grad_req != "null"]]


def test_hybrid_computes_what_operators_do():
    net = made()
    x = nd.array(np.random.default_rng(0).normal(size=(4, 5)))
    expected = gradients(net, x)
    net.hybridize()
    for _ in range(2):
        for a, b in zip(gradients(net, x), expected):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    net.hybridize(False)
    for a, b in zip(gradients(net, x), expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_children_and_parameters_that_change_are_seen():
    net = made()
    net.hybridize()
    x = nd.ones((2, 4))
    net(x)
    net.a = nn.Dense(3, in_units=4)
    net.a.initialize(mx.init.Zero())
    assert (net(x).asnumpy() == 0).all()
    net.w.set_data(nd.array([5, 6]))
    net.b[1].bias.set_data(nd.array([1, 1]))
    assert net(x).asnumpy()[0].tolist() == [5, 6]
    net.cast("float64")
    assert net(x.astype("float64")).dtype == np.float64
    net.collect_params().reset_ctx(mx.cpu(1))
    assert net(x.as_in_context(mx.cpu(1)).astype("float64")).context == mx.cpu(1)


def test_structures_go_in_and_out():
    class Nested(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y, z=None):
            return [x, (x + 1, y[1] * 2), None], y[0] if z is None else y[0] + z

    for hybrid in (False, True):
        net = Nested()
        net.hybridize(hybrid)
        x = nd.ones((2,))
        (first, (second, third), nothing), fourth = net(x, [x * 3, x * 4])
        found = [a.asnumpy()[0] for a in (first, second, third, fourth)]
        assert found == [1, 2, 8, 3] and nothing is None
    with pytest.raises(ValueError, match="invalid nesting of the arguments"):
        net(x, [x, x], x)


def test_values_needed_by_hybrid_forward_are_named():
    class Branching(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x if x.sum() > 0 else -x

    class Reading(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * x.asnumpy().item()

    for block, what in ((Branching(), "bool"), (Reading(), "asnumpy")):
        assert block(nd.ones((1,))).asnumpy()[0] == 1
        block.hybridize()
        with pytest.raises(mx.MXNetError, match=rf"'{block.name}' cannot be hybridized.*{what}"):
            block(nd.ones((1,)))


def test_unused_inputs_and_parameters_are_warned_of():
    class Unused(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="unused_")
            with self.name_scope():
                self.used, self.left = nn.Dense(3, in_units=2), nn.Dense(3, in_units=2)

        def hybrid_forward(self, F, x, y):
            return self.used(x)

    net = Unused()
    net.initialize()
    net.hybridize()
    with pytest.warns(UserWarning) as seen:
        net(nd.ones((1, 2)), nd.ones((1,)))
    said = " ".join(str(w.message) for w in seen)
    assert "'unused' does not use its inputs 1 " in said and "unused_dense1_weight" in said
    assert {w.filename for w in seen} == {__file__}


def test_wrong_children_and_calls_are_refused():
    with pytest.raises(
        ValueError, match=r"expected a HybridBlock \(HybridSequential instead of Sequential"
    ):
        nn.HybridSequential().add(nn.Sequential())
    net = made()
    with pytest.raises(TypeError, match="invalid value of 'a'"):
        net.a = 3
    with pytest.raises(AssertionError, match="invalid parameter 'w' of Net, which has one: exp"):
        net.w = gluon.Parameter("x")
    with pytest.raises(TypeError, match="invalid switch 'fast'"):
        net.hybridize(fast=True)
    with pytest.raises(ValueError, match="'net': invalid arguments: expected an NDArray or"):
        net("text")
    with pytest.raises(NotImplementedError, match="does not define forward"):
        gluon.Block()(nd.ones((1,)))
    with pytest.raises(NotImplementedError, match="does not define hybrid_forward"):
        gluon.HybridBlock()(nd.ones((1,)))
    wrong = nn.Dense(2, in_units=3, prefix="wrong_")
    wrong.initialize()
    for hybrid in (False, True):
        wrong.hybridize(hybrid)
        with pytest.raises(mx.MXNetError, match="wrong"):
            wrong(nd.ones((1, 4)))


# ---- parameters --------------------------------------------------------------------------------


def test_uninitialised_parameters_are_named():
    net = nn.Dense(2, prefix="d_")
    with pytest.raises(RuntimeError, match="Parameter 'd_weight' has not been initialized"):
        net(nd.ones((1, 2)))
    net.initialize()
    for use in (net.weight.data, net.weight.grad, net.weight.list_data):
        with pytest.raises(gluon.DeferredInitializationError, match="'d_weight'.*deferred"):
            use()
    net(nd.ones((1, 2)))
    with pytest.raises(RuntimeError, match=r"invalid ctx cpu\(1\): expected one .*\[cpu\(0\)\]"):
        net(nd.ones((1, 2), ctx=mx.cpu(1)))
    net.hybridize()
    with pytest.raises(RuntimeError, match=r"'d_weight': invalid ctx cpu\(1\)"):
        net(nd.ones((1, 2), ctx=mx.cpu(1)))
    assert net.weight.list_ctx() == [mx.cpu(0)]


def test_shapes_that_cannot_be_inferred_are_refused():
    class Free(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="free_")
            self.w = self.params.get("w", shape=(0,), allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.sum(x) + F.sum(w)

    net = Free()
    net.initialize()
    for hybrid in (False, True):
        net.hybridize(hybrid)
        with pytest.raises(
            ValueError, match="Free 'free': the shapes of its parameters cannot be inferred"
        ):
            net(nd.ones((2,)))
    with pytest.raises(ValueError, match=r"'p' cannot be initialized: .*\(0, 2\)"):
        gluon.Parameter("p", shape=(0, 2)).initialize()


def test_parameters_check_their_arguments():
    with pytest.raises(AssertionError, match="invalid grad_req '.*' of Parameter"):
        gluon.Parameter("p", grad_req="maybe")
    with pytest.raises(
        NotImplementedError, match="invalid stype 'row_sparse'.* by sparse_grad=False"
    ):
        gluon.Parameter("p", stype="row_sparse")
    p = gluon.Parameter("p", shape=(2,))
    with pytest.raises(RuntimeError, match=r"'p' .* initialized: call initialize\(\) first"):
        p.set_data(nd.ones((2,)))
    with pytest.raises(ValueError, match="reset_ctx: invalid Parameter 'p', which has no values"):
        p.reset_ctx(mx.cpu())
    p.initialize(init="ones")
    with pytest.warns(UserWarning, match="'p' has values already"):
        p.initialize()
    with pytest.raises(AssertionError, match=r"invalid shape \(3,\) of Parameter 'p'"):
        p.set_data(nd.ones((3,)))
    with pytest.raises(ValueError, match="expected each device once"):
        p.initialize(ctx=[mx.cpu(), mx.cpu()], force_reinit=True)
    assert p.data().asnumpy().tolist() == [1, 1]  # what is refused changes nothing
    with pytest.raises(TypeError, match="invalid ctx 1"):
        p.initialize(ctx=1, force_reinit=True)


def test_parameters_and_blocks_survive_pickling_of_parameters():
    p = gluon.Parameter("p", shape=(2,))
    p.initialize(init="ones")
    other = pickle.loads(pickle.dumps(p))
    assert other.data().asnumpy().tolist() == [1, 1] and other.grad().shape == (2,)


def test_constants_stay():
    class Scaled(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.c = self.params.get_constant("c", nd.array([2, 3]))

        def hybrid_forward(self, F, x, c):
            return x * c

    net = Scaled()
    net.initialize()
    net.hybridize()
    assert net(nd.ones((2,))).asnumpy().tolist() == [2, 3]
    with pytest.warns(UserWarning, match="does not support grad_req"):
        net.c.grad_req = "write"
    with pytest.raises(AssertionError, match=r"invalid value of 'scaled\d+_c': expected the one"):
        net.params.get_constant("c", [4, 5])
    with pytest.raises(KeyError, match="there is no constant"):
        net.params.get_constant("d")


# ---- the rest ----------------------------------------------------------------------------------


def test_hooks_see_calls():
    net, seen = made(), []
    handle = net.register_forward_hook(lambda b, i, o: seen.append((b.name, o.shape)))
    net.register_forward_pre_hook(lambda b, i: seen.append(len(i)))
    net(nd.ones((2, 4)))
    handle.detach()
    net(nd.ones((2, 4)))
    assert seen == [1, ("net", (2, 2)), 1]
    net.hybridize()
    operators = []
    net.register_op_hook(lambda name, op, array: operators.append((op, array.shape)))
    net(nd.ones((2, 4)))
    assert operators[0] == ("relu", (2, 4)) and operators[-1] == ("broadcast_mul", (2, 2))


def test_apply_reaches_all_blocks():
    names = []
    assert (net := made()).apply(lambda block: names.append(block.name)) is net
    assert names == ["net_dense0", "net_seq_dense0", "net_seq_dense1", "net_seq", "net"]


def test_a_summary_counts_the_parameters_of_blocks_with_children(capsys):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(5, activation="relu"), gluon.nn.Dense(2))
    net.initialize()
    net.summary(nd.ones((2, 3)))
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    assert ["Dense-2", "(2,", "5)", "20"] in rows and "Total params: 32" in shown


def test_summary_is_that_of_mxnet(capsys):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Dense(3))
    net.initialize()
    net.summary(nd.ones((2, 3, 8, 8)))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[3:7] == [
        "Input (2, 3, 8, 8) 0",
        "Conv2D-1 (2, 4, 6, 6) 112",
        "BatchNorm-2 (2, 4, 6, 6) 16",
        "Dense-3 (2, 3) 435",
    ]
    assert "Total params: 563" in lines and "Non-trainable params: 8" in lines
    net.hybridize()
    with pytest.raises(AssertionError, match="which is hybridized: expected none"):
        net.summary(nd.ones((2, 3, 8, 8)))


def test_sequential_is_a_list():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2), nn.Dense(3, in_units=2), nn.Dense(4, in_units=3))
    assert len(net) == 3 and [len(net[1:]), net[-1].weight.shape] == [2, (4, 3)]
    plain = nn.Sequential()
    plain.add(*net)
    with pytest.warns(UserWarning, match="Consider using HybridSequential"):
        plain.hybridize()


def test_lambdas_name_what_they_do_not_find():
    assert nn.HybridLambda("relu")(-nd.ones((1,))).asnumpy()[0] == 0
    assert nn.Lambda(lambda x: x + 1)(nd.ones((1,))).asnumpy()[0] == 2
    with pytest.raises(
        AssertionError, match="invalid function 'no_such': expected the name of one"
    ):
        nn.Lambda("no_such")
    with pytest.raises(ValueError, match="Unrecognized function in lambda: 3"):
        nn.HybridLambda(3)


def test_threads_have_scopes_of_their_own():
    import threading

    names = []
    with nn.HybridSequential(prefix="outer_").name_scope():
        thread = threading.Thread(target=lambda: names.append(nn.Dense(1).prefix))
        thread.start()
        thread.join()
        assert nn.Dense(1).prefix == "outer_dense0_"
    assert names[0].startswith("dense")


def test_nothing_warns_in_ordinary_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = made()
        net.hybridize()
        gradients(net, nd.ones((1, 2)))


# ---- utils -------------------------------------------------------------------------------------


def test_batches_are_split_as_in_mxnet():
    for rows, parts, expected in [(5, 3, [2, 2, 1]), (7, 4, [2, 2, 2, 1]), (10, 4, [3, 3, 2, 2])]:
        found = gluon.utils.split_data(nd.ones((rows,)), parts, even_split=False)
        assert [a.shape[0] for a in found] == expected
    with pytest.raises(ValueError, match="expected a multiple of 2"):
        gluon.utils.split_data(nd.ones((3, 2)), 2)
    with pytest.raises(ValueError, match="Too many slices"):
        gluon.utils.split_data(nd.ones((2,)), 3, even_split=False)
    with pytest.raises(ValueError, match="invalid num_slice 0"):
        gluon.utils.split_data(nd.ones((2,)), 0)
    loaded = gluon.utils.split_and_load(np.ones((2, 3)), [mx.cpu(0), mx.cpu(1)])
    assert [a.context for a in loaded] == [mx.cpu(0), mx.cpu(1)]


def test_norms_are_clipped():
    arrays = [nd.array([3.0]), nd.array([4.0], ctx=mx.cpu(1))]
    assert gluon.utils.clip_global_norm(arrays, 1) == 5
    assert arrays[1].asnumpy()[0] == pytest.approx(0.8)
    assert gluon.utils.clip_global_norm(arrays, 10, check_isfinite=False).shape == (1,)
    with pytest.warns(UserWarning, match="nan or inf"):
        gluon.utils.clip_global_norm([nd.array([np.inf])], 1)
    with pytest.raises(AssertionError, match="at least one"):
        gluon.utils.clip_global_norm([], 1)


def test_files_are_copied_but_not_fetched(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"abc")
    digest = "a9993e364706816aba3e25717850c26c9cd0d89d"
    target = gluon.utils.download(f"file://{source}", str(tmp_path / "target"), sha1_hash=digest)
    assert gluon.utils.check_sha1(target, digest)
    with pytest.raises(OSError, match="expected the SHA-1 digest 00"):
        gluon.utils.download(str(source), str(tmp_path / "other"), sha1_hash="00")
    with pytest.raises(
        RuntimeError, match="fetches nothing from a network: expected the file at '.*x'$"
    ):
        gluon.utils.download("https://example.org/x", str(tmp_path / "x"))
    url = "https://example.org/target"
    assert gluon.utils.download(url, str(tmp_path), sha1_hash=digest) == target
    with pytest.raises(RuntimeError, match="is there has another SHA-1 digest than 00"):
        gluon.utils.download(url, str(tmp_path), sha1_hash="00")


@pytest.mark.process
def test_import_paths_are_those_of_mxnet():
    assert (
        printed(
            """
            import rsnet
            rsnet.as_mxnet()
            import mxnet.gluon.nn as nn
            from mxnet import gluon
            from mxnet.gluon.block import Block, HybridBlock, SymbolBlock
            from mxnet.gluon.contrib.estimator import Estimator
            from mxnet.gluon.contrib.nn import HybridConcurrent
            from mxnet.gluon.contrib.rnn import Conv2DLSTMCell, VariationalDropoutCell
            from mxnet.gluon.data.dataloader import default_batchify_fn
            from mxnet.gluon.data.vision import MNIST, transforms
            from mxnet.gluon.loss import Loss
            from mxnet.gluon.model_zoo.vision import get_model, resnet18_v1
            from mxnet.gluon.nn.basic_layers import Dense
            from mxnet.gluon.nn.conv_layers import Conv2D, MaxPool2D
            from mxnet.gluon.parameter import Constant, Parameter, ParameterDict
            from mxnet.gluon.rnn.rnn_cell import LSTMCell
            from mxnet.gluon.rnn.rnn_layer import LSTM
            from mxnet.gluon.trainer import Trainer
            from mxnet.gluon.utils import split_and_load
            same = [HybridBlock is nn.HybridBlock, Dense is nn.Dense, Trainer is gluon.Trainer]
            print(same + [ParameterDict is gluon.ParameterDict, gluon is rsnet.gluon])
            """
        )
        == "[True, True, True, True, True]"
    )


def test_a_block_of_lists_alone_inside_another():
    class Sums(nn.HybridBlock):
        def hybrid_forward(self, F, levels):
            return F.add_n(*levels)

    class Pyramid(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.sums = Sums()

        def hybrid_forward(self, F, x):
            return self.sums([x, x * 2])

    net = Pyramid()
    for _ in range(2):
        assert net(nd.ones((2,))).asnumpy().tolist() == [3, 3]
        net.hybridize()
    with pytest.raises(ValueError, match="expected an NDArray or a Symbol among them, got list"):
        net.sums([1])
