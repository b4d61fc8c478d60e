"""Modules: training by `fit`, devices side by side, checkpoints, buckets, chains."""

import itertools
import logging

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, sym

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (96, 6)).astype("float32")
Y = (X[:, :3].sum(axis=1) > 0).astype("float32")


def mlp(hidden=8, classes=2):
    net = sym.FullyConnected(sym.Variable("data"), num_hidden=hidden, name="fc1")
    net = sym.Activation(net, act_type="tanh", name="tanh1")
    net = sym.FullyConnected(net, num_hidden=classes, name="fc2")
    return sym.SoftmaxOutput(net, name="softmax")


def batches(size=32, **kwargs):
    return mx.io.NDArrayIter(X, Y, batch_size=size, **kwargs)


def first_values(net=None, seed=1):
    shapes, _, _ = (net or mlp()).infer_shape(data=(2, 6))
    rng = np.random.default_rng(seed)
    names = (net or mlp()).list_arguments()
    return {
        n: nd.array(rng.normal(0, 0.3, s))
        for n, s in zip(names, shapes, strict=True)
        if n not in ("data", "softmax_label")
    }


def trained(epochs=2, net=None, **options):
    mod = mx.mod.Module(net or mlp(), **options.pop("module", {}))
    options = {"optimizer_params": {"learning_rate": 0.5, "momentum": 0.9}, **options}
    data = options.pop("data", None) or batches()
    mod.fit(data, num_epoch=epochs, arg_params=first_values(), **options)
    return mod


def values(mod):
    return {n: a.asnumpy() for n, a in mod.get_params()[0].items()}


def same(a, b, rtol=1e-5, atol=1e-6):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=rtol, atol=atol, err_msg=name)


# ---- fit, score, predict -------------------------------------------------------------------------


def test_fit_learns_and_logs(caplog):
    seen = []
    mod = mx.mod.Module(mlp())
    with caplog.at_level(logging.INFO):
        mod.fit(
            batches(), eval_data=batches(), num_epoch=12, optimizer="adam",
            optimizer_params={"learning_rate": 0.05}, initializer=mx.init.Xavier(),
            batch_end_callback=lambda p: seen.append((p.epoch, p.nbatch)),
            epoch_end_callback=[lambda epoch, symbol, arg, aux: seen.append(sorted(arg))],
        )  # fmt: skip
    assert mod.score(batches(), "acc")[0][1] > 0.9
    assert seen[:4] == [
        (0, 0),
        (0, 1),
        (0, 2),
        ["fc1_bias", "fc1_weight", "fc2_bias", "fc2_weight"],
    ]
    text = caplog.text
    for line in (
        "Epoch[0] Train-accuracy=",
        "Epoch[11] Time cost=",
        "Epoch[3] Validation-accuracy=",
    ):
        assert line in text


def test_a_step_is_that_of_the_executor_and_the_optimizer():
    """Against plain calls: gradients are scaled by 1 / batch size, biases have no weight decay."""
    mod = mx.mod.Module(mlp())
    mod.bind([("data", (32, 6))], [("softmax_label", (32,))])
    mod.init_params(arg_params=first_values())
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "wd": 0.01})
    mod.forward_backward(mx.io.DataBatch([nd.array(X[:32])], [nd.array(Y[:32])]))
    mod.update()
    exe = mlp().simple_bind(mx.cpu(), data=(32, 6))
    exe.copy_params_from(first_values())
    exe.forward(is_train=True, data=X[:32], softmax_label=Y[:32])
    exe.backward()
    expected = {}
    for name, value in first_values().items():
        decay = 0.01 if name.endswith("weight") else 0.0
        grad = exe.grad_dict[name].asnumpy() / 32
        expected[name] = value.asnumpy() - 0.1 * (grad + decay * value.asnumpy())
    same(values(mod), expected)


@pytest.mark.parametrize("kvstore", ["local", "device", "a store"])
@pytest.mark.parametrize("loads", [None, [1, 3]])
@pytest.mark.parametrize("on_store", ["1", "0"])
def test_two_devices_train_as_one(kvstore, loads, on_store, monkeypatch):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", on_store)
    store = mx.kv.create("local") if kvstore == "a store" else kvstore
    two = trained(
        module={"context": [mx.cpu(0), mx.cpu(1)], "work_load_list": loads}, kvstore=store
    )
    same(values(two), values(trained()))
    assert two.get_outputs()[0].shape == (32, 2)
    assert [len(block) for block in two.get_outputs(merge_multi_context=False)] == [2]


