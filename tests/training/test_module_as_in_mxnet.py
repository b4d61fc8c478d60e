"""`mx.mod`: training by modules gives MXNet's numbers, and wrong use is refused by name."""

import logging

import numpy as np
import pytest

import rsnet as mx

rng = np.random.RandomState(0)
DATA = rng.randn(200, 10).astype("float32")
LABEL = (DATA @ rng.randn(10, 4)).argmax(1).astype("float32")


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    net = mx.sym.BatchNorm(net, name="bn", fix_gamma=False)
    net = mx.sym.Activation(net, act_type="tanh")
    net = mx.sym.FullyConnected(net, num_hidden=4, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def start():
    source = np.random.RandomState(1)
    args = {
        "fc1_weight": mx.nd.array(source.randn(16, 10) * 0.3),
        "fc1_bias": mx.nd.zeros((16,)),
        "bn_gamma": mx.nd.ones((16,)),
        "bn_beta": mx.nd.zeros((16,)),
        "fc2_weight": mx.nd.array(source.randn(4, 16) * 0.3),
        "fc2_bias": mx.nd.zeros((4,)),
    }
    return args, {"bn_moving_mean": mx.nd.zeros((16,)), "bn_moving_var": mx.nd.ones((16,))}


def batches(size=32, rows=200):
    return mx.io.NDArrayIter(DATA[:rows], LABEL[:rows], size)


def trained(module=None, epochs=3, **options):
    module = module or mx.mod.Module(network())
    args, aux = start()
    given = {
        "eval_metric": "ce",
        "optimizer": "sgd",
        "optimizer_params": {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3},
        "arg_params": args,
        "aux_params": aux,
        "num_epoch": epochs,
    }
    module.fit(batches(), **(given | options))
    return module


def same_parameters(one, two):
    for mine, theirs in zip(one.get_params(), two.get_params()):
        assert set(mine) == set(theirs)
        for name, value in mine.items():
            np.testing.assert_allclose(
                value.asnumpy(), theirs[name].asnumpy(), rtol=1e-5, atol=1e-6, err_msg=name
            )


# What MXNet 1.9.1 logs for the same data, parameters and optimizer.
LOGGED = [
    ("Epoch[0] Train-cross-entropy", 1.411771),
    ("Epoch[0] Validation-cross-entropy", 0.806689),
    ("Epoch[1] Train-cross-entropy", 0.678556),
    ("Epoch[1] Validation-cross-entropy", 0.409055),
    ("Epoch[2] Train-cross-entropy", 0.431414),
    ("Epoch[2] Validation-cross-entropy", 0.238905),
]


def test_fit_logs_the_values_of_mxnet(caplog):
    caplog.set_level(logging.INFO)
    module = trained(eval_data=batches(rows=50))
    lines = [m for m in caplog.messages if m.startswith("Epoch") and "Time" not in m]
    assert [line.partition("=")[0] for line in lines] == [name for name, _ in LOGGED]
    values = [float(line.partition("=")[2]) for line in lines]
    np.testing.assert_allclose(values, [v for _, v in LOGGED], rtol=1e-4)
    assert module.score(batches(rows=50), "acc")[0][1] > 0.5


def test_callbacks_see_every_batch_and_epoch():
    seen, epochs = [], []
    trained(
        epochs=2,
        batch_end_callback=lambda p: seen.append((p.epoch, p.nbatch)),
        epoch_end_callback=[lambda *args: epochs.append(args)],
    )
    assert seen == [(e, n) for e in range(2) for n in range(7)]
    assert [e for e, *_ in epochs] == [0, 1] and "fc1_weight" in epochs[0][2]


def test_predictions_leave_out_padding_rows():
    module = trained(epochs=1)
    whole = module.predict(batches(rows=50))
    assert whole.shape == (50, 4)
    parts = module.predict(batches(rows=50), merge_batches=False)
    assert [p[0].shape for p in parts] == [(32, 4), (18, 4)]
    assert len(module.predict(batches(), num_batch=2)) == 64
    rows = module.predict(mx.nd.array(DATA[:5]))
    np.testing.assert_allclose(rows.asnumpy(), whole[:5].asnumpy(), rtol=1e-5)


def test_a_batch_of_another_shape_reshapes_the_module():
    module = trained(epochs=1)
    before = module.predict(batches(rows=7)).asnumpy()
    module.forward(mx.io.DataBatch([mx.nd.array(DATA[:7])]), is_train=False)
    assert module.data_shapes[0].shape == (7, 10)
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), before, rtol=1e-5)


