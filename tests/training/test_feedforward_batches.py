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


class WrittenAsGenerator(mx.io.DataIter):
    """Six batches, by `__iter__` alone."""

    def __init__(self, batches=6):
        super().__init__(batch_size=2)
        self.batches, self.seen = batches, []
        self.provide_data = [("data", (2, 3))]
        self.provide_label = [("softmax_label", (2,))]

    def __iter__(self):
        for number in range(self.batches):
            self.seen.append(number)
            yield mx.io.DataBatch([nd.full((2, 3), number)], [nd.zeros(2)])

    def reset(self):
        self.seen.append("reset")


@pytest.mark.filterwarnings("ignore:FeedForward is deprecated:DeprecationWarning")
def test_an_iterator_may_define_iter_alone():
    score = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    net = mx.sym.SoftmaxOutput(score, name="softmax")
    rows = WrittenAsGenerator(batches=2)
    mx.model.FeedForward(net, num_epoch=2).fit(rows)
    assert rows.seen == ["reset", 0, 1, "reset", 0, 1, "reset"]
    with pytest.raises(ValueError, match="expected an iterator with batches"):
        mx.model.FeedForward(net, num_epoch=1, epoch_size=1).fit(WrittenAsGenerator(0))


@pytest.mark.filterwarnings("ignore:FeedForward is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("size", "seen"),
    [
        (2, "R 0 1 | 2 3 | 4 5 |"),
        (4, "R 0 1 2 3 | 4 5 R 0 1 | 2 3 4 5 |"),
        (6, "R 0 1 2 3 4 5 | R 0 1 2 3 4 5 | R 0 1 2 3 4 5 |"),
    ],
)
def test_epochs_of_a_size_go_on_where_the_last_one_ended(size, seen):
    """The numbers were read off MXNet 1.9.1."""
    score = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    rows = CountedResets(np.arange(6.0)[:, None], np.zeros(6), 1)
    order = []

    class Told(mx.io.DataIter):
        provide_data, provide_label = rows.provide_data, rows.provide_label

        def next(self):
            batch = rows.next()
            order.append(f"{batch.data[0].asscalar():.0f}")
            return batch

        def reset(self):
            order.append("R")
            rows.reset()

    model = mx.model.FeedForward(
        mx.sym.SoftmaxOutput(score, name="softmax"), num_epoch=3, epoch_size=size
    )
    model.fit(Told(), epoch_end_callback=lambda *_: order.append("|"))
    assert " ".join(order) == seen


class Buckets(mx.io.DataIter):
    """Batches whose rows have 3, 2 and 3 steps."""

    def __init__(self):
        super().__init__(batch_size=2)
        self.default_bucket_key = 3
        self.provide_data = [("data", (2, 3))]
        self.provide_label = [("softmax_label", (2,))]

    def __iter__(self):
        for steps in (3, 2, 3):
            yield mx.io.DataBatch(
                [nd.arange(2 * steps).reshape((2, steps)) / 4], [nd.array([0, 1])], pad=0,
                bucket_key=steps, provide_data=[("data", (2, steps))],
                provide_label=self.provide_label,
            )  # fmt: skip


def of_steps(steps):
    rows = mx.sym.Reshape(mx.sym.Variable("data"), shape=(2, steps, 1))
    weight = mx.sym.Variable("weight")
    score = mx.sym.FullyConnected(rows, weight, flatten=False, num_hidden=2, no_bias=True)
    return mx.sym.SoftmaxOutput(mx.sym.sum(score, axis=1), name="softmax")


@pytest.mark.filterwarnings("ignore:FeedForward is deprecated:DeprecationWarning")
def test_a_function_makes_the_symbol_of_each_bucket(tmp_path):
    first = {"weight": nd.array([[1], [2]])}
    model = mx.model.FeedForward(of_steps, num_epoch=2, arg_params=first, learning_rate=0.5)
    symbols = []
    model.fit(Buckets(), epoch_end_callback=lambda epoch, symbol, *_: symbols.append(symbol))
    assert [s.infer_shape(data=(2, 3))[1] for s in symbols] == [[(2, 2)]] * 2

    weight = np.array([1.0, 2.0])
    for steps in (3, 2, 3) * 2:
        sums = np.arange(2.0 * steps).reshape(2, steps).sum(1) / 4
        scores = np.exp(sums[:, None] * weight)
        weight -= 0.25 * sums @ (scores / scores.sum(1, keepdims=True) - np.eye(2))
    np.testing.assert_allclose(model.arg_params["weight"].asnumpy().ravel(), weight, rtol=1e-5)

    again = mx.model.FeedForward(of_steps, arg_params=model.arg_params, aux_params={})
    rows = mx.io.NDArrayIter(np.ones((2, 3), "f"), np.zeros(2), batch_size=2)
    rows.default_bucket_key = 3
    expected = np.exp(3 * weight) / np.exp(3 * weight).sum()
    np.testing.assert_allclose(again.predict(rows), [expected] * 2, rtol=1e-5)
    with pytest.raises(AssertionError, match="call fit or load first"):
        mx.model.FeedForward(of_steps).predict(rows)