@pytest.mark.parametrize("optimizer", ["nadam", "lars", "lbsgd"])
def test_two_devices_update_as_one(optimizer, monkeypatch):
    """Each has what the optimizer knows beside the states."""
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "0")
    options = {"optimizer": optimizer, "optimizer_params": {"learning_rate": 0.05}}
    two = trained(module={"context": [mx.cpu(0), mx.cpu(1)]}, **options)
    same(values(two), values(trained(**options)))


@pytest.mark.parametrize("rows", [5, 8, 96])
def test_predict_drops_padding(rows):
    mod = trained()
    data = mx.io.NDArrayIter(X[:rows], batch_size=8)
    expected = mod.predict(X[:rows]).asnumpy()
    np.testing.assert_allclose(mod.predict(data).asnumpy(), expected, rtol=1e-5)
    parts = mod.predict(data, merge_batches=False)
    assert sum(len(p[0]) for p in parts) == rows
    assert isinstance(mod.predict(data, always_output_list=True), list)
    assert mod.predict(data, num_batch=1).shape == (min(rows, 8), 2)
    shown = [(n, len(outputs[0])) for outputs, n, _ in mod.iter_predict(data)]
    assert sum(count for _, count in shown) == rows and shown[0][0] == 0


def test_a_batch_of_another_size_binds_anew_over_the_same_parameters():
    mod = trained()
    before = values(mod)
    mod.forward(mx.io.DataBatch([nd.array(X[:7])], [nd.array(Y[:7])]), is_train=True)
    assert mod.get_outputs()[0].shape == (7, 2)
    mod.backward()
    mod.update()
    assert mod.data_shapes[0].shape == (7, 6) and mod.label_shapes[0].shape == (7,)
    mod.forward(mx.io.DataBatch([nd.array(X[:32])], None), is_train=False)
    assert mod.get_outputs()[0].shape == (32, 2)
    assert any(not np.array_equal(before[n], a) for n, a in values(mod).items())


def test_a_callback_that_raises_leaves_a_whole_module():
    mod = mx.mod.Module(mlp())

    def stop(param):
        if param.nbatch == 1:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        mod.fit(batches(), num_epoch=2, batch_end_callback=stop)
    assert all(np.isfinite(a).all() for a in values(mod).values())
    mod.fit(batches(), num_epoch=1)
    assert mod.score(batches(), ["acc", "ce"])[1][0] == "cross-entropy"


# ---- parameters ----------------------------------------------------------------------------------


def bound(**kwargs):
    mod = mx.mod.Module(mlp(), **kwargs)
    mod.bind([("data", (4, 6))], [("softmax_label", (4,))])
    return mod


def test_parameters_missing_and_of_another_shape():
    mod = bound()
    some = {n: a for n, a in first_values().items() if n != "fc2_bias"}
    with pytest.raises(RuntimeError, match="missing parameter 'fc2_bias'"):
        mod.init_params(arg_params=some)
    with pytest.raises(ValueError, match=r"fc2_bias' has shape \(3,\), expected \(2,\)"):
        mod.init_params(arg_params=some | {"fc2_bias": nd.ones((3,))})
    assert not mod.params_initialized
    mod.init_params(mx.init.One(), arg_params=some, allow_missing=True)
    same({n: values(mod)[n] for n in some}, {n: a.asnumpy() for n, a in some.items()})
    with pytest.warns(UserWarning, match="already initialized"):
        mod.init_params(mx.init.Zero())
    mod.set_params({"fc2_bias": nd.array([5, 6])}, {}, allow_missing=True)
    assert values(mod)["fc2_bias"].tolist() == [5, 6]
    assert values(mod)["fc1_weight"].any()


def test_fixed_parameters_stay():
    mod = mx.mod.Module(mlp(), fixed_param_names=["fc1_weight"])
    mod.fit(batches(), num_epoch=1, arg_params=first_values())
    before, after = first_values(), values(mod)
    np.testing.assert_array_equal(after["fc1_weight"], before["fc1_weight"].asnumpy())
    assert not np.array_equal(after["fc2_weight"], before["fc2_weight"].asnumpy())


def test_input_gradients_and_requests():
    net = sym.sum(sym.Variable("data") * sym.Variable("w_weight"))
    mod = mx.mod.Module(net, label_names=None)
    mod.bind([("data", (2, 3))], inputs_need_grad=True, grad_req={"data": "add"})
    mod.init_params(mx.init.One())
    for _ in range(2):
        mod.forward(mx.io.DataBatch([nd.ones((2, 3))]), is_train=True)
        mod.backward([nd.ones((1,))])
    assert mod.get_input_grads()[0].asnumpy().tolist() == [[2, 2, 2]] * 2