def test_training_goes_on_from_a_checkpoint(tmp_path):
    whole = trained(epochs=4)
    first = trained(epochs=2)
    prefix = str(tmp_path / "net")
    first.save_checkpoint(prefix, 2, save_optimizer_states=True)
    second = mx.mod.Module.load(prefix, 2, load_optimizer_states=True)
    same_parameters(first, second)
    trained(second, epochs=4, begin_epoch=2, arg_params=None, aux_params=None)
    same_parameters(whole, second)


def test_parameters_by_file(tmp_path):
    module = trained(epochs=1)
    module.save_params(str(tmp_path / "p"))
    other = mx.mod.Module(network())
    other.bind(batches().provide_data, batches().provide_label)
    other.load_params(str(tmp_path / "p"))
    same_parameters(module, other)
    mx.nd.save(str(tmp_path / "q"), {"fc1_weight": mx.nd.ones((1,))})
    with pytest.raises(ValueError, match="invalid name 'fc1_weight'"):
        other.load_params(str(tmp_path / "q"))


def test_fixed_parameters_stay():
    module = trained(mx.mod.Module(network(), fixed_param_names=["fc1_weight"]), epochs=1)
    args, _ = module.get_params()
    np.testing.assert_array_equal(args["fc1_weight"].asnumpy(), start()[0]["fc1_weight"].asnumpy())
    assert (args["fc2_weight"].asnumpy() != start()[0]["fc2_weight"].asnumpy()).any()


def test_gradients_of_inputs():
    module = mx.mod.Module(network())
    module.bind([("data", (5, 10))], [("softmax_label", (5,))], inputs_need_grad=True)
    module.init_params(mx.init.Xavier())
    module.forward_backward(mx.io.DataBatch([mx.nd.array(DATA[:5])], [mx.nd.array(LABEL[:5])]))
    assert np.abs(module.get_input_grads()[0].asnumpy()).sum() > 0


def test_states():
    x, h = mx.sym.Variable("data"), mx.sym.Variable("h")
    module = mx.mod.Module(x + h, label_names=None, state_names=["h"])
    module.bind([("data", (2,))], for_training=False)
    module.init_params()
    module.set_states(value=3)
    module.forward(mx.io.DataBatch([mx.nd.ones((2,))]))
    assert module.get_outputs()[0].asnumpy().tolist() == [4, 4]
    module.set_states(states=[module.get_outputs()[0]])
    assert module.get_states()[0].asnumpy().tolist() == [4, 4]


def test_monitor():
    module = mx.mod.Module(network())
    lines = []
    monitor = mx.mon.Monitor(1, lambda x: x.sum(), pattern="fc1_output")
    monitor.toc_print = lambda: lines.extend(monitor.toc())
    trained(module, epochs=1, monitor=monitor)
    assert {name for _, name, _ in lines} == {"fc1_output"}


def test_a_monitor_logs_names_aligned_to_the_left(caplog):
    exe = mx.sym.sum(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(2,))
    monitor = mx.mon.Monitor(1, lambda x: x.sum(), pattern="x$")
    monitor.install(exe)
    monitor.tic()
    with caplog.at_level(logging.INFO):
        monitor.toc_print()
    assert caplog.messages == [f"Batch: {1:7d} {'x':30s} 0.0\t"]


