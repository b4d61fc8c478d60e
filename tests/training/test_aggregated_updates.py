"""Schedules that count their calls: how often the optimizers ask."""

import pytest

import rsnet as mx
from rsnet import nd


class Counted(mx.lr_scheduler.LRScheduler):
    def __init__(self):
        super().__init__()
        self.asked = []

    def __call__(self, num_update):
        self.asked.append(num_update)
        return 0.5 / len(self.asked)


@pytest.mark.parametrize(("name", "asked"), [("sgd", [1, 1, 2, 2]), ("nag", [1] * 6 + [2] * 6)])
def test_a_schedule_is_asked_as_often_as_by_mxnet(name, asked):
    """The numbers were read off MXNet 1.9.1."""
    schedule = Counted()
    updater = mx.optimizer.get_updater(mx.optimizer.create(name, lr_scheduler=schedule))
    weights = [nd.zeros((2,)) for _ in range(6)]
    for _ in range(2):
        updater(list(range(6)), [nd.ones((2,))] * 6, weights)
    assert schedule.asked == asked
    if name == "sgd":
        first, last = -(0.5 + 0.5 / 3), -(0.5 / 2 + 0.5 / 4)
        found = [float(w[0].asscalar()) for w in weights]
        assert found == pytest.approx([first] * 4 + [last] * 2)


def test_a_subclass_may_define_the_rate_of_one_weight():
    class Halved(mx.optimizer.SGD):
        def _get_lr(self, index):
            return super()._get_lr(index) / (index + 1)

    updater = mx.optimizer.get_updater(Halved(lr_scheduler=mx.lr_scheduler.FactorScheduler(9)))
    weights = [nd.zeros((1,)) for _ in range(2)]
    updater([0, 1], [nd.ones((1,))] * 2, weights)
    assert [w.asscalar() for w in weights] == pytest.approx([-0.01, -0.005])
