"""Warnings that MXNet 1.9.1 gives, and errors that name the argument."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, sym


def net():
    fc = sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="fc")
    return sym.SoftmaxOutput(fc, name="softmax")


def rows(label=True):
    labels = np.zeros(8, "float32") if label else None
    return mx.io.NDArrayIter(np.zeros((8, 5), "float32"), labels, 4)


def fit(batches=None, **given):
    mx.mod.Module(net()).fit(batches or rows(), num_epoch=1, **given)


def test_a_module_without_labels_that_it_names():
    module = mx.mod.Module(net())
    text = r"names specified by label_names \(\[\] vs. \['softmax_label'\]\)"
    with pytest.warns(UserWarning, match=text):
        module.bind([("data", (4, 5))])
    mx.mod.Module(net(), label_names=None).bind([("data", (4, 5))])  # names none: no warning


def test_a_scheduler_whose_rate_is_overwritten():
    def made(**given):
        schedule = mx.lr_scheduler.FactorScheduler(step=10, base_lr=0.3)
        return mx.optimizer.create("sgd", lr_scheduler=schedule, **given)

    text = "learning_rate=0.5 replaces base_lr=0.3 of the lr_scheduler"
    with pytest.warns(UserWarning, match=text):
        assert made(learning_rate=0.5).lr == 0.5
    assert made(learning_rate=0.3).lr == made().lr == 0.3


def test_a_fused_cell_that_transposes():
    cell = mx.rnn.FusedRNNCell(4, prefix="l_")
    with pytest.warns(UserWarning, match="FusedRNNCell transposes .*: TNC is faster"):
        cell.unroll(3, sym.Variable("data"), layout="NTC", merge_outputs=True)
    cell.unroll(3, sym.Variable("data"), layout="TNC", merge_outputs=True)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"initializer": 3}, TypeError, "initializer is a int, expected an Initializer"),
        ({"arg_params": 3}, TypeError, "invalid arg_params 3: expected a dict of str to NDArray"),
        (
            {"arg_params": {"fc_weight": 3}, "allow_missing": True},
            TypeError,
            "arg_params: 'fc_weight' is a int, expected an NDArray",
        ),
        ({"optimizer_params": 3}, TypeError, "invalid optimizer_params 3: expected a dict or"),
        (
            {"optimizer_params": {"learning_rat": 1}},
            TypeError,
            "optimizer 'sgd': invalid argument 'learning_rat': expected one of momentum, .*"
            "learning_rate",
        ),
        *(
            (
                {"optimizer_params": {name: "0.1"}},
                TypeError,
                f"optimizer SGD: invalid {name} '0.1': expected a number",
            )
            for name in ("learning_rate", "wd", "clip_gradient", "rescale_grad")
        ),
        ({"batch_end_callback": 3}, TypeError, "callback 3: expected a callable"),
        ({"eval_data": 3}, TypeError, "invalid eval_data 3: expected a DataIter"),
        ({"monitor": 3}, TypeError, "invalid monitor 3: expected a Monitor"),
    ],
)
def test_wrong_arguments_of_fit_are_named(given, error, text):
    with pytest.raises(error, match=text):
        fit(**given)


@pytest.mark.filterwarnings("ignore:Data provided by label_shapes")
def test_a_metric_without_labels():
    with pytest.raises(ValueError, match="number of labels 0: expected 1, .*provide_label"):
        fit(rows(label=False))


def test_an_optimizer_that_takes_any_argument_is_not_refused():
    @mx.optimizer.register
    class TakesMore(mx.optimizer.Optimizer):
        def __init__(self, **kwargs):
            self.extra = kwargs.pop("extra", None)
            super().__init__(**kwargs)

    assert mx.optimizer.create("takesmore", extra=4).extra == 4
    with pytest.raises(TypeError, match="'takesmore': invalid argument 'extr': expected one of"):
        mx.optimizer.create("takesmore", extr=4)


@pytest.mark.parametrize("shape", [(4, 6), (2, 6)])
def test_a_batch_that_the_parameters_do_not_fit(shape):
    module = mx.mod.Module(net())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params()
    wrong = mx.io.DataBatch([nd.ones(shape)], [nd.zeros(shape[:1])])
    text = r"invalid shapes \{'data': \(\d, 6\)\} of the batch's data: .* \{'data': \(4, 5\)\}"
    for _ in range(2):
        with pytest.raises(mx.MXNetError, match=text):
            module.forward(wrong)
    module.forward(mx.io.DataBatch([nd.ones((4, 5))], [nd.zeros(4)]))
    assert module.get_outputs()[0].shape == (4, 3)


@pytest.mark.parametrize(
    "cell",
    [
        mx.rnn.LSTMCell(4, prefix="m_"),
        mx.rnn.FusedRNNCell(4, prefix="m_"),
        mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(4, prefix="m_"), mx.rnn.LSTMCell(4, prefix="r_")),
    ],
)
def test_weights_that_are_missing(cell):
    with pytest.raises(
        KeyError, match="unpack_weights: expected the weight 'm_.*' among .* which are a"
    ):
        cell.unpack_weights({"a": nd.ones(1)})
    with pytest.raises(
        KeyError, match="pack_weights: expected the weight 'm_.*' among .* which are no"
    ):
        cell.pack_weights({})
