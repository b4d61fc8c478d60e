"""Models on 8-bit integers: `contrib.quantization` beside the models that they were."""

import ctypes
import inspect

import numpy as np
import pytest

import rsnet as mx
from rsnet import gluon, nd, sym
from rsnet.contrib import quantization
from rsnet.contrib.quantization._calibration import Observer


def digits(count, seed):
    """Noisy, shifted pictures of ten patterns, (count, 1, 12, 12), and their numbers."""
    patterns = np.random.RandomState(7).uniform(size=(10, 8, 8)) > 0.55
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 10, count)
    images = rng.normal(0, 0.25, (count, 1, 12, 12))
    for image, label in zip(images, labels, strict=True):
        down, across = rng.randint(0, 3, 2)
        image[0, down : down + 8, across : across + 8] += patterns[label]
    return images.astype("float32"), labels.astype("float32")


def network():
    net = sym.Variable("data")
    net = sym.Convolution(net, kernel=(3, 3), num_filter=16, name="conv1")
    net = sym.Activation(net, act_type="relu", name="relu1")
    net = sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool1")
    net = sym.Convolution(net, kernel=(3, 3), num_filter=32, name="conv2")
    net = sym.BatchNorm(net, name="bn")
    net = sym.Activation(net, act_type="relu", name="relu2")
    net = sym.FullyConnected(sym.Flatten(net), num_hidden=32, name="fc1")
    net = sym.Activation(net, act_type="relu", name="relu3")
    net = sym.FullyConnected(net, num_hidden=10, name="fc2")
    return sym.SoftmaxOutput(net, name="softmax")


@pytest.fixture(scope="module")
def trained():
    """A trained model: symbol, arguments, auxiliary states."""
    mx.random.seed(1)
    np.random.seed(1)
    images, labels = digits(1200, 1)
    module = mx.mod.Module(network(), context=mx.cpu())
    batches = mx.io.NDArrayIter(images, labels, 50, shuffle=True)
    module.fit(
        batches, num_epoch=8, initializer=mx.init.Xavier(), optimizer_params={"learning_rate": 0.1},
        progress=False,
    )  # fmt: skip
    return (module.symbol, *module.get_params())


def predictions(symbol, args, aux, images):
    inputs = {"data": images.shape, "softmax_label": (len(images),)}
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", **inputs)
    executor.copy_params_from(args, aux)
    return executor.forward(is_train=False, data=nd.array(images))[0].asnumpy()


def accuracy(model, images, labels):
    return (predictions(*model, images).argmax(axis=1) == labels).mean()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "naive", "entropy"])
@pytest.mark.parametrize("dtype", ["int8", "auto"])
def test_accuracy_is_that_of_float(trained, tmp_path, mode, dtype):
    images, labels = digits(2000, 2)
    calibration = mx.io.NDArrayIter(digits(200, 3)[0], None, 50)
    made = quantization.quantize_model(
        *trained, calib_mode=mode, calib_data=calibration, quantized_dtype=dtype
    )
    exact, fast = accuracy(trained, images, labels), accuracy(made, images, labels)
    assert exact > 0.95
    assert fast >= exact - 0.005
    operators = [node.op for node in made[0].graph().nodes]
    assert operators.count("_contrib_quantized_conv") == 2
    assert operators.count("_contrib_quantized_fully_connected") == 2
    assert {"Convolution", "FullyConnected"}.isdisjoint(operators)
    mx.model.save_checkpoint(str(tmp_path / "fast"), 1, *made)
    loaded = mx.model.load_checkpoint(str(tmp_path / "fast"), 1)
    assert predictions(*loaded, images).tolist() == predictions(*made, images).tolist()


def test_what_is_excluded_stays_as_it_is(trained):
    made, args, _ = quantization.quantize_model(
        *trained, calib_mode="none", excluded_sym_names=["conv1"], excluded_op_names=["Pooling"]
    )
    operators = {node.name: node.op for node in made.graph().nodes}
    assert operators["conv1"] == "Convolution"
    assert operators["pool1"] == "Pooling"
    assert "conv1_weight" in args
    assert args["conv2_weight_quantize"].dtype == np.int8