def test_states_are_carried_along():
    state = sym.Variable("s")
    net = sym.Group([sym.Variable("data") + state, state * 1])
    mod = mx.mod.Module(net, label_names=None, state_names=["s"])
    mod.bind(
        [
            ("data", (2, 3)),
        ],
        for_training=False,
    )
    mod.init_params()
    mod.set_states(value=4)
    mod.forward(mx.io.DataBatch([nd.ones((2, 3))]))
    assert mod.get_outputs()[0].asnumpy().tolist() == [[5, 5, 5]] * 2
    mod.set_states(states=[mod.get_outputs()[0]])
    assert mod.get_states()[0].asnumpy().tolist() == [[5, 5, 5]] * 2


# ---- files ---------------------------------------------------------------------------------------


def test_training_goes_on_from_a_checkpoint(tmp_path):
    whole = trained(epochs=4)
    half = trained(epochs=2)
    prefix = str(tmp_path / "net")
    half.save_checkpoint(prefix, 2, save_optimizer_states=True)
    again = mx.mod.Module.load(prefix, 2, load_optimizer_states=True)
    again.fit(
        batches(),
        num_epoch=4,
        begin_epoch=2,
        optimizer_params={"learning_rate": 0.5, "momentum": 0.9},
    )
    same(values(again), values(whole))
    inference = mx.mod.Module.load(prefix, 2, label_names=None)
    inference.bind([("data", (4, 6))], for_training=False)
    expected = half.predict(X[:4]).asnumpy()
    np.testing.assert_allclose(inference.predict(X[:4]).asnumpy(), expected, rtol=1e-5)
    half.save_params(prefix + ".params")
    fresh = bound()
    fresh.load_params(prefix + ".params")
    same(values(fresh), values(half))


def test_epoch_callbacks_save_checkpoints(tmp_path):
    prefix = str(tmp_path / "net")
    trained(epochs=2, epoch_end_callback=mx.callback.do_checkpoint(prefix))
    net, arg, aux = mx.model.load_checkpoint(prefix, 2)
    assert net.list_arguments() == mlp().list_arguments() and len(arg) == 4 and aux == {}


# ---- buckets -------------------------------------------------------------------------------------


def bucket(length):
    net = sym.Embedding(sym.Variable("data"), input_dim=12, output_dim=5, name="embed")
    net = sym.sum(net, axis=1) * (1.0 / length)
    net = sym.FullyConnected(net, num_hidden=2, name="fc")
    return sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)


def bucket_batch(length, seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 12, (4, length))
    return mx.io.DataBatch(
        [nd.array(tokens)], [nd.array(tokens[:, 0] % 2)], bucket_key=length,
        provide_data=[mx.io.DataDesc("data", (4, length))],
        provide_label=[mx.io.DataDesc("softmax_label", (4,))],
    )  # fmt: skip


@pytest.mark.parametrize("order", list(itertools.permutations([4, 7, 10])))
def test_buckets_share_parameters_in_whatever_order_they_come(order):
    def run(make):
        mod = make()
        mod.bind([("data", (4, 10))], [("softmax_label", (4,))])
        mod.init_params(mx.init.One())
        mod.init_optimizer(optimizer_params={"learning_rate": 0.3})
        for step in range(6):
            batch = bucket_batch(order[step % 3], step)
            mod.forward(batch, is_train=True)
            mod.backward()
            mod.update()
        return mod

    mod = run(lambda: mx.mod.BucketingModule(bucket, default_bucket_key=10))
    # One after the other, each on a fresh executor over plain arrays:
    arrays = {
        "embed_weight": np.ones((12, 5)),
        "fc_weight": np.ones((2, 5)),
        "fc_bias": np.zeros(2),
    }
    for step in range(6):
        batch = bucket_batch(order[step % 3], step)
        exe = bucket(order[step % 3])[0].simple_bind(mx.cpu(), data=(4, order[step % 3]))
        exe.copy_params_from({n: nd.array(a) for n, a in arrays.items()})
        exe.forward(is_train=True, data=batch.data[0], softmax_label=batch.label[0])
        exe.backward()
        for name in arrays:
            arrays[name] = arrays[name] - 0.3 / 4 * exe.grad_dict[name].asnumpy()
    same(values(mod), arrays, rtol=1e-4)
    assert len(mod._buckets) == 3


def test_what_a_batch_or_sym_gen_lacks_is_named():
    def sym_gen(key):
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, flatten=False)
        return net if key == 7 else (net, ["data"], None)

    module = mx.mod.BucketingModule(sym_gen, default_bucket_key=4)
    module.bind([("data", (1, 4, 3))], for_training=False)
    module.init_params()
    data = [mx.nd.ones((1, 5, 3))]
    with pytest.raises(ValueError, match="bucket_key None, expected the key"):
        module.forward(mx.io.DataBatch(data))
    with pytest.raises(ValueError, match="no provide_data, .* to bind bucket 5"):
        module.forward(mx.io.DataBatch(data, bucket_key=5))
    shapes = {"provide_data": [("data", (1, 5, 3))]}
    with pytest.raises(TypeError, match=r"sym_gen\(7\) returned <Symbol .*expected \(symbol, data"):
        module.prepare(mx.io.DataBatch(data, bucket_key=7, **shapes))
    module.forward(mx.io.DataBatch(data, bucket_key=5, **shapes))
    assert module.get_outputs()[0].shape == (1, 5, 2)