def test_callbacks_see_what_fit_was_given(caplog):
    seen = []
    module = mx.mod.Module(network())
    trained(
        module, epochs=1, optimizer="sgd", kvstore="local",
        batch_end_callback=lambda param: seen.append(param.locals),
    )  # fmt: skip
    names = "num_epoch optimizer kvstore begin_epoch train_data epoch nbatch data_batch"
    for found in seen:
        assert not set(names.split()) - set(found)
        assert found["self"] is module and callable(found["batch_end_callback"])
    assert [found["end_of_batch"] for found in seen] == [False] * (len(seen) - 1) + [True]
    assert [f["next_data_batch"] for f in seen[:-1]] == [f["data_batch"] for f in seen[1:]]


def lengths(key):
    data = mx.sym.Variable("data")
    net = mx.sym.Embedding(data, input_dim=12, output_dim=6, name="embed")
    net = mx.sym.FullyConnected(mx.sym.sum(net, axis=1), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax"), ["data"], ["softmax_label"]


class Buckets:
    """Batches of the lengths 8, 3 and 5 in turn."""

    def __init__(self):
        self.provide_data = [mx.io.DataDesc("data", (4, 8))]
        self.provide_label = [mx.io.DataDesc("softmax_label", (4,))]

    def __iter__(self):
        source = np.random.RandomState(3)
        for key in [3, 8, 5, 3, 8, 5]:
            rows = source.randint(0, 12, (4, key))
            yield mx.io.DataBatch(
                [mx.nd.array(rows)], [mx.nd.array(rows[:, 0] % 3)], bucket_key=key,
                provide_data=[mx.io.DataDesc("data", (4, key))], provide_label=self.provide_label,
            )  # fmt: skip

    def reset(self):
        pass


def test_buckets_share_parameters_and_optimizer():
    """Training by buckets is training one module that is reshaped for every batch."""
    options = {"num_epoch": 3, "optimizer_params": {"learning_rate": 0.5, "momentum": 0.9}}
    source = np.random.RandomState(5)
    shapes = {"embed_weight": (12, 6), "fc_weight": (3, 6), "fc_bias": (3,)}
    values = {k: mx.nd.array(source.randn(*s)) for k, s in shapes.items()}
    modules = [mx.mod.BucketingModule(lengths, 8), mx.mod.Module(lengths(8)[0])]
    for module in modules:
        module.fit(Buckets(), arg_params=values, aux_params={}, **options)
    same_parameters(*modules)
    assert dict(modules[0].score(Buckets(), "acc")) == dict(modules[1].score(Buckets(), "acc"))


def test_a_sequence_is_the_composed_symbol():
    args, aux = start()
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    net = mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn", fix_gamma=False)
    net = mx.sym.Activation(net, act_type="tanh")
    net = mx.sym.FullyConnected(net, num_hidden=4, name="fc2")
    second = mx.sym.SoftmaxOutput(net, name="softmax")
    both = mx.mod.SequentialModule()
    both.add(mx.mod.Module(first, label_names=None))
    both.add(mx.mod.Module(second), take_labels=True, auto_wiring=True)
    with pytest.raises(ValueError, match="invalid keyword 'take_label'"):
        both.add(mx.mod.Module(second), take_label=True)
    missing = {"allow_missing": True}
    same_parameters(trained(both, arg_params=args, aux_params=aux, **missing), trained())


def test_a_loss_written_in_python():
    """Softmax and its gradient in NumPy in the place of `SoftmaxOutput`."""

    def gradient(scores, labels):
        e = np.exp(scores.asnumpy())
        p = e / e.sum(1, keepdims=True)
        p[np.arange(len(p)), labels.asnumpy().astype(int)] -= 1
        return p

    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    python = mx.mod.SequentialModule()
    python.add(mx.mod.Module(net, label_names=None))
    python.add(mx.mod.PythonLossModule(grad_func=gradient), take_labels=True, auto_wiring=True)
    plain = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    values = {"fc_weight": mx.nd.ones((4, 10)), "fc_bias": mx.nd.zeros((4,))}
    for module in (python, plain):
        module.fit(batches(), arg_params=values, aux_params={}, num_epoch=2, eval_metric="acc")
    same_parameters(python, plain)


def test_labels_that_are_missing_warn():
    with pytest.warns(UserWarning, match="'softmax_label' is not found"):
        mx.mod.Module(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1))


