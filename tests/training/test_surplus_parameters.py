"""Parameters of another network, as fine-tuning scripts pass them to a module."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd


def bound_module():
    score = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(score, name="softmax"))
    module.bind([("data", (2, 3))], [("softmax_label", (2,))])
    return module


def given():
    return {
        "fc_weight": nd.ones((2, 3)),
        "fc_bias": nd.zeros((2,)),
        "old_weight": nd.ones((1,)),
    }


@pytest.mark.parametrize(
    "assign",
    [
        lambda module: module.init_params(arg_params=given(), aux_params={"old_mean": nd.ones(1)}),
        lambda module: module.init_params(arg_params=given(), allow_missing=True),
        lambda module: module.set_params(given(), {}),
        lambda module: module.set_params(given(), {}, allow_missing=True, allow_extra=True),
    ],
)
def test_names_that_the_module_lacks_are_ignored(assign):
    module = bound_module()
    assign(module)
    arg_params, aux_params = module.get_params()
    assert sorted(arg_params) == ["fc_bias", "fc_weight"] and not aux_params
    assert (arg_params["fc_weight"].asnumpy() == 1).all()


def fit_module(rows, values):
    bound_module().fit(rows, num_epoch=1, arg_params=values, allow_missing=True)


def fit_feedforward(rows, values):
    with pytest.warns(DeprecationWarning, match="FeedForward"):
        model = mx.model.FeedForward(bound_module().symbol, num_epoch=1, arg_params=values)
    model.fit(rows)


@pytest.mark.parametrize("fit", [fit_module, fit_feedforward])
def test_a_misspelt_parameter_is_not_passed_over_in_silence(fit):
    misspelt = {"fc_wieght": nd.ones((2, 3)), "fc_bias": nd.zeros((2,))}
    rows = mx.io.NDArrayIter(np.ones((4, 3), "f"), np.zeros(4), 2)
    message = "missing parameter 'fc_weight'.*'fc_wieght'"
    with pytest.warns(UserWarning, match=message):
        fit(rows, misspelt)
    with pytest.raises(RuntimeError, match=message):
        bound_module().init_params(arg_params=misspelt)


def test_the_number_of_another_layer_is_not_misspelt():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="stage1_dense")
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (2, 3))])
    others = {"stage11_dense_weight": nd.ones((2, 3)), "stage_dense_bias": nd.zeros(2)}
    module.init_params(arg_params=others, allow_missing=True)  # a warning would be an error


def test_fit_goes_on_from_the_parameters_of_a_larger_network():
    module = bound_module()
    rows = mx.io.NDArrayIter(np.ones((4, 3), "f"), np.zeros(4), 2)
    module.fit(rows, num_epoch=1, arg_params=given(), allow_missing=True)
    assert sorted(module.get_params()[0]) == ["fc_bias", "fc_weight"]


@pytest.mark.parametrize("initialised", [True, False])
def test_assigning_some_parameters_refuses_unknown_names(initialised):
    module = bound_module()
    if initialised:
        module.init_params()
    with pytest.raises(ValueError, match="old_weight"):
        module.set_params(given(), {}, allow_missing=True)


def test_parameters_without_any_value_are_named():
    with pytest.raises(TypeError, match="initializer None.*'fc_bias', 'fc_weight'"):
        bound_module().init_params(initializer=None)
    module = bound_module()
    module.init_params()
    before = module.get_params()[0]["fc_weight"].asnumpy()
    module.init_params(initializer=None, force_init=True)
    assert (module.get_params()[0]["fc_weight"].asnumpy() == before).all()


class Old(mx.mod.BaseModule):
    """A module of a program from before `allow_extra`."""

    given = None

    def init_params(self, initializer=None, arg_params=None, aux_params=None,
                    allow_missing=False, force_init=False):  # fmt: skip
        self.given = arg_params, force_init


def test_modules_may_define_init_params_without_allow_extra():
    module = Old()
    module.set_params({"w": 1}, {})
    assert module.given == ({"w": 1}, True)
    with pytest.raises(TypeError, match="allow_extra"):
        module.set_params({"w": 1}, {}, allow_extra=True)