def test_a_bucketing_module_is_saved_and_loaded(tmp_path):
    mod = mx.mod.BucketingModule(bucket, default_bucket_key=10)
    mod.bind([("data", (4, 10))], [("softmax_label", (4,))])
    mod.init_params()
    mod.forward(bucket_batch(6, 0), is_train=False)
    expected = mod.get_outputs()[0].asnumpy()
    prefix = str(tmp_path / "net")
    mod.save_checkpoint(prefix, 3)
    assert nd.load(prefix + ".buckets")[0].asnumpy().tolist() == [10, 6]
    again = mx.mod.BucketingModule.load(prefix, 3, sym_gen=bucket, default_bucket_key=10)
    again.bind([("data", (4, 10))], [("softmax_label", (4,))], for_training=False)
    again.forward(bucket_batch(6, 0), is_train=False)
    np.testing.assert_allclose(again.get_outputs()[0].asnumpy(), expected, rtol=1e-6)


# ---- chains, and modules in Python ---------------------------------------------------------------


def test_a_chain_trains_as_one_symbol():
    first = sym.Activation(
        sym.FullyConnected(sym.Variable("data"), num_hidden=8, name="fc1"), act_type="tanh"
    )
    last = sym.SoftmaxOutput(
        sym.FullyConnected(sym.Variable("hidden"), num_hidden=2, name="fc2"), name="softmax"
    )
    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(first, label_names=None))
    chain.add(mx.mod.Module(last, data_names=["hidden"]), take_labels=True, auto_wiring=True)
    chain.fit(
        batches(), num_epoch=2, arg_params=first_values(),
        optimizer_params={"learning_rate": 0.5, "momentum": 0.9}, allow_missing=True,
    )  # fmt: skip
    same(values(chain), values(trained()))
    assert chain.score(batches(), "acc")[0][1] == trained().score(batches(), "acc")[0][1]
    with pytest.raises(ValueError, match="invalid keyword 'takes'"):
        chain.add(mx.mod.Module(last, data_names=["hidden"]), takes=True)


class OwnBatch:
    """What a program may give instead of a DataBatch."""

    def __init__(self, data, label):
        self.data, self.label, self.pad = data, label, 0


def test_a_chain_passes_whole_batches_on():
    def generated(length):
        net = sym.sum(sym.Variable("data"), axis=1, keepdims=True)
        return sym.FullyConnected(net, num_hidden=8, name="fc1"), ("data",), None

    def chain_of(first):
        last = sym.FullyConnected(sym.Variable("hidden"), num_hidden=2, name="fc2")
        last = mx.mod.Module(sym.SoftmaxOutput(last, name="softmax"), data_names=["hidden"])
        chain = mx.mod.SequentialModule()
        chain.add(first).add(last, take_labels=True, auto_wiring=True)
        chain.bind([("data", (4, 6))], [("softmax_label", (4,))])
        chain.init_params()
        return chain

    chain = chain_of(mx.mod.BucketingModule(generated, default_bucket_key=6))
    batch = mx.io.DataBatch(
        [nd.ones((4, 3))], [nd.zeros(4)], bucket_key=3, provide_data=[("data", (4, 3))]
    )
    chain.forward(batch)
    assert chain.get_outputs()[0].shape == (4, 2)
    assert batch.data[0].shape == (4, 3)  # the caller's batch is as it was
    chain = chain_of(mx.mod.Module(generated(6)[0], label_names=None))
    chain.forward(OwnBatch([nd.ones((4, 6))], [nd.zeros(4)]))
    assert chain.get_outputs()[0].shape == (4, 2)


def test_a_loss_in_python():
    scores = sym.FullyConnected(sym.Variable("data"), num_hidden=2, name="fc")

    def gradient(scores, labels):
        p = np.exp(scores.asnumpy())
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(p)), labels.asnumpy().astype(int)] -= 1
        return p

    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(scores, label_names=None))
    chain.add(mx.mod.PythonLossModule(grad_func=gradient), take_labels=True, auto_wiring=True)
    chain.fit(batches(), num_epoch=15, optimizer_params={"learning_rate": 0.5})
    assert chain.score(batches(), "acc")[0][1] > 0.9