def test_calibration_reads_as_many_examples_as_asked(trained):
    class Counted(mx.io.NDArrayIter):
        served = 0

        def next(self):
            self.served += 1
            return super().next()

    images = Counted(digits(200, 3)[0], None, 50)
    quantization.quantize_model(
        *trained, calib_mode="naive", calib_data=images, num_calib_examples=100
    )
    assert images.served == 2


def test_wrong_arguments_are_refused(trained):
    with pytest.raises(ValueError, match="invalid calib_mode 'some': expected one of none"):
        quantization.quantize_model(*trained, calib_mode="some")
    with pytest.raises(
        ValueError, match="calib_data None: expected batches, as calib_mode is 'entropy'"
    ):
        quantization.quantize_model(*trained)
    with pytest.raises(ValueError, match="calib_data without batches: expected one"):
        quantization.quantize_model(*trained, calib_mode="naive", calib_data=[])


def test_blocks_are_quantized():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3, activation="relu"), gluon.nn.MaxPool2D(2), gluon.nn.Flatten())
    net.add(gluon.nn.Dense(5))
    net.initialize(mx.init.Xavier())
    images = nd.array(digits(20, 4)[0])
    exact = net(images).asnumpy()
    for mode, data in (("none", None), ("naive", [images])):
        fast = quantization.quantize_net(net, calib_mode=mode, calib_data=data)
        assert np.abs(fast(images).asnumpy() - exact).max() < 0.05 * np.abs(exact).max()