def linear():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


@pytest.mark.filterwarnings("ignore:FeedForward is deprecated:DeprecationWarning")
def test_feed_forward_trains_as_a_module_does(tmp_path):
    values = {"fc_weight": mx.nd.ones((4, 10)), "fc_bias": mx.nd.zeros((4,))}
    options = {"learning_rate": 0.5, "momentum": 0.9}
    model = mx.model.FeedForward(linear(), num_epoch=2, arg_params=values, aux_params={}, **options)
    model.fit(batches(), eval_data=batches(rows=50))
    module = mx.mod.Module(linear())
    module.fit(batches(), arg_params=values, num_epoch=2, optimizer_params=options)
    for name, value in module.get_params()[0].items():
        np.testing.assert_allclose(value.asnumpy(), model.arg_params[name].asnumpy(), rtol=1e-5)
    outputs, data, labels = model.predict(batches(rows=50), return_data=True)
    assert isinstance(outputs, np.ndarray) and outputs.shape == (50, 4)
    np.testing.assert_array_equal(data, DATA[:50])
    np.testing.assert_array_equal(labels, LABEL[:50])
    np.testing.assert_allclose(model.predict(DATA[:50]), outputs, rtol=1e-5)
    assert model.score(batches(rows=50)) == module.score(batches(rows=50), "acc")[0][1]
    model.save(str(tmp_path / "ff"))
    again = mx.model.FeedForward.load(str(tmp_path / "ff"), 2)
    assert again.begin_epoch == 2
    np.testing.assert_allclose(again.predict(DATA[:50]), outputs, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:FeedForward is deprecated:DeprecationWarning")
def test_feed_forward_on_arrays_and_epochs_of_a_size():
    seen = []
    model = mx.model.FeedForward.create(
        linear(), DATA, LABEL, num_epoch=3, epoch_size=4, learning_rate=0.5, numpy_batch_size=32,
        eval_data=(DATA[:50], LABEL[:50]), batch_end_callback=lambda p: seen.append(p.nbatch),
    )  # fmt: skip
    assert seen == [1, 2, 3, 4] * 3
    assert (model.predict(DATA).argmax(1) == LABEL).mean() > 0.5
    with pytest.raises(ValueError, match="invalid y None: expected labels"):
        model.fit(DATA)
    with pytest.raises(AssertionError, match="no parameters: call fit or load first"):
        mx.model.FeedForward(linear()).predict(DATA)


def test_monitors_watch_executors_for_other_shapes():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (4, 3))])
    module.init_params()
    monitor = mx.mon.Monitor(1, pattern="fc_output")
    module.install_monitor(monitor)
    for rows in (4, 2, 2, 4):
        monitor.tic()
        module.forward(mx.io.DataBatch([mx.nd.ones((rows, 3))]))
        assert [name for _, name, _ in monitor.toc()] == ["fc_output"]
    assert len(monitor.exes) == 1
    seen = []
    executor = net.simple_bind(mx.cpu(), data=(4, 3))
    executor.set_monitor_callback(lambda name, _: seen.append(name), monitor_all=True)
    executor.reshape(data=(2, 3)).forward()
    assert "fc_output" in seen and "data" in seen


def test_arguments_of_a_checkpoint_in_another_order_are_refused():
    with pytest.raises(TypeError, match="invalid epoch 'net': expected an integer"):
        mx.model.save_checkpoint(1, "net", None, {}, {})
    with pytest.raises(TypeError, match="invalid epoch 'net': expected an integer"):
        mx.model.load_params(1, "net")
