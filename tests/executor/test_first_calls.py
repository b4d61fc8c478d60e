"""What a first call of an executor gets wrong."""

import numpy as np
import pytest

import rsnet as mx


@pytest.fixture
def exe():
    net = mx.sym.Dropout(mx.sym.Variable("data"), p=0.5)
    return net.simple_bind(mx.cpu(), grad_req="null", data=(1,))


@pytest.mark.parametrize("data", [mx.nd.ones((1,)), np.ones(3), [1.0], {"data": 1}])
@pytest.mark.parametrize("function", ["forward", "partial_forward"])
def test_data_by_position_is_not_taken_for_is_train(exe, function, data):
    text = (
        rf"^{function}: invalid is_train .*: expected a bool; pass data by name, as in {function}"
    )
    with pytest.raises(TypeError, match=text):
        getattr(exe, function)(data)


@pytest.mark.parametrize("is_train", [False, 0, None, np.False_, np.int64(0)])
def test_what_stands_for_a_bool_is_taken(exe, is_train):
    assert exe.forward(is_train, data=np.ones(1))[0].asscalar() == 1
