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
