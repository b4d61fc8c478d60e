"""Layers: hybrid and operator by operator they compute the same; they look as in MXNet."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet.gluon import contrib, nn, rnn

PLANE, IMAGE = (3, 4), (2, 4, 9, 8)

# Layer, shape of its input, shape of its output.
LAYERS = {
    "dense": (lambda: nn.Dense(3, activation="tanh"), (4, 2, 5), (4, 3)),
    "dense of the last axis": (
        lambda: nn.Dense(3, flatten=False, use_bias=False),
        (4, 2, 5),
        (4, 2, 3),
    ),
    "conv 1": (lambda: nn.Conv1D(6, 3, strides=2, padding=1), (2, 4, 9), (2, 6, 5)),
    "conv 2": (
        lambda: nn.Conv2D(6, 3, groups=2, dilation=2, activation="relu"),
        IMAGE,
        (2, 6, 5, 4),
    ),
    "conv 3": (lambda: nn.Conv3D(6, (1, 2, 3), use_bias=False), (2, 4, 5, 6, 7), (2, 6, 5, 5, 5)),
    "conv 1 back": (lambda: nn.Conv1DTranspose(6, 3, 2, 1, 1), (2, 4, 9), (2, 6, 18)),
    "conv 2 back": (lambda: nn.Conv2DTranspose(6, 3, strides=2), IMAGE, (2, 6, 19, 17)),
    "conv 3 back": (lambda: nn.Conv3DTranspose(6, 2), (2, 4, 3, 3, 3), (2, 6, 4, 4, 4)),
    "max 1": (lambda: nn.MaxPool1D(3), (2, 4, 9), (2, 4, 3)),
    "max 2": (lambda: nn.MaxPool2D(3, 2, ceil_mode=True), IMAGE, (2, 4, 4, 4)),
    "max 3": (lambda: nn.MaxPool3D(2), (2, 4, 4, 4, 4), (2, 4, 2, 2, 2)),
    "mean 1": (lambda: nn.AvgPool1D(), (2, 4, 9), (2, 4, 4)),
    "mean 2": (lambda: nn.AvgPool2D(3, 2, 1, count_include_pad=False), IMAGE, (2, 4, 5, 4)),
    "mean 3": (lambda: nn.AvgPool3D(2), (2, 4, 4, 4, 4), (2, 4, 2, 2, 2)),
    "global max": (lambda: nn.GlobalMaxPool2D(), IMAGE, (2, 4, 1, 1)),
    "global mean": (lambda: nn.GlobalAvgPool1D(), (2, 4, 9), (2, 4, 1)),
    "global mean 3": (lambda: nn.GlobalAvgPool3D(), (2, 4, 3, 3, 3), (2, 4, 1, 1, 1)),
    "reflection": (lambda: nn.ReflectionPad2D(2), IMAGE, (2, 4, 13, 12)),
    "batch norm": (lambda: nn.BatchNorm(), IMAGE, IMAGE),
    "batch norm, fixed": (lambda: nn.BatchNorm(scale=False, center=False), IMAGE, IMAGE),
    "batch norm, last axis": (lambda: nn.BatchNorm(axis=-1), IMAGE, IMAGE),
    "batch norm, relu": (lambda: nn.BatchNormReLU(), IMAGE, IMAGE),
    "batch norm, devices": (lambda: nn.SyncBatchNorm(), IMAGE, IMAGE),
    "instance norm": (lambda: nn.InstanceNorm(scale=True), IMAGE, IMAGE),
    "instance norm, axis": (lambda: nn.InstanceNorm(axis=2), IMAGE, IMAGE),
    "layer norm": (lambda: nn.LayerNorm(), IMAGE, IMAGE),
    "group norm": (lambda: nn.GroupNorm(2), IMAGE, IMAGE),
    "embedding": (lambda: nn.Embedding(5, 3), PLANE, (3, 4, 3)),
    "flatten": (lambda: nn.Flatten(), IMAGE, (2, 288)),
    "dropout of nothing": (lambda: nn.Dropout(0), PLANE, PLANE),
    "leaky": (lambda: nn.LeakyReLU(0.2), PLANE, PLANE),
    "prelu": (lambda: nn.PReLU(in_channels=4), PLANE, PLANE),
    "elu": (lambda: nn.ELU(0.7), PLANE, PLANE),
    "selu": (lambda: nn.SELU(), PLANE, PLANE),
    "gelu": (lambda: nn.GELU(), PLANE, PLANE),
    "swish": (lambda: nn.Swish(1.5), PLANE, PLANE),
    "identity": (lambda: nn.Identity(), PLANE, PLANE),
    "shuffle 1": (lambda: contrib.nn.PixelShuffle1D(2), (2, 6, 3), (2, 3, 6)),
    "shuffle 2": (lambda: contrib.nn.PixelShuffle2D((2, 3)), (2, 12, 3, 2), (2, 2, 6, 6)),
    "shuffle 3": (lambda: contrib.nn.PixelShuffle3D((2, 3, 2)), (1, 24, 3, 2, 2), (1, 2, 6, 6, 4)),
    "rnn": (lambda: rnn.RNN(3, activation="tanh"), (5, 2, 4), (5, 2, 3)),
    "lstm": (lambda: rnn.LSTM(3, 2, "NTC", bidirectional=True), (2, 5, 4), (2, 5, 6)),
    "gru": (lambda: rnn.GRU(3, num_layers=2), (5, 2, 4), (5, 2, 3)),
    "lstm, projected": (lambda: rnn.LSTM(4, projection_size=3), (5, 2, 4), (5, 2, 3)),
}


def computed(layer, x):
    x = nd.array(x)
    x.attach_grad()
    with autograd.record():
        y = layer(x)
    y.backward(nd.array(np.linspace(0, 1, y.size).reshape(y.shape)))
    params = layer.collect_params().values()
    grads = [p.grad().asnumpy() for p in params if p.grad_req != "null"]
    return [y.asnumpy(), x.grad.asnumpy(), *grads]


@pytest.mark.parametrize("name", list(LAYERS))
def test_layers_are_hybrid(name):
    make, shape, expected = LAYERS[name]
    x = np.random.default_rng(0).uniform(0.1, 3, shape).astype("float32")
    layer = make()
    layer.initialize(mx.init.Normal(0.5))
    plain = computed(layer, x)
    assert plain[0].shape == expected
    layer.hybridize()
    for a, b in zip(computed(layer, x), plain):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["conv 2", "lstm", "batch norm", "layer norm", "dense"])
def test_layers_inside_of_a_network_wait_for_their_shapes(name):
    make, shape, expected = LAYERS[name]
    net = nn.HybridSequential()
    net.add(nn.Identity(), make())
    net.initialize()
    net.hybridize()
    assert net(nd.ones(shape)).shape == expected


def test_batch_norm_moves_its_averages_while_training():
    for hybrid in (False, True):
        layer = nn.BatchNorm(momentum=0.5)
        layer.initialize()
        layer.hybridize(hybrid)
        x = nd.array(np.arange(8).reshape(4, 2))
        layer(x)
        assert layer.running_mean.data().asnumpy().tolist() == [0, 0]
        x.attach_grad()
        with autograd.record():
            layer(x).backward()
        assert layer.running_mean.data().asnumpy().tolist() == [1.5, 2]
        assert layer.running_var.data().asnumpy()[0] == pytest.approx(3)


def test_batch_norm_stays_in_float32():
    layer = nn.BatchNorm(in_channels=2)
    layer.initialize()
    layer.cast("float16")
    assert layer.gamma.data().dtype == np.float32


def test_dropout_drops_while_training():
    for hybrid in (False, True):
        layer = nn.Dropout(0.5, axes=(1,))
        layer.hybridize(hybrid)
        x = nd.ones((200, 3))
        assert (layer(x).asnumpy() == 1).all()
        with autograd.record():
            y = layer(x).asnumpy()
        assert set(np.unique(y)) == {0, 2} and (y == y[:, :1]).all()


def test_normalization_gives_mean_zero_and_variance_one():
    x = np.random.default_rng(0).normal(3, 5, IMAGE).astype("float32")
    for layer, axes in (
        (nn.LayerNorm(), 3),
        (nn.InstanceNorm(), (2, 3)),
        (nn.GroupNorm(1), (1, 2, 3)),
    ):
        layer.initialize()
        y = layer(nd.array(x)).asnumpy()
        np.testing.assert_allclose(y.mean(axes), 0, atol=1e-4)
        np.testing.assert_allclose(y.var(axes), 1, rtol=1e-2)


def test_pixels_are_shuffled_as_in_numpy():
    x = np.arange(2 * 12 * 3 * 2, dtype="float32").reshape(2, 12, 3, 2)
    y = contrib.nn.PixelShuffle2D((2, 3))(nd.array(x)).asnumpy()
    expected = x.reshape(2, 2, 2, 3, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 6)
    np.testing.assert_array_equal(y, expected)


def test_blocks_side_by_side_are_concatenated():
    for make in (nn.HybridConcurrent, nn.Concurrent, nn.Concatenate, nn.HybridConcatenate):
        net = make(axis=1)
        net.add(nn.Identity(), nn.Dense(2))
        net.initialize()
        assert net(nd.ones((3, 4))).shape == (3, 6)


REPRESENTATIONS = {
    "Conv2D(None -> 6, kernel_size=(5, 5), stride=(1, 1), Activation(relu))": lambda: nn.Conv2D(
        6, 5, activation="relu"
    ),
    "Conv2D(4 -> 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), groups=2, bias=False)": (
        lambda: nn.Conv2D(6, 3, 2, 1, groups=2, use_bias=False, in_channels=8)
    ),
    "Dense(None -> 10, Activation(tanh))": lambda: nn.Dense(10, "tanh"),
    "Dense(3 -> 2, linear)": lambda: nn.Dense(2, in_units=3),
    "Dropout(p = 0.5, axes=())": lambda: nn.Dropout(0.5),
    "Embedding(3 -> 4, float32)": lambda: nn.Embedding(3, 4),
    "LeakyReLU(0.1)": lambda: nn.LeakyReLU(0.1),
    "LayerNorm(eps=1e-05, axis=-1, center=True, scale=True, in_channels=0)": nn.LayerNorm,
    "GroupNorm(eps=1e-05, num_groups=1, center=True, scale=True)": nn.GroupNorm,
    "MaxPool2D(size=(2, 2), stride=(2, 2), padding=(0, 0), ceil_mode=False, global_pool=False, "
    "pool_type=max, layout=NCHW)": nn.MaxPool2D,
    "BatchNorm(axis=1, eps=1e-05, momentum=0.9, fix_gamma=False, use_global_stats=False, "
    "in_channels=None)": nn.BatchNorm,
    "LSTMCell(None -> 16)": lambda: rnn.LSTMCell(4),
    "LSTM(3 -> 4, TNC, num_layers=2, bidirectional)": lambda: rnn.LSTM(
        4, 2, bidirectional=True, input_size=3
    ),
    "L2Loss(batch_axis=0, w=1.0)": gluon.loss.L2Loss,
}


@pytest.mark.parametrize("text", list(REPRESENTATIONS))
def test_layers_look_as_in_mxnet(text):
    assert repr(REPRESENTATIONS[text]()) == text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nn.Conv2D(1, (1, 2, 3)), "invalid kernel_size"),
        (lambda: nn.Conv2D(1, 1, layout="NCW"), "invalid layout 'NCW'"),
        (lambda: nn.Conv2D(4, 1, groups=2, in_channels=3), "invalid groups 2"),
        (lambda: nn.MaxPool2D((1, 2, 3)), "invalid pool_size"),
        (lambda: nn.AvgPool1D(layout="NCHW"), "invalid layout 'NCHW'"),
        (lambda: nn.LeakyReLU(-1), "invalid alpha -1: expected at least 0"),
        (
            lambda: nn.Embedding(2, 2, sparse_grad=True),
            "expected sparse_grad=False, whose gradient",
        ),
        (lambda: nn.SyncBatchNorm(num_devices=-2), "invalid num_devices -2"),
        (lambda: nn.ReflectionPad2D((1, 2)), "invalid padding"),
        (lambda: contrib.nn.SparseEmbedding(3, 4), "use nn.Embedding, whose gradient"),
        (lambda: contrib.nn.PixelShuffle2D((1, 2, 3)), "invalid factor .* expected an int or 2"),
        (lambda: rnn.LSTM(4, layout="XX"), "invalid layout 'XX'"),
        (lambda: rnn.RNN(4, activation="foo"), "invalid activation 'foo'"),
    ],
)
def test_wrong_arguments_of_layers_are_refused(make, text):
    with pytest.raises((AssertionError, ValueError, NotImplementedError), match=text):
        make()


@pytest.mark.skipif(
    not hasattr(nd.contrib, "ModulatedDeformableConvolution"),
    reason="deformable convolutions are not registered",
)
@pytest.mark.parametrize("name", ["DeformableConvolution", "ModulatedDeformableConvolution"])
def test_deformable_convolutions_without_offsets_are_convolutions(name):
    layer = getattr(contrib.cnn, name)(6, kernel_size=3, padding=1, in_channels=4)
    layer.initialize()
    plain = nn.Conv2D(6, 3, padding=1, in_channels=4)
    plain.initialize()
    plain.weight.set_data(layer.deformable_conv_weight.data())
    x = nd.array(np.random.default_rng(0).normal(size=IMAGE))
    np.testing.assert_allclose(layer(x).asnumpy(), plain(x).asnumpy(), rtol=1e-3, atol=1e-4)


def test_arguments_of_pooling_layers_come_in_the_order_of_mxnet():
    x = nd.ones((1, 5, 5, 2))
    assert nn.MaxPool2D(2, 2, 0, "NHWC", True)(x).shape == (1, 3, 3, 2)
    assert nn.AvgPool2D(2, 2, 0, True, "NHWC")(x).shape == (1, 3, 3, 2)
    assert nn.MaxPool1D(2, 2, 0, "NCW", True)(nd.ones((1, 2, 5))).shape == (1, 2, 3)
