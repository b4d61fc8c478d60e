"""Stochastic variance reduced gradients (SVRG) by `SVRGModule`."""

import numpy as np
import pytest

import rsnet as mx
from rsnet.contrib.svrg_optimization import svrg_module


def _regression(rows=64):
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (rows, 4)).astype("float32")
    y = (x @ np.array([1, -2, 3, 0.5], "float32"))[:, None]
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("lin_label"), name="out")
    return net, mx.io.NDArrayIter(x, y, batch_size=16, label_name="lin_label")


@pytest.mark.parametrize("devices", [1, 2])
def test_svrg_steps_are_those_of_its_formula(devices):
    net, batches = _regression()
    mod = svrg_module.SVRGModule(
        net, label_names=["lin_label"], context=[mx.cpu(i) for i in range(devices)], update_freq=2
    )
    mod.bind(batches.provide_data, batches.provide_label)
    mod.init_params(mx.init.Normal(1))
    mod.init_optimizer(kvstore="device", optimizer_params={"learning_rate": 0.3})

    def gradient(batch, w, b):
        x, y = batch.data[0].asnumpy(), batch.label[0].asnumpy()
        error = x @ w.T + b - y
        return error.T @ x, error.sum(0)

    mod.update_full_grads(batches)
    kept = [mod.get_params()[0][n].asnumpy() for n in ("fc_weight", "fc_bias")]
    every = [gradient(batch, *kept) for batch in batches]
    means = [sum(one) / len(every) for one in zip(*every)]
    now = kept
    batches.reset()
    for batch in batches:
        steps = zip(gradient(batch, *now), gradient(batch, *kept), means)
        now = [w - 0.3 / 16 * (g - old + mean) for w, (g, old, mean) in zip(now, steps)]
        mod.forward_backward(batch)
        mod.update()
    found = [mod.get_params()[0][n].asnumpy() for n in ("fc_weight", "fc_bias")]
    for one, other in zip(found, now, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_svrg_computes_all_gradients_every_few_epochs(monkeypatch):
    net, batches = _regression()
    mod = svrg_module.SVRGModule(net, label_names=["lin_label"], update_freq=3)
    epochs, own = [], mod.update_full_grads
    monkeypatch.setattr(mod, "update_full_grads", lambda data: (epochs.append(1), own(data)))
    mod.fit(batches, eval_metric="mse", num_epoch=7, optimizer_params={"learning_rate": 0.5})
    assert len(epochs) == 3 and mod.score(batches, "mse")[0][1] < 0.05
    for wrong, kind in ((None, TypeError), (0, ValueError)):
        with pytest.raises(kind, match="invalid update_freq"):
            svrg_module.SVRGModule(net, label_names=["lin_label"], update_freq=wrong)
