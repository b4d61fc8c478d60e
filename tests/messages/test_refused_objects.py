"""Objects of the wrong kind are refused where they are given, by an error that names them."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import gluon, nd, sym

X = nd.ones((2, 3))
NET = sym.FullyConnected(sym.Variable("data"), num_hidden=2, name="fc")
NO_SHAPES = [b"ab", bytearray(b"ab"), {2, 3}, frozenset({2, 3}), {2: 3}, 2.5, (2.5, 3), object()]
SHAPES = {
    "zeros": ("shape", nd.zeros),
    "broadcast_to": ("shape", lambda shape: nd.broadcast_to(nd.ones((1, 3)), shape=shape)),
    "method broadcast_to": ("shape", lambda shape: nd.ones((1, 3)).broadcast_to(shape)),
    "transpose": ("axes", lambda axes: nd.transpose(X, axes=axes)),
    "method transpose": ("axes", lambda axes: X.transpose(axes=axes)),
    "moveaxis": ("source", lambda axes: nd.moveaxis(X, axes, (0, 1))),
    "squeeze": ("axis", lambda axes: nd.ones((1, 1)).squeeze(axes, inplace=True)),
    "split": ("indices_or_sections", lambda cuts: nd.split_v2(X, cuts)),
    "split of a symbol": ("indices_or_sections", lambda cuts: sym.split_v2(NET, cuts)),
    "Parameter": ("shape of Parameter 'w'", lambda shape: gluon.Parameter("w", shape=shape)),
    "ParameterDict": ("shape of Parameter 'w'", lambda s: gluon.ParameterDict().get("w", shape=s)),
    "Conv2D": ("kernel_size", lambda kernel: gluon.nn.Conv2D(1, kernel_size=kernel)),
    "DataDesc": ("shape of 'x'", lambda shape: mx.io.DataDesc("x", shape)),
    "Variable": ("shape of 'x'", lambda shape: sym.Variable("x", shape=shape)),
    "infer_shape": ("shape", lambda shape: NET.infer_shape(data=shape)),
    "simple_bind": ("shape", lambda shape: NET.simple_bind(mx.cpu(), data=shape)),
}


@pytest.mark.parametrize("door", SHAPES)
def test_what_is_no_list_of_integers(door):
    what, call = SHAPES[door]
    for wrong in NO_SHAPES:
        with pytest.raises((TypeError, mx.MXNetError), match=f"invalid {what} .*expected"):
            call(wrong)


@pytest.mark.parametrize("door", ["broadcast_to", "transpose"])
def test_parameters_of_the_wrong_kind_are_type_errors(door):
    what, call = SHAPES[door]
    for wrong in (b"ab", {2, 3}, {2: 3}, object()):
        with pytest.raises(mx.base.MXTypeError, match=rf"^{door}: invalid {what} [^']"):
            call(wrong)


@pytest.mark.parametrize("extent", [2**63, 2**70])
def test_extents_of_more_than_64_bits(extent):
    for call in (
        lambda shape: sym.Variable("x", shape=shape),
        lambda shape: NET.infer_shape(data=shape),
        lambda shape: NET.infer_shape_partial(data=shape),
        lambda shape: NET.simple_bind(mx.cpu(), data=shape),
        lambda shape: gluon.Parameter("x", shape=shape),
        lambda shape: mx.io.DataDesc("x", shape),
        nd.zeros,
        X.reshape,
    ):
        with pytest.raises(mx.base.MXValueError, match=r"shape .*expected numbers of less than 2"):
            call((extent, 1))


def test_one_text_for_wrong_dtypes():
    text = "'real': expected one of: float32, float64, float16, uint8, int32, int8, int64, bool"
    for call in (
        lambda dtype: nd.array([1], dtype=dtype),
        lambda dtype: nd.zeros(1, dtype=dtype),
        lambda dtype: nd.arange(3, dtype=dtype),
        lambda dtype: nd.random.uniform(shape=1, dtype=dtype),
        lambda dtype: nd.Cast(X, dtype=dtype),
        lambda dtype: sym.Variable("x", dtype=dtype),
        lambda dtype: NET.infer_type(data=dtype),
        lambda dtype: gluon.Parameter("x", shape=1, dtype=dtype).initialize(),
    ):
        with pytest.raises((TypeError, mx.MXNetError), match=text):
            call("real")
    with pytest.raises(mx.MXNetError, match="expected one of: float16, float32, float64 or None"):
        nd.random.uniform(shape=1, dtype="int32")


def dense():
    net = gluon.nn.Dense(1, in_units=1)
    net.initialize()
    return net


OTHERS = {
    "Group": (lambda: sym.Group(3), "symbols 3"),
    "init of a variable": (lambda: sym.Variable("a", init=3), "init 3"),
    "attr": (lambda: NET.attr(3), "key 3"),
    "backward": (lambda: NET.simple_bind(mx.cpu(), data=(2, 3)).backward(3), "out_grads 3"),
    "copy_params_from": (
        lambda: NET.simple_bind(mx.cpu(), data=(2, 3)).copy_params_from([X]),
        "arg_params",
    ),
    "units": (lambda: gluon.nn.Dense(-2), "units -2"),
    "hidden_size": (lambda: gluon.rnn.LSTM("a"), "hidden_size 'a'"),
    "num_layers": (lambda: gluon.rnn.LSTM(3, num_layers=0), "num_layers 0"),
    "optimizer_params": (
        lambda: gluon.Trainer(dense().collect_params(), "sgd", [1]),
        r"optimizer_params \[1\]",
    ),
    "select": (lambda: gluon.nn.Dense(1).collect_params("("), r"select '\('"),
    "select of another kind": (lambda: gluon.nn.Dense(1).collect_params(3), "select 3"),
    "set_data": (lambda: gluon.Parameter("w", shape=1).set_data(3), "data 3 of Parameter 'w'"),
    "split_and_load": (lambda: gluon.utils.split_and_load(X, mx.cpu()), "ctx_list cpu"),
    "max_norm": (lambda: gluon.utils.clip_global_norm([X], "a"), "max_norm 'a'"),
    "weight of a loss": (lambda: gluon.loss.L2Loss(weight="a"), "weight 'a'"),
    "dataset": (lambda: gluon.data.DataLoader(3, 2), "dataset 3"),
    "array": (lambda: gluon.data.ArrayDataset(3), "array 0 3"),
    "data": (lambda: gluon.data.SimpleDataset(3), "data 3"),
    "fn": (lambda: gluon.data.SimpleDataset([1]).transform(3), "fn 3"),
    "transform": (lambda: gluon.data.vision.transforms.Compose([3]), "transform 3"),
    "transforms": (lambda: gluon.data.vision.transforms.Compose(3), "transforms 3"),
    "size": (lambda: gluon.data.vision.transforms.RandomResizedCrop("a"), "size 'a'"),
    "layout": (lambda: mx.io.DataDesc.get_batch_axis(3), "layout 3"),
    "header": (lambda: mx.recordio.pack(3, b""), "header 3"),
    "payload": (lambda: mx.recordio.pack((0, 1, 1, 0), "abc"), "s 'abc'"),
    "buf": (lambda: mx.image.imdecode(3), "buf 3"),
    "w": (lambda: mx.image.imresize(nd.ones((4, 4, 3)), "a", 2), "w 'a'"),
    "size of an edge": (lambda: mx.image.resize_short(nd.ones((4, 4, 3)), "a"), "size 'a'"),
    "size of a crop": (lambda: mx.image.center_crop(nd.ones((4, 4, 3)), 3), "size 3"),
    "mean": (lambda: mx.image.color_normalize(nd.ones((4, 4, 3)), "a"), "mean 'a'"),
    "data_shape": (lambda: mx.image.CreateAugmenter((3, 4)), r"data_shape \(3, 4\)"),
    "ts": (lambda: mx.image.SequentialAug(3), "ts 3"),
    "hue": (lambda: mx.image.HueJitterAug("a"), "hue 'a'"),
    "param_idx2name": (lambda: mx.optimizer.create("sgd", param_idx2name=3), "param_idx2name 3"),
    "lr_mult": (lambda: mx.optimizer.create("sgd").set_lr_mult(3), "args_lr_mult 3"),
    "wd_mult": (lambda: mx.optimizer.create("sgd").set_wd_mult({"a": "b"}), "args_wd_mult.* 'b'"),
    "optimizer": (lambda: mx.optimizer.get_updater(3), "optimizer 3"),
    "top_k": (lambda: mx.metric.create("top_k_accuracy", top_k="a"), "top_k 'a'"),
    "labels": (lambda: mx.metric.Accuracy().update(3, 4), "labels 3"),
    "eps": (lambda: mx.metric.CrossEntropy(eps="a"), "eps 'a'"),
    "index": (lambda: mx.metric.CompositeEvalMetric().get_metric(5), "index 5"),
    "data_names": (lambda: mx.mod.Module(NET, data_names=3), "data_names 3"),
    "shapes": (lambda: mx.mod.Module(NET, label_names=None).bind(3), "shapes 3"),
    "batch_size": (lambda: mx.callback.Speedometer("a"), "batch_size 'a'"),
    "period": (lambda: mx.callback.do_checkpoint("x", period="a"), "period 'a'"),
    "scale": (lambda: mx.init.Uniform("a"), "scale 'a'"),
    "sentences": (lambda: mx.rnn.encode_sentences(3), "sentences 3"),
    "N": (lambda: nd.eye("a"), "N 'a'"),
    "target_dtype": (lambda: mx.contrib.amp.convert_symbol(NET, "real"), "target_dtype 'real'"),
    "calib_mode": (
        lambda: mx.contrib.quantization.quantize_net(gluon.nn.Dense(1), calib_mode="customize"),
        "calib_mode 'customize'",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_arguments_of_the_wrong_kind(name):
    call, what = OTHERS[name]
    errors = (TypeError, ValueError, AssertionError, IndexError)
    with pytest.raises(errors, match=f"invalid {what}.*expected|invalid .*expected.*{what}"):
        call()


def test_numbers_of_numpy_are_integers():
    assert gluon.nn.Conv2D(1, kernel_size=np.int64(3))._kwargs["kernel"] == (3, 3)
    assert gluon.Parameter("w", shape=np.int32(3)).shape == (3,)
    assert mx.io.DataDesc("x", np.array([2, 3])).shape == (2, 3)
    assert gluon.nn.Dense(np.int64(3))._units == 3
