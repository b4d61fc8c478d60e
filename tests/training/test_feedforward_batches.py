"""FeedForward counts batches from one and restarts its iterator, as MXNet does."""

import logging

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd


class CountedResets(mx.io.NDArrayIter):
    resets = 0

    def reset(self):
        self.resets += 1
        super().reset()


@pytest.mark.filterwarnings("ignore:FeedForward is deprecated:DeprecationWarning")
def test_batches_count_from_one_after_a_reset(caplog):
    score = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    model = mx.model.FeedForward(mx.sym.SoftmaxOutput(score, name="softmax"), num_epoch=1)
    rows = CountedResets(np.ones((4, 3), "f"), np.zeros(4), 2)
    rows.resets, seen = 0, []

    def at_batch(param):
        seen.append((param.nbatch, rows.resets))

    with caplog.at_level(logging.INFO):
        model.fit(rows, batch_end_callback=at_batch)
    assert seen == [(1, 1), (2, 1)]
    assert caplog.messages[0] == "Start training with [cpu(0)]"
    assert isinstance(model.arg_params["fc_bias"], nd.NDArray)


@pytest.mark.filterwarnings("ignore:FeedForward is deprecated:DeprecationWarning")
def test_orders_are_drawn_as_in_mxnet():
    """The numbers were read off MXNet 1.9.1."""
    seen = []

    class Rows(mx.metric.EvalMetric):
        def update(self, labels, preds):
            seen.append(labels[0].asnumpy().astype(int).tolist())

    x = np.arange(10.0)
    score = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    net = mx.sym.LinearRegressionOutput(score, mx.sym.Variable("softmax_label"))
    model = mx.model.FeedForward(net, num_epoch=2, numpy_batch_size=4)
    before = np.random.get_state()
    np.random.seed(2)
    model.fit(x[:, None], x, eval_metric=Rows("rows"), eval_data=(x[:4, None], x[:4]))
    np.random.set_state(before)
    assert seen == [
        [1, 7, 3, 0], [2, 8, 4, 5], [1, 3, 2, 0],
        [9, 6, 3, 1], [4, 5, 9, 8], [7, 6, 0, 2], [2, 3, 1, 0],
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:FeedForward is deprecated:DeprecationWarning")
def test_surplus_parameters_are_refused_unless_they_are_allowed():
    score = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    given = {"fc_weight": nd.ones((2, 3)), "fc_bias": nd.zeros(2), "old": nd.ones(1)}
    rows = np.ones((4, 3), "f")
    net = mx.sym.SoftmaxOutput(score, name="softmax")
    for allowed in (True, False):
        model = mx.model.FeedForward(
            net, arg_params=given, aux_params={}, allow_extra_params=allowed
        )
        if allowed:
            assert model.predict(rows).tolist() == [[0.5, 0.5]] * 4
        else:
            with pytest.raises(ValueError, match='"old".*allow_extra_params'):
                model.predict(rows)
