"""Mixed precision: casts in graphs, scaled losses, overflows."""

import json

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet.contrib import amp
from rsnet.gluon import hybrid_block, nn


@pytest.fixture
def mixed():
    amp.init()
    yield
    hybrid_block.change_graphs(None)


def network():
    data = mx.sym.Variable("data")
    net = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), name="conv")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn"), act_type="relu", name="relu")
    net = mx.sym.concat(net, mx.sym.exp(net * 0.1, name="exp"), name="both")
    net = mx.sym.FullyConnected(net, num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def computed(symbol):
    """By name what the nodes of a symbol compute."""
    inside = symbol.get_internals()
    types = inside.infer_type(**{n: "float32" for n in symbol.list_arguments()})[1]
    return dict(zip(inside.list_outputs(), (np.dtype(t).name for t in types), strict=True))


def test_operators_run_in_the_precision_of_their_list():
    symbol = amp.convert_symbol(network())
    types = computed(symbol)
    expected = {"conv": "float16", "relu": "float16", "exp": "float32", "both": "float32",
                "fc": "float16", "softmax": "float32", "fc_weight": "float32"}  # fmt: skip
    assert {n: types[n if n == "fc_weight" else f"{n}_output"] for n in expected} == expected
    assert symbol.list_arguments() == network().list_arguments()
    assert symbol.list_auxiliary_states() == network().list_auxiliary_states()
    assert symbol.list_outputs() == ["softmax_output"]
    casts = [n for n in types if n.startswith("conv") and "amp_cast" in n]
    assert len(casts) == len(set(casts)) == 2  # weight and bias, once each


def test_numbers_are_those_of_float32_but_for_rounding():
    net, shapes = network(), {"data": (4, 2, 8, 8), "softmax_label": (4,)}
    rng, found = np.random.RandomState(0), []
    values = {
        name: nd.array(rng.uniform(-0.5, 0.5, shape))
        for name, shape in zip(net.list_arguments(), net.infer_shape(**shapes)[0], strict=True)
    }
    values["softmax_label"] = nd.array([0, 1, 2, 0])
    for symbol in (net, amp.convert_symbol(net)):
        exe = symbol.simple_bind(mx.cpu(), **shapes)
        exe.copy_params_from(values)
        out = exe.forward(is_train=True)[0]
        exe.backward()
        assert exe.grad_dict["fc_weight"].dtype == np.float32
        found.append([out.asnumpy(), exe.grad_dict["fc_weight"].asnumpy(),
                      exe.grad_dict["conv_weight"].asnumpy()])  # fmt: skip
    for one, other in zip(*found, strict=True):
        assert 0 < np.abs(one - other).max() < 0.02 * np.abs(one).max()


def test_lists_and_names_decide():
    types = computed(amp.convert_symbol(network(), excluded_sym_names=["fc"]))
    assert types["fc_output"] == "float32" and types["conv_output"] == "float16"
    types = computed(amp.convert_symbol(network(), target_dtype_ops=["FullyConnected"]))
    assert types["conv_output"] == "float32" and types["fc_output"] == "float16"
    when = [("Activation", "act_type", ["relu"])]
    types = computed(amp.convert_symbol(network(), conditional_fp32_ops=when))
    assert types["relu_output"] == "float32"
    for options, says in (
        ({"target_dtype": "int8"}, "expected 'float16'"),
        ({"fp32_ops": ["Convolution"]}, "'Convolution' is to run both"),
        ({"excluded_sym_names": ["no"]}, "excluded_sym_names 'no': expected names of"),
    ):
        with pytest.raises(ValueError, match=says):
            amp.convert_symbol(network(), **options)


def test_every_operator_of_the_lists_is_known():
    names = set(mx.operator.get_all_registered_operators())
    lists = amp.lists
    for op in (*lists.FP16_FUNCS, *lists.FP32_FUNCS, *lists.WIDEST_TYPE_CASTS):
        assert op in names, op
    x = mx.sym.Variable("x")
    for symbol in (x + x, x - x, x * x, x / x, mx.sym.broadcast_add(x, x), x**x, mx.sym.dot(x, x),
                   mx.sym.add_n(x, x), mx.sym.concat(x, x), x > x,
                   mx.sym.maximum(x, x)):  # fmt: skip
        op = json.loads(symbol.tojson())["nodes"][-1]["op"]
        assert op in {*lists.WIDEST_TYPE_CASTS, *lists.FP32_FUNCS}, op


def test_parameters_of_a_checkpoint_become_half():
    net = network()
    mod = mx.mod.Module(net)
    mod.bind([("data", (2, 2, 8, 8))], [("softmax_label", (2,))])
    mod.init_params(mx.init.Uniform(0.3))
    arg_params, aux_params = mod.get_params()
    symbol, args, aux = amp.convert_model(net, arg_params, aux_params, cast_optional_params=True)
    kinds = {name: np.dtype(array.dtype).name for name, array in {**args, **aux}.items()}
    assert kinds["conv_weight"] == kinds["fc_bias"] == "float16"
    assert kinds["bn_gamma"] == kinds["bn_moving_mean"] == "float32"
    other = mx.mod.Module(symbol)
    other.bind([("data", (2, 2, 8, 8))], [("softmax_label", (2,))], for_training=False)
    other.init_params(arg_params=args, aux_params=aux)
    batch = mx.io.DataBatch([nd.random.uniform(shape=(2, 2, 8, 8))], [nd.zeros(2)])
    mod.forward(batch, is_train=False)
    other.forward(batch)
    np.testing.assert_allclose(
        mod.get_outputs()[0].asnumpy(), other.get_outputs()[0].asnumpy(), atol=5e-3
    )


def test_attention_computes_on_one_dtype(mixed):
    """Products are in float16, and the softmax between them in float32."""

    class Attention(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.layer = nn.Dense(24, flatten=False, in_units=8)

        def hybrid_forward(self, F, x):
            mixed = self.layer(x)
            scores = F.contrib.interleaved_matmul_selfatt_qk(mixed, heads=2)
            return F.contrib.interleaved_matmul_selfatt_valatt(mixed, F.softmax(scores), heads=2)

    net = Attention()
    net.initialize(mx.init.Xavier())
    x = nd.random.normal(shape=(3, 2, 8))
    exact = net(x)
    net.hybridize()
    np.testing.assert_allclose(net(x).asnumpy(), exact.asnumpy(), atol=0.01)


def test_a_block_is_converted():
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu", in_units=4), nn.Dense(2, in_units=8))
    net.initialize(mx.init.Xavier())
    x = nd.random.uniform(shape=(3, 4))
    with pytest.raises(RuntimeError, match="expected one that was hybridized"):
        amp.convert_hybrid_block(net)
    net.hybridize()
    y = net(x)
    half = amp.convert_hybrid_block(net, cast_optional_params=True)
    assert {np.dtype(p.dtype).name for p in half.collect_params().values()} == {"float16"}
    assert half(x).dtype == np.float16
    np.testing.assert_allclose(half(x).asnumpy(), y.asnumpy(), atol=5e-3)


def test_hybridized_blocks_train_in_mixed_precision(mixed):
    net, loss_of = nn.HybridSequential(), gluon.loss.SoftmaxCrossEntropyLoss()
    net.add(nn.Dense(16, activation="tanh"), nn.Dense(2))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    amp.init_trainer(trainer)
    rng = np.random.RandomState(1)
    x = rng.uniform(-1, 1, (64, 6)).astype("float32")
    y = nd.array(x.sum(axis=1) > 0)
    losses = []
    for _ in range(40):
        with autograd.record():
            out = net(nd.array(x))
            loss = loss_of(out.astype("float32"), y)
            with amp.scale_loss(loss, trainer) as scaled:
                scaled.backward()
        trainer.step(64)
        losses.append(loss.mean().asscalar())
    assert out.dtype == np.float16
    assert losses[-1] < 0.5 * losses[0]
    assert {np.dtype(p.dtype).name for p in net.collect_params().values()} == {"float32"}


def test_an_overflow_leaves_out_the_update_and_halves_the_scale():
    net = nn.Dense(1, in_units=2)
    net.initialize(init="ones")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    with pytest.raises(ValueError, match="call amp.init_trainer"):
        amp.unscale(trainer)
    amp.init_trainer(trainer)
    scaler = trainer._amp_loss_scaler
    for x, weight, scale in ((np.inf, 1.0, 32768.0), (1.0, 0.5, 32768.0)):
        with autograd.record():
            loss = net(nd.full((4, 2), x))
            with amp.scale_loss([loss], trainer) as scaled:
                autograd.backward(scaled)
        trainer.step(4)
        assert net.weight.data().asnumpy().tolist() == [[weight] * 2]
        assert scaler.loss_scale == scale
    scaler._unskipped = 1999
    assert not scaler.has_overflow(net.collect_params().values())
    assert scaler.loss_scale == 65536


def test_gradients_are_unscaled_to_be_clipped():
    net = nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(init="ones")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    amp.init_trainer(trainer)
    with autograd.record(), amp.scale_loss(net(nd.full((1, 2), 3)), trainer) as scaled:
        scaled.backward()
    amp.unscale(trainer)
    assert net.weight.grad().asnumpy().tolist() == [[3, 3]]
    trainer.step(1)
    assert net.weight.data().asnumpy().tolist() == [[-2, -2]]
    for wrong, kind in ((mx.optimizer.SGD(), TypeError),):
        with pytest.raises(kind, match="expected a gluon.Trainer"):
            amp.init_trainer(wrong)
    on_store = gluon.Trainer(net.collect_params(), "sgd", update_on_kvstore=True)
    with pytest.raises(ValueError, match="update_on_kvstore=False"):
        amp.init_trainer(on_store)