class Joined(gluon.HybridBlock):
    """Two inputs and two outputs."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.left, self.right = gluon.nn.Dense(3, in_units=2), gluon.nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x, y):
        left = self.left(x)
        return left + self.right(y), left


@pytest.mark.parametrize("calibrate", [False, True])
def test_blocks_of_several_inputs_are_quantized(calibrate):
    net = Joined()
    net.initialize(mx.init.Uniform(1))
    x, y = nd.random.uniform(shape=(6, 2)), nd.random.uniform(shape=(6, 4))
    if calibrate:
        given = {"calib_mode": "naive", "calib_data": mx.io.NDArrayIter([x, y], nd.ones(6), 3)}
    else:
        given = {"data_shapes": [mx.io.DataDesc("x", (6, 2)), mx.io.DataDesc("y", (6, 4))]}
    fast = quantization.quantize_net_v2(net, logger=None, **given)
    for exact, found in zip(net(x, y), fast(x, y), strict=True):
        np.testing.assert_allclose(found.asnumpy(), exact.asnumpy(), atol=0.05)
        assert not np.array_equal(found.asnumpy(), exact.asnumpy())


def test_arguments_are_in_the_order_of_mxnet():
    def order(function):
        return [name for name in inspect.signature(function).parameters if name != "calib_layer"]

    shared = ["exclude_layers", "exclude_layers_match", "exclude_operators", "calib_data"]
    shared += ["data_shapes", "calib_mode", "num_calib_examples", "ctx"]
    first = ["network", "quantized_dtype", "quantize_mode"]
    assert order(quantization.quantize_net) == [*first, *shared, "logger"]
    newer = [*first, "quantize_granularity", *shared, "LayerOutputCollector", "logger"]
    assert order(quantization.quantize_net_v2) == newer
    model = order(quantization.quantize_model)
    assert model[10:12] == ["num_calib_examples", "quantized_dtype"] and model[-1] == "logger"
    assert order(quantization.quantize_model_mkldnn) == model


class Collector:
    """Ranges found as programs for MXNet do; `factor` times as wide as they need to be."""

    def __init__(self, factor=1.0):
        self.min_max_dict, self.factor, self.seen = {}, factor, []

    def collect(self, name, arr):
        name = mx.base.py_str(name)
        self.seen.append((name, arr))
        low, high = arr.min().asscalar() * self.factor, arr.max().asscalar() * self.factor
        before = self.min_max_dict.get(name, (low, high))
        self.min_max_dict[name] = min(before[0], low), max(before[1], high)


def layers():
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(2))
    net.initialize(mx.init.Xavier())
    x = nd.random.normal(shape=(8, 3))
    net(x)
    return net, x


def test_a_collector_of_a_program_finds_the_ranges():
    net, x = layers()
    exact, data = net(x).asnumpy(), [x[:4], x[4:]]

    def quantized(collector=None, mode="customize", **more):
        fast = quantization.quantize_net_v2(
            net, calib_mode=mode, calib_data=data, LayerOutputCollector=collector, **more
        )
        return fast(x).asnumpy()

    collector = Collector()
    found = quantized(collector)
    assert np.array_equal(found, quantized(mode="naive"))
    names = ["data", "net_dense0_fwd_output", "net_dense0_relu_fwd_output", "net_dense1_fwd_output"]
    assert [name for name, _ in collector.seen] == names * 2
    assert np.array_equal(collector.seen[0][1].asnumpy(), data[0].asnumpy())  # kept, not rewritten
    # Too narrow ranges cut numbers off: those of the collector are what the layers use.
    assert np.abs(quantized(Collector(0.1)) - exact).max() > 5 * np.abs(found - exact).max()
    once = Collector()
    quantized(once, num_calib_examples=4)
    assert len(once.seen) == 4
    ignored = Collector()
    quantized(ignored, mode="naive")
    assert not ignored.seen


def test_ranges_that_a_collector_leaves_out_are_found_in_every_run():
    net, x = layers()

    class Nothing(Collector):
        def collect(self, name, arr):
            pass

    def quantized(**given):
        return quantization.quantize_net_v2(net, **given)(x).asnumpy()

    given = {"calib_mode": "customize", "calib_data": [x], "LayerOutputCollector": Nothing()}
    assert np.array_equal(quantized(**given), quantized(calib_mode="none"))


def test_collectors_that_do_not_fit_are_refused():
    net, x = layers()

    def error(kind, collector, mode="customize", data=(x,)):
        with pytest.raises(kind) as info:
            quantization.quantize_net_v2(
                net, calib_mode=mode, calib_data=data, LayerOutputCollector=collector
            )
        return str(info.value)

    class Casts(Collector):
        def collect(self, name, arr):
            ctypes.cast(arr, mx.base.NDArrayHandle)

    class Without:
        def collect(self, name, arr):
            pass

    class Wrong(Collector):
        def __init__(self, given):
            self.min_max_dict = {"data": given}

        def collect(self, name, arr):
            pass

    for wrong in (None, print, 3):
        assert "expected an object with a method collect(name, arr)" in error(TypeError, wrong)
    assert "expected a use of the NDArray that it is given" in error(TypeError, Casts())
    assert "invalid min_max_dict None of Without" in error(TypeError, Without())
    assert "invalid range 3 of data: expected two numbers" in error(TypeError, Wrong(3))
    assert "expected the lower number first" in error(ValueError, Wrong((2, 1)))
    assert "expected the lower number first" in error(ValueError, Wrong((0, np.nan)))
    assert "expected batches" in error(ValueError, Collector(), data=None)
    assert "expected one of none, naive, entropy, customize" in error(ValueError, None, "best")


def test_peaks_do_not_narrow_a_range():
    """The background of pictures is one number over and over."""
    observer = Observer()
    observer.see(np.concatenate([np.full(50000, 0.01), np.linspace(-1, 1, 2000)]), True)
    low, high = observer.range(True)
    assert low == -high
    assert 0.9 < high <= 1.01


@pytest.mark.parametrize("dtype", ["int8", "uint8", "auto"])
def test_negative_data_of_unknown_range_keeps_its_sign(dtype):
    layer = sym.FullyConnected(sym.var("data"), num_hidden=2, no_bias=True, name="fc")
    args = {"fc_weight": nd.array([[1, 0.5, 0.2], [0.1, 0.2, 0.3]])}
    made, params, _ = quantization.quantize_model(
        layer, args, {}, calib_mode="none", quantized_dtype=dtype
    )
    (found,) = made.eval(data=nd.array([[-1, -2, 3]]), **params)
    np.testing.assert_allclose(found.asnumpy(), [[-1.4, 0.4]], atol=0.03)


@pytest.mark.parametrize("output", [0, 1])
def test_a_layer_on_one_of_several_outputs_is_calibrated(output):
    parts = sym.SliceChannel(sym.var("data"), num_outputs=2, axis=1, name="parts")
    layer = sym.Convolution(parts[output], kernel=(1, 1), num_filter=1, name="conv")
    args = {"conv_weight": nd.ones((1, 1, 1, 1)), "conv_bias": nd.zeros((1,))}
    images = np.float32([[[[3.0]], [[-7.0]]]])
    made, params, _ = quantization.quantize_model(
        layer, args, {}, calib_mode="naive", calib_data=[nd.array(images)]
    )
    (node,) = (n for n in made.graph().nodes if n.op == "_contrib_quantize_v2")
    ends = [float(node.attrs[f"{end}_calib_range"]) for end in ("min", "max")]
    assert ends == [images[0, output, 0, 0]] * 2
    (found,) = made.eval(data=nd.array(images), **params)
    np.testing.assert_allclose(found.asnumpy(), images[:, output : output + 1], rtol=0.02)


@pytest.mark.parametrize("mode", ["none", "naive", "entropy"])
def test_nothing_to_quantise_is_no_error(mode):
    net = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc")
    args = {"fc_weight": nd.ones((2, 2)), "fc_bias": nd.zeros((2,))}
    batches = [nd.ones((1, 2))]
    made, params, _ = quantization.quantize_model(
        net, args, {}, calib_mode=mode, calib_data=batches, excluded_sym_names=["fc"]
    )
    assert made.list_arguments() == net.list_arguments()
    assert set(params) == set(args)


@pytest.mark.parametrize("lost", ["conv1_weight", "bn_moving_var"])
def test_a_model_without_all_parameters_is_refused(trained, lost):
    symbol, args, aux = trained
    args, aux = ({k: v for k, v in arrays.items() if k != lost} for arrays in (args, aux))
    images = mx.io.NDArrayIter(digits(8, 3)[0], batch_size=4)
    with pytest.raises(ValueError, match=f"no array for {lost}: expected each argument in"):
        quantization.quantize_model(symbol, args, aux, calib_mode="naive", calib_data=images)


WRONG = {
    "num_calib_examples": ("x", "expected an integer"),
    "excluded_op_names": (3, "expected a list of names"),
    "excluded_sym_names": ("fc", "expected a list of names"),
    "arg_params": ({"fc_weight": np.ones((2, 2))}, "expected a dict of names and NDArrays"),
    "aux_params": (None, "expected a dict of names and NDArrays"),
    "sym": (None, "expected a Symbol"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_of_another_type_are_named(name):
    value, expected = WRONG[name]
    given = {
        "sym": sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc"),
        "arg_params": {"fc_weight": nd.ones((2, 2)), "fc_bias": nd.zeros((2,))},
        "aux_params": {},
    } | {name: value}
    with pytest.raises(TypeError, match=f"invalid {name} .*: {expected}"):
        quantization.quantize_model(**given, calib_mode="none")


@pytest.mark.parametrize("mode", ["naive", "entropy"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_examples_that_are_not_finite_have_no_range(mode, bad):
    net = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc")
    args = {"fc_weight": nd.ones((2, 2)), "fc_bias": nd.zeros((2,))}
    batches = [nd.array([[1, bad]])]
    with pytest.raises(ValueError, match="no range of data: expected finite numbers"):
        quantization.quantize_model(net, args, {}, calib_mode=mode, calib_data=batches)
