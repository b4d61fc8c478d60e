"""Mistakes in networks: what failed is named, and nothing is left half done."""

import re

import numpy as np
import pytest

import rsnet as mx
from rsnet import gluon, nd
from rsnet.gluon import nn


def says(kind, text):
    return pytest.raises(kind, match=re.escape(text))


def no_such_device():
    """A GPU that this machine does not have."""
    return mx.gpu(mx.num_gpus())


@pytest.mark.parametrize("move", ["of all", "of one"])
def test_a_refused_move_leaves_the_network_whole(move):
    net = nn.HybridSequential()
    net.add(nn.Dense(3), nn.Dense(2))
    net.initialize()
    x = nd.ones((1, 4))
    before = net(x).asnumpy()
    moved = net if move == "of all" else net[0].weight
    with pytest.raises(mx.MXNetError):
        moved.reset_ctx(no_such_device())
    assert {str(ctx) for ctx in net.collect_params().list_ctx()} == {"cpu(0)"}
    np.testing.assert_array_equal(net(x).asnumpy(), before)
    net.reset_ctx(mx.cpu(1))
    np.testing.assert_array_equal(net(x.as_in_context(mx.cpu(1))).asnumpy(), before)
    net[0].weight.reset_ctx(mx.cpu())
    assert net[0].weight.list_ctx() == [mx.cpu()]
    assert net[0].weight.grad().context == mx.cpu()


def test_no_parameter_moves_if_one_cannot():
    params = gluon.ParameterDict()
    first = params.get("first", shape=(1,))
    first.initialize()
    params.get("second", shape=(1,))
    with says(ValueError, "which has no values: expected one that is initialized"):
        params.reset_ctx(mx.cpu(1))
    assert first.list_ctx() == [mx.cpu()]


def test_layers_are_no_arguments_of_containers():
    text = "HybridSequential: invalid prefix Dense("
    with says(TypeError, text) as caught:
        nn.HybridSequential(nn.Dense(2, in_units=2), nn.Dense(3))
    assert str(caught.value).endswith("expected a str; add layers by add(...)")
    with says(TypeError, "Dense: invalid prefix 3: expected a str"):
        nn.Dense(2, prefix=3)


class Forgetful(nn.Lambda):
    def __init__(self):
        self.dense = nn.Dense(2)


def test_a_block_without_its_constructor_says_so():
    with says(AttributeError, "Forgetful: expected super().__init__() before attribute 'dense'"):
        Forgetful()


def test_a_block_that_was_not_made_says_so_at_its_first_use():
    class Bare(gluon.Block):
        def __init__(self):
            self.width = 3

    for use in (lambda b: b.initialize(), lambda b: b(nd.ones((1,))), lambda b: b.name_scope()):
        with says(AttributeError, "Bare: expected super().__init__() in its constructor"):
            use(Bare())


@pytest.mark.parametrize("container", [nn.Sequential, nn.HybridSequential])
def test_only_blocks_are_added(container):
    net = container()
    with says(TypeError, f"{container.__name__}.add: invalid block [Dense("):
        net.add([nn.Dense(2)])
    with says(TypeError, "expected a Block (nn.Lambda makes one of a function)"):
        net.add(nd.relu)
    assert len(net) == 0


def test_a_file_of_another_network_is_named_with_both_sides(tmp_path):
    path = str(tmp_path / "dense.params")
    dense = nn.Dense(2, in_units=2)
    dense.initialize()
    dense.save_parameters(path)
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2))
    text = f"invalid file '{path}', which is of another network: expected "
    with says(AssertionError, text + "'0.weight', '0.bias', got 'weight', 'bias'"):
        net.load_parameters(path)


def test_states_that_are_none_name_the_file(tmp_path):
    path = tmp_path / "bad.states"
    path.write_text("x")
    net = nn.Dense(2, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    with says(ValueError, f"file '{path}': invalid states: expected what get_states"):
        trainer.load_states(str(path))


@pytest.mark.parametrize(
    ("layer", "make"),
    [
        ("Dense", lambda activation: nn.Dense(2, activation=activation)),
        ("Conv2D", lambda activation: nn.Conv2D(2, 3, activation=activation)),
        ("Activation", nn.Activation),
    ],
)
def test_unknown_activations_are_refused_where_the_layer_is_made(layer, make):
    with says(ValueError, f"{layer}: invalid activation 'gelu': expected one of: relu, sigmoid"):
        make("gelu")
    with says(ValueError, "such as nn.GELU()"):
        make(nn.GELU())
    make("relu")


def test_every_activation_of_the_operator_is_one_of_the_layer():
    from rsnet.gluon.nn.activations import _KINDS

    for kind in _KINDS:
        nd.Activation(nd.ones((1,)), act_type=kind).wait_to_read()
    with pytest.raises(mx.MXNetError) as caught:
        nd.Activation(nd.ones((1,)), act_type="gelu")
    listed = str(caught.value).partition("expected one of: ")[2].partition(", in operator")[0]
    assert sorted(listed.split(", ")) == sorted(_KINDS)


def test_unknown_initializers_are_refused_where_the_layer_is_made():
    with says(ValueError, "invalid initializer 'xavierr': expected one of: "):
        nn.Dense(2, weight_initializer="xavierr")
    nn.Dense(2, weight_initializer=mx.init.Xavier().dumps())


def test_what_inference_was_given_is_a_note_and_not_printed(capsys):
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    symbol = net(mx.sym.var("data"))
    with pytest.raises(mx.MXNetError) as caught:
        symbol.infer_shape(data=(1, 2))
    assert "infer_shape was given data: (1, 2)" in " ".join(caught.value.__notes__)
    assert not capsys.readouterr().out


@pytest.mark.parametrize("hybrid", [False, True])
def test_data_of_another_dtype_are_named_beside_the_parameters(hybrid):
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
    net.initialize()
    net.hybridize(hybrid)
    with pytest.raises(TypeError) as caught:
        net(nd.ones((1, 2), dtype="float64")).wait_to_read()
    notes = [note for note in caught.value.__notes__ if "convert one by astype" in note]
    assert len(notes) == 1
    assert "is float64, '" in notes[0] and "is float32: convert" in notes[0]


def test_unknown_switches_of_hybridize_name_those_that_there_are():
    with says(TypeError, "invalid switch 'fast': expected one of: memory_limit, static_alloc,"):
        nn.Dense(2).hybridize(fast=True)
